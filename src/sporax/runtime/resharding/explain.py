"""`sporax.explain_resharding`: the collectives that XLA puts into a user's own program, and what removes them.

Method: the program is compiled for the devices at hand, CPUs that are simulated included, and its text is read. For each
collective, those of most bytes first, changes around the operator that needs it are compiled one after another. What is shown has
been counted: fewer bytes in all, no longer predicted, with as much arithmetic and memory on each device as before, or nearly.

Changes of a program that are compiled and counted, and those of them that help.

What helps sends fewer bytes in all, takes no longer by prediction, and leaves arithmetic and memory of each device as they were,
or nearly. For a collective it counts where the same equation sends fewer bytes.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh

from sporax.base.errors import For
from sporax.base.progress import activity, reported
from sporax.ir.hardware import HardwareProfile, load_profile
from sporax.planner import fitting_hardware
from sporax.report.resharding import Remedy, ReshardingReport, SourceLine
from sporax.runtime.planned.user_mesh import context_mesh
from sporax.runtime.resharding.changes import Change, Changes
from sporax.runtime.resharding.collectives import CollectiveCosts, Found, collectives_of
from sporax.runtime.resharding.meshes import WHERE, concrete_mesh, named_programs, under_mesh
from sporax.runtime.resharding.sharded_program import ShardedProgram, sharded_program

_LESS = 0.99
"""Share of the bytes that a remedy may leave."""
_MORE_FLOPS, _MORE_MEMORY = 1.02, 1.1
"""Shares of arithmetic and memory of a device that a remedy may take: whoever computes or stores all everywhere sends nothing.
An operation for each byte comes on top, since arrays that are moved are selected and copied."""
_REFUSALS = (ValueError, TypeError, RuntimeError)
_EACH = 24
"""Changes that are tried for one collective."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A program, compiled.

    Attributes:
        program: what was compiled.
        found: its collectives.
        flops, memory_bytes: of one device.
        in_shardings, out_shardings: of its arguments and results.
    """

    program: ShardedProgram
    found: list[Found]
    flops: float
    memory_bytes: int
    in_shardings: tuple[Any, ...]
    out_shardings: tuple[Any, ...]

    @property
    def sent_bytes(self) -> int:
        """Bytes that one device sends."""
        return sum(one.collective.sent_bytes for one in self.found)

    @property
    def seconds(self) -> float:
        """Predicted time of all collectives."""
        return sum(one.collective.seconds for one in self.found)

    def bytes_of(self, number: int | None) -> int:
        """Bytes that the collectives of an equation send."""
        return sum(one.collective.sent_bytes for one in self.found if one.number == number)

    def axes_of(self, number: int | None) -> set[str]:
        """Axes along which the collectives of an equation run."""
        return {axis for one in self.found if one.number == number for axis in one.collective.axes}

    def is_better(self, base: Measured) -> bool:
        """Whether it sends less than another one and takes nothing for it."""
        is_less = self.sent_bytes < _LESS * base.sent_bytes and self.seconds <= base.seconds
        most_flops = _MORE_FLOPS * base.flops + base.memory_bytes
        has_more = self.flops > most_flops or self.memory_bytes > _MORE_MEMORY * base.memory_bytes
        return is_less and not has_more


Trial = tuple[Change, Measured]
"""A change, and the program with it."""


class RemedySearch:
    """Tries changes of a program.

    Args:
        program: the user's.
        mesh: its devices.
        costs: what collectives cost on them.
        tries: programs that are compiled at most.

    Attributes:
        base: the program as it is.
        tried: how many were compiled.
        trials: what was compiled, by the key of the change.
    """

    def __init__(self, program: ShardedProgram, mesh: Mesh, costs: CollectiveCosts, tries: int) -> None:
        self.costs, self.tries, self.tried = costs, tries, 0
        self.equations = program.equations()
        self.base = self._measured(program)
        self.changes = Changes(program, mesh, self.base.in_shardings, self.base.out_shardings)
        self.trials: dict[str, Trial | None] = {}

    def remedies(self) -> list[Trial | None]:
        """For each collective the change that leaves the fewest bytes; None where none of those that were tried helps."""
        for found in self.base.found:
            # One without weight makes no difference.
            if self._is_requested(found) and found.collective.sent_bytes > (1 - _LESS) * self.base.sent_bytes:
                self._try_around(found)
        helpful = [trial for trial in self.trials.values() if trial and trial[1].is_better(self.base)]
        ranked = sorted(helpful, key=lambda trial: (trial[1].sent_bytes, trial[0].replaces))
        return [next((trial for trial in ranked if self._lowers(trial[1], one)), None) for one in self.base.found]

    def _try_around(self, found: Found) -> None:
        """Try changes for a collective until one has removed it, be it that of another one."""
        axes = [axis for axis in self.costs.mesh if axis in self.base.axes_of(found.number)]
        changes = itertools.islice(self.changes.of(found.number or 0, axes), _EACH)
        while not any(trial and self._removes(trial[1], found) for trial in self.trials.values()):
            change = next(changes, None)
            if change is None:
                return
            self._tried(change)

    def _is_requested(self, found: Found) -> bool:
        """Whether anything can be changed around a collective: its equation is known, and not the user's own collective."""
        return found.number is not None and not found.collective.is_written

    def _removes(self, measured: Measured, found: Found) -> bool:
        """Whether a changed program sends nothing because of the same equation, nor more because of others."""
        left = self.base.sent_bytes - self.base.bytes_of(found.number)
        return measured.is_better(self.base) and not measured.bytes_of(found.number) and measured.sent_bytes <= left

    def _lowers(self, measured: Measured, found: Found) -> bool:
        """Whether a changed program sends less because of the same equation."""
        return self._is_requested(found) and measured.bytes_of(found.number) < self.base.bytes_of(found.number)

    def _tried(self, change: Change) -> Measured | None:
        """The changed program; None where XLA or JAX refuses it, or no more may be compiled.

        JAX refuses a sharding that does not fit what is inside, and types of explicit axes that do not fit each other.
        """
        if change.key not in self.trials and self.tried < self.tries:
            self.tried += 1
            self.trials[change.key] = None
            try:
                self.trials[change.key] = change, self._measured(change.applied(self.base.program))
            except Exception as error:
                if not isinstance(error, _REFUSALS) and type(error).__name__ != "ShardingTypeError":  # not public
                    raise
        trial = self.trials.get(change.key)
        return None if trial is None else trial[1]

    def together(self, found: Sequence[Trial | None]) -> Remedy | None:
        """The remedies at once, those that add nothing left out; None where one alone does as well."""
        ranked = sorted({one[0].key: one for one in found if one}.values(), key=lambda trial: trial[1].sent_bytes)
        if not ranked:
            return None
        (change, best), used = ranked[0], [ranked[0][0].key]
        for other, _ in ranked[1:]:
            both = change.and_then(other)
            measured = self._tried(both)
            if measured is not None and measured.is_better(best) and measured.is_better(self.base):
                change, best, used = both, measured, [*used, other.key]
        numbers = [str(number) for number, trial in enumerate(found, 1) if trial and trial[0].key in used]
        together = Remedy(f"{', '.join(numbers)} together", "", SourceLine(), best.sent_bytes, best.seconds)
        return together if len(used) > 1 else None

    def _measured(self, program: ShardedProgram) -> Measured:
        compiled = program.compiled()
        memory: Any = compiled.memory_analysis()
        costs = compiled.cost_analysis() or {}
        parts = (memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.temp_size_in_bytes)
        return Measured(
            program,
            collectives_of(compiled.as_text() or "", self.costs, self.equations),
            float(costs.get("flops", 0.0)),
            sum(parts) - memory.alias_size_in_bytes,
            tuple(compiled.input_shardings[0]),
            tuple(compiled.output_shardings),
        )


