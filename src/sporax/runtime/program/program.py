"""A function that reads and writes variables, compiled into one XLA program.

A `Program` turns such a function into a pure one, ``(written, read, inputs) -> (written, outputs)``, finds out by one
abstract trace which variables it touches, and compiles it with the written ones donated. It keeps one *variant* per
combination of input shapes, static arguments and configuration, and can say why a new one had to be made.

A function that exchanges data with other ranks becomes a program over the devices of all ranks, and its variables stay
in joint form between calls (`sporax.runtime.ranks.joint_arrays`); every other function becomes a program of this rank alone.

| module | what it does in a call |
|---|---|
| `program` | chooses the variant and runs it |
| `signature` | what of the arguments a variant depends on |
| `variants` | makes a variant: the trace that finds its variables (`discovery`), and its plan or program |
| `pure_program` | the function as a pure program, rewritten by passes |
| `variant` | one compiled form, and whether it is still valid |
| `arguments` | inputs and results of the compiled program |
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import jax

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError
from sporax.ir.config.plan_settings import PlanSettings
from sporax.runtime.process import dry_run
from sporax.runtime.program.variant import (
    Signature,
    Variant,
    assembled,
    difference,
    is_array,
    joint_inputs,
    sign,
    waiting,
)
from sporax.runtime.program.variants import described, discovered, new_variant
from sporax.runtime.ranks import joint_arrays, local_ranks
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames, ordered_trees, trace_constants


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation of a program.

    Attributes:
        reason: what differed from what had been compiled before.
        trace_seconds: time to find the program's variables; XLA compiles at the first call after that.
        num_read, num_written: how many variables the program reads only, and updates.
    """

    reason: str
    trace_seconds: float
    num_read: int
    num_written: int

    def __str__(self) -> str:
        return (
            f"{self.reason} ({self.num_read} variables read, {self.num_written} updated; "
            f"traced in {self.trace_seconds:.2f} s)"
        )


if TYPE_CHECKING:
    from sporax.runtime.pipeline.pipelined_step import PipelinedStep
    from sporax.runtime.planned.memory_report import MemoryReport
    from sporax.runtime.planned.step import PlannedStep

_log = logging.getLogger("sporax.compile")


def _run_planned(variant: Variant, planned: PlannedStep | PipelinedStep, data: list[jax.Array]) -> Any:
    zeros = planned.unrun()
    # Steps that are only planned end here: nothing is compiled.
    if zeros is not None:
        return assembled(variant, zeros[len(variant.written) :])
    if dry_run.active():
        if variant.executable is None:
            lowered = planned.lower()
            if not isinstance(lowered, jax.stages.Lowered):
                raise SporaxRuntimeError(
                    f"For '{variant.name}', a dry run must be of one pipeline stage, but the step has several: use `sporax plan`."
                )
            variant.executable = dry_run.planned_for_dry_run(lowered, len(variant.written), variant.name)
        return assembled(variant, variant.executable())
    if variant.executable is None:
        with waiting(f"compiling '{variant.name}'"):
            variant.executable = planned.compile(variant.name)
        # Only now, so that a compilation that fails leaves the variables where they were.
        planned.bring(variant.written, variant.read)
    updated, read = variant.storage.fetch()
    outputs = planned.run(variant.executable, [*updated, *read], data)
    variant.storage.store(outputs[: len(updated)])
    if variant.checks:
        trace_constants.raise_noted(outputs)
    return assembled(variant, outputs[len(updated) :])


def no_plan() -> PlanSettings | None:
    """For programs that are never sharded by a plan."""
    return None