def remedy_of(change: Change, measured: Measured) -> Remedy:
    """A change as users see it."""
    return Remedy(change.text, change.value, change.place, measured.sent_bytes, measured.seconds)


_EXPLICIT = "axes are explicit: JAX's types allow {} of these {} changes."


def explain_resharding(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    mesh: Mesh | AbstractMesh | Mapping[str, int] | None = None,
    hardware: str = "",
    tries: int = 96,
) -> ReshardingReport:
    """List the collectives that XLA puts into a program of yours, with lines, bytes, times, and changes that remove them.

    Nothing is run. Bytes and times are of one run of the program on one device.

    Args:
        fn: a function, or what `jax.jit` made of it, with shardings of arguments and results (``in_shardings``,
            ``out_shardings``) and constraints.
        args: its arguments, or `jax.ShapeDtypeStruct` in place of their arrays; their shardings count, as in a call. What is no
            array (numbers, texts, configurations) is a constant, whether it is a static argument or not.
        kwargs: its arguments by keyword, by name.
        mesh: the devices, simulated ones included: a mesh, which is set around the function (`jax.set_mesh`), or devices along
            each axis, ``{"data": 8}``. By default the mesh of the context, or that of the shardings.
        hardware: for the times: a profile (`sporax.ir.hardware.known_profiles`) or a JSON file; by default what JAX runs on.
        tries: changes that are compiled at most; 0 lists the collectives alone.

    Raises:
        SporaxTypeError: `fn` is no function, or `mesh` no mesh.
        SporaxValueError: JAX cannot trace `fn`; there is no mesh, or one of more devices than are here; an unknown profile.

    Example:
        >>> from jax.sharding import NamedSharding, PartitionSpec as P
        >>> mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        >>> x = jax.ShapeDtypeStruct((64, 32), "float32", sharding=NamedSharding(mesh, P("x")))
        >>> sporax.explain_resharding(lambda x: x - x.mean(0), x, hardware="h100").collectives[0].operator
        'all-reduce'
    """
    if type(tries) is not int or tries < 0:
        raise For(WHERE).error("'tries' must be a number of programs, 0 or more", reprlib.repr(tries))
    requested = None if mesh is None else concrete_mesh(mesh)
    profile = load_profile(hardware or fitting_hardware(jax.default_backend()))
    with reported(), activity("explaining collectives"), named_programs(), under_mesh(requested):
        program = sharded_program(fn, args, {} if kwargs is None else kwargs, requested)
        return _explained(program, program.mesh(requested or context_mesh()), profile, tries)


def _explained(program: ShardedProgram, mesh: Mesh, profile: HardwareProfile, tries: int) -> ReshardingReport:
    costs = CollectiveCosts({str(name): size for name, size in mesh.shape.items()}, profile)
    search = RemedySearch(program, mesh, costs, tries)
    trials = search.remedies()
    collectives = tuple(
        replace(found.collective, remedy=trial and remedy_of(*trial))
        for found, trial in zip(search.base.found, trials, strict=True)
    )
    together = search.together(trials)
    allowed = sum(trial is not None for trial in search.trials.values())
    is_typed = AxisType.Explicit in mesh.axis_types and search.tried
    notes = [_EXPLICIT.format(allowed or "none", search.tried)] if is_typed else []
    notes += (
        [f"{tries} changes were the limit, 'tries'; a higher one looks further."] if search.tried == tries > 0 else []
    )
    return ReshardingReport(
        program.name, dict(costs.mesh), profile.name, collectives, search.tried, together, tuple(notes)
    )