class Program:
    """Compiled form of `function`.

    Args:
        function: takes and returns pytrees whose leaves are arrays or static values; may read and write variables.
        name: how the program is called in the compiled module and in messages.
        settings: gives the settings of the global view when the program should be sharded by a plan, else None; read at each
            compilation.

    Raises:
        SporaxTypeError: an argument is neither an array nor hashable.
    """

    # Slots, because attributes are read at every step.
    __slots__ = ("_found", "_recent", "_variants", "compilations", "function", "name", "needed", "part", "settings")

    def __init__(
        self, function: Callable[..., Any], name: str, settings: Callable[[], PlanSettings | None] = no_plan
    ) -> None:
        self.function = function
        self.name = name
        self.settings = settings
        self._variants: dict[Signature, list[Variant]] = {}
        self._recent: Variant | None = None
        self._found: dict[Signature, Variant] = {}
        self.part: Any = None  # its form inside of eager code that is differentiated, once that has been met
        self.compilations: list[Compilation] = []
        self.needed: frames.ValueNeededError | None = None  # why the function cannot be compiled, once that is known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program on these arguments, compiling it first when nothing compiled fits."""
        # Between two steps the processor's caches are full of the step's data, so every line of Python is slow here: a
        # loop that brings batches of one shape takes the short way.
        variant = self._recent
        arrays = None if kwargs or variant is None or not variant.fresh() else variant.arrays_of(args)
        if variant is None or arrays is None:
            variant, arrays = self._select(args, kwargs)
        if SESSION.recording is not None and frames.current_frame() is None:
            return SESSION.recording.around(lambda: self._run(variant, arrays), variant.written)
        return self._run(variant, arrays)

    def _run(self, variant: Variant, arrays: list[jax.Array]) -> Any:
        if variant.planned is not None:
            return _run_planned(variant, variant.planned, arrays)
        if variant.communicates:
            return self._run_jointly(variant, arrays)
        new_values, outputs = variant.run(*variant.storage.fetch(), arrays)
        variant.storage.store(new_values)
        if variant.checks:
            trace_constants.raise_noted((new_values, outputs))
        return assembled(variant, outputs)

    def _run_jointly(self, variant: Variant, arrays: list[jax.Array]) -> Any:
        devices = joint_arrays.all_devices()
        values = (*variant.storage.fetch(), joint_inputs(variant, arrays, devices))
        if variant.executable is None:  # before the exchange begins, for which the other ranks would seem to wait
            variant.compile(*values, joint_arrays.zero(devices))
        # The exchange may fail because of another rank, which the report should name.
        members = tuple(devices[rank] for rank in sorted(variant.peers))
        new_values, outputs = joint_arrays.run(variant.run, self.name, devices, *values, members=members)
        variant.storage.store(new_values)
        if variant.checks:
            trace_constants.raise_noted((new_values, outputs))
        results = (
            list(map(joint_arrays.to_local, outputs)) if variant.parts is None else variant.parts.own_results(outputs)
        )
        return assembled(variant, results)

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered | PipelinedStep:
        """The program for these arguments, lowered and not run: for reading its text or its memory needs."""
        variant, arrays = self._select(args, kwargs)
        if variant.planned is not None:
            return variant.planned.lower()
        if variant.communicates:
            devices = joint_arrays.all_devices()
            inputs = joint_inputs(variant, arrays, devices)
            return variant.lower(*variant.storage.fetch(), inputs, joint_arrays.zero(devices))
        return variant.lower(*variant.storage.fetch(), arrays)

    def variables(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], bool]:
        """The variables that a call reads or writes, without compiling it; and whether it uses tracers that are no arguments."""
        leaves, tree = ordered_trees.flatten((args, kwargs))
        signature = sign(leaves, tree, self.name)
        found = self._found.get(signature)
        if found is not None and found.fresh():
            return (*found.written, *found.read), False
        arrays = described(list(filter(is_array, leaves)), self.settings())
        found, trace = discovered(self.function, self.name, signature, arrays, False)
        constants = [] if trace.traced is None else trace.traced.consts
        if any(isinstance(constant, jax.core.Tracer) for constant in constants):
            return (*found.written, *found.read), True
        self._found[signature] = found
        return (*found.written, *found.read), False

    def part_of_trace(self, values: Mapping[Any, jax.Array], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The program as a part of what JAX traces, for these values of the variables that it reads; it writes none.

        Raises:
            SporaxNotImplementedError: no plan of one pipeline stage shards it, or it reads tables in uneven parts.
        """
        variant, arrays = self._select(args, kwargs)
        jitted = getattr(variant.planned, "jitted", None)
        if jitted is None or getattr(variant.planned, "blocked", None):
            raise SporaxNotImplementedError(
                f"For '{self.name}', 'shard' inside of recompute, vmap and branches of eager code is not offered with pipeline "
                "stages and tables in uneven parts. Compile the step with jit, or call set_context(mode=GRAPH_MODE)."
            )
        return assembled(variant, jitted(*map(values.__getitem__, variant.read), *arrays))

    def plan(self, *args: Any, **kwargs: Any) -> PlannedStep | PipelinedStep | None:
        """How the program for these arguments is sharded, without running it; None when it is not sharded by a plan."""
        return self._select(args, kwargs)[0].planned

    def memory(self, *args: Any, **kwargs: Any) -> MemoryReport:
        """What the program for these arguments is predicted to need, and what it sends between devices and hosts.

        Raises:
            SporaxNotImplementedError: it has several pipeline stages.
        """
        from sporax.runtime.planned import memory_report  # brings the planner along: only its user waits

        variant, arrays = self._select(args, kwargs)
        if variant.planned is not None:
            return memory_report.of_plan(variant.planned)
        if variant.communicates:
            devices = joint_arrays.all_devices()
            # Traced with these values, and not run.
            inputs = joint_inputs(variant, arrays, devices)
            return memory_report.of_ranks(variant.jitted, *variant.storage.fetch(), inputs, joint_arrays.zero(devices))
        values = (*variant.storage.fetch(), arrays)
        return memory_report.of_one_device(variant.jitted, *variant.storage.names(), values)

    @property
    def planned(self) -> PlannedStep | PipelinedStep | None:
        """How the program was sharded that was used last; None when there is none or it is not sharded by a plan."""
        return None if self._recent is None else self._recent.planned

    @property
    def executable(self) -> Any:
        """The compiled form of the program that was used last; None before the first call."""
        return None if self._recent is None else self._recent.executable

    def _select(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Variant, list[jax.Array]]:
        """The variant for these arguments, made now where there is none, and the arrays among them."""
        if self.needed is not None:
            raise self.needed
        leaves, tree = ordered_trees.flatten((args, kwargs))
        arrays = list(filter(is_array, leaves))
        # Remembered first: a loop that changes shapes now and then still has its usual case here.
        variant = self._recent = self._variant(sign(leaves, tree, self.name), arrays)
        # Only types that hold one array can be compared without flattening.
        if variant.holders is None and not kwargs and all(map(_holds_one_array, args)):
            variant.holders = tuple(map(type, args))
        return variant, arrays

    def _variant(self, signature: Signature, arrays: list[jax.Array]) -> Variant:
        candidates = self._variants.setdefault(signature, [])
        # Configuration may have gone back to what it was for an older variant.
        for variant in candidates:
            if variant.fresh() and variant.own == local_ranks.positions_of_own(arrays):
                return variant
        if candidates and candidates[-1].effects:
            # Of guards only: what else is assigned are variables, which programs have as inputs.
            for owner, name, _ in [entry for entry in candidates[-1].effects if hasattr(entry[0], "describe")][:1]:
                _warn_of_assignment(type(owner).__name__, name)
            del candidates[:-_MOST_ASSIGNING]
        variant = self._new_variant(signature, arrays, candidates)
        candidates.append(variant)
        return variant

    def _new_variant(self, signature: Signature, arrays: list[jax.Array], candidates: list[Variant]) -> Variant:
        reason = self._reason(signature, candidates)
        started = time.perf_counter()
        variant = new_variant(self.function, self.name, signature, arrays, self.settings())
        seconds = time.perf_counter() - started
        SESSION.compile_seconds += seconds
        compilation = Compilation(reason, seconds, len(variant.read), len(variant.written))
        self.compilations.append(compilation)
        _log.info("compiled %s: %s", self.name, compilation)
        return variant

    def _reason(self, signature: Signature, candidates: list[Variant]) -> str:
        if candidates:
            return candidates[-1].stale() or "configuration changed"
        # Those without variants failed while tracing.
        compiled = [earlier for earlier, variants in self._variants.items() if variants]
        return difference(compiled[-1], signature) if compiled else "first call"


def _holds_one_array(argument: Any) -> bool:
    """Whether an argument is an array to the program, and nothing else."""
    return type(argument) in SESSION.holders and argument.static_part is None


_MOST_ASSIGNING = 8
"""As many earlier variants of a program wait that assigns attributes: it may have only few states."""


@cache
def _warn_of_assignment(kind: str, name: str) -> None:
    warnings.warn(
        f"For '{kind}', 'construct' assigns the attribute '{name}', which compiled programs have as a constant: for every new "
        "value the step is traced and compiled again. A Parameter changes without that.",
        stacklevel=2,
    )
