"""A function that reads and writes variables, compiled into one XLA program.

A `Program` turns such a function into a pure one, ``(written, read, inputs) -> (written, outputs)``, finds out by one
abstract trace which variables it touches, and compiles it with the written ones donated. It keeps one *variant* per
combination of input shapes, static arguments and configuration, and can say why a new one had to be made.

A function that exchanges data with other ranks becomes a program over the devices of all ranks, and its variables stay
in joint form between calls (`sporax.runtime.ranks.joint_arrays`); every other function becomes a program of this rank alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError
from sporax.base.identity import ByIdentity
from sporax.ir.config.plan_settings import PlanSettings
from sporax.lowering.flat_program import flat
from sporax.lowering.marks.host_transfer import is_on_host
from sporax.lowering.passes.pass_order import AUTO, BLOCKS, compiler_options, rewritten, rewritten_with_stacks
from sporax.lowering.passes.recompute.recompute_blocks import Chosen
from sporax.runtime import world
from sporax.runtime.devices import global_view
from sporax.runtime.process import dry_run
from sporax.runtime.program.compilation import Compilation
from sporax.runtime.program.discovery import Discovery, discover
from sporax.runtime.program.signature import Signature, difference, inputs_of, is_array, sign
from sporax.runtime.program.variant import Variant as _Variant
from sporax.runtime.program.variant import waiting
from sporax.runtime.ranks import first_values, joint_arrays, local_ranks, placed_calls
from sporax.runtime.state import frames, value_checks
from sporax.runtime.storage import filed_variables
from sporax.runtime.storage.host_memory import bring_to_host, fetched, returned
from sporax.runtime.storage.stacked_variables import arguments_of, may_be_row

if TYPE_CHECKING:
    from sporax.runtime.pipeline.pipelined_step import PipelinedStep
    from sporax.runtime.planned.memory_report import MemoryReport
    from sporax.runtime.planned.step import PlannedStep

_raw = attrgetter("raw")
_joint = attrgetter("joint")
_log = logging.getLogger("sporax.compile")

HOLDERS: set[type] = set()
"""Types that are pytree nodes of one array, kept in ``raw``: arguments of such types need no flattening."""


class _Array:
    """Stands for an array among the leaves of a result."""

    def __repr__(self) -> str:
        return "<array>"


_ARRAY = _Array()


def _run_planned(variant: _Variant, planned: PlannedStep | PipelinedStep, data: list[jax.Array]) -> Any:
    zeros = planned.unrun()
    # Steps that are only planned end here: nothing is compiled.
    if zeros is not None:
        return _assemble(variant, zeros[len(variant.written) :])
    if dry_run.active():
        if variant.executable is None:
            lowered = planned.lower()
            if not isinstance(lowered, jax.stages.Lowered):
                raise SporaxRuntimeError(
                    f"For '{variant.name}', a dry run must be of one pipeline stage, but the step has several: use `sporax plan`."
                )
            variant.executable = dry_run.rehearse_planned(lowered, len(variant.written), variant.name)
        return _assemble(variant, variant.executable())
    if variant.executable is None:
        with waiting(f"compiling '{variant.name}'"):
            variant.executable = planned.compile(variant.name)
        # Only now, so that a compilation that fails leaves the variables where they were.
        planned.bring((*variant.written, *variant.read))
    outputs = planned.run(variant.executable, planned.values((*variant.written, *variant.read)), data)
    planned.keep(variant.written, outputs)
    if variant.checks:
        value_checks.raise_noted(outputs)
    return _assemble(variant, outputs[len(variant.written) :])


def no_plan() -> PlanSettings | None:
    """For programs that are never sharded by a plan."""
    return None


class Program:
    """Compiled form of `function`.

    Args:
        function: takes and returns pytrees whose leaves are arrays or static values; may read and write variables.
        name: how the program is called in the compiled module and in messages.
        settings: gives the settings of the global view when the program should be sharded by a plan, else None; asked at each
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
        self._variants: dict[Signature, list[_Variant]] = {}
        self._recent: _Variant | None = None
        self._found: dict[Signature, _Variant] = {}
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
        if variant.planned is not None:
            return _run_planned(variant, variant.planned, arrays)
        if variant.communicates:
            return self._run_jointly(variant, arrays)
        new_values, outputs = variant.run(*_values(variant, arrays))
        if variant.filed:
            for variable, value in zip(variant.written, new_values, strict=True):
                filed_variables.take_back(variable, value)
        elif variant.stacks is not None:
            variant.stacks.keep(new_values)
        else:
            for variable, value in zip(variant.written, new_values, strict=True):
                variable.raw = value
        if variant.checks:
            value_checks.raise_noted((new_values, outputs))
        return _assemble(variant, outputs)

    def _run_jointly(self, variant: _Variant, arrays: list[jax.Array]) -> Any:
        devices = joint_arrays.all_devices()
        values = _joint_values(variant, arrays, devices)
        if variant.executable is None:  # before the exchange begins, for which the other ranks would seem to wait
            variant.compile(*values, joint_arrays.zero(devices))
        # The exchange may fail because of another rank, which the report should name.
        new_values, outputs = joint_arrays.run(variant.run, self.name, devices, *values)
        for variable, value in zip(variant.written, new_values, strict=True):
            variable.joint = value
        if variant.checks:
            value_checks.raise_noted((new_values, outputs))
        given = list(map(joint_arrays.to_local, outputs)) if variant.parts is None else variant.parts.given(outputs)
        return _assemble(variant, given)

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered | PipelinedStep:
        """The program for these arguments, lowered and not run: for reading its text or its memory needs."""
        variant, arrays = self._select(args, kwargs)
        if variant.planned is not None:
            return variant.planned.lower()
        if variant.communicates:
            devices = joint_arrays.all_devices()
            return variant.lower(*_joint_values(variant, arrays, devices), joint_arrays.zero(devices))
        return variant.lower(*_values(variant, arrays))

    def variables(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], bool]:
        """The variables that a call reads or writes, without compiling it; and whether it uses tracers that are no arguments."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        signature = sign(leaves, tree, self.name)
        found = self._found.get(signature)
        if found is not None and found.fresh():
            return (*found.written, *found.read), False
        arrays = _described(list(filter(is_array, leaves)), self.settings())
        found, trace = _discovered(self.function, self.name, signature, arrays, False)
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
        return _assemble(variant, jitted(*map(values.__getitem__, variant.read), *arrays))

    def plan(self, *args: Any, **kwargs: Any) -> PlannedStep | PipelinedStep | None:
        """How the program for these arguments is sharded, without running it; None when it is not sharded by a plan."""
        return self._select(args, kwargs)[0].planned

    def memory(self, *args: Any, **kwargs: Any) -> MemoryReport:
        """What the program for these arguments is predicted to need, and what it sends between devices and hosts.

        Raises:
            SporaxNotImplementedError: it has several pipeline stages.
        """
        from sporax.runtime.planned import memory_report  # brings the planner along: only who asks waits

        variant, arrays = self._select(args, kwargs)
        if variant.planned is not None:
            return memory_report.of_plan(variant.planned)
        if variant.communicates:
            devices = joint_arrays.all_devices()
            # Traced with these values, and not run.
            return memory_report.of_ranks(
                variant.jitted, *_joint_values(variant, arrays, devices), joint_arrays.zero(devices)
            )
        return memory_report.of_one_device(variant.jitted, *_names(variant), _values(variant, arrays))

    @property
    def planned(self) -> PlannedStep | PipelinedStep | None:
        """How the program was sharded that was used last; None when there is none or it is not sharded by a plan."""
        return None if self._recent is None else self._recent.planned

    @property
    def executable(self) -> Any:
        """The compiled form of the program that was used last; None before the first call."""
        return None if self._recent is None else self._recent.executable

    def _select(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Variant, list[jax.Array]]:
        """The variant for these arguments, made now where there is none, and the arrays among them."""
        if self.needed is not None:
            raise self.needed
        leaves, tree = jax.tree.flatten((args, kwargs))
        arrays = list(filter(is_array, leaves))
        # Remembered first: a loop that changes shapes now and then still has its usual case here.
        variant = self._recent = self._variant(sign(leaves, tree, self.name), arrays)
        # Only types that hold one array can be compared without flattening.
        if variant.holders is None and not kwargs and all(type(arg) in HOLDERS for arg in args):
            variant.holders = tuple(map(type, args))
        return variant, arrays

    def _variant(self, signature: Signature, arrays: list[jax.Array]) -> _Variant:
        candidates = self._variants.setdefault(signature, [])
        # Configuration may have gone back to what it was for an older variant.
        for variant in candidates:
            if variant.fresh() and variant.own == local_ranks.places_of_own(arrays):
                return variant
        variant = self._new_variant(signature, arrays, candidates)
        candidates.append(variant)
        return variant

    def _new_variant(self, signature: Signature, arrays: list[jax.Array], candidates: list[_Variant]) -> _Variant:
        reason = self._reason(signature, candidates)
        started = time.perf_counter()
        settings = self.settings()
        variant, trace = _discovered_anywhere(self.function, self.name, signature, arrays, settings)
        # A part of the function (`shard`) asked for a plan, so everything is traced again in the global view.
        if settings is None and variant.asked is not None:
            settings = variant.asked
            variant, trace = _discovered(self.function, self.name, signature, _described(arrays, settings), False)
        if settings is None:
            local_ranks.settle((*variant.written, *variant.read), arrays)
            if first_values.TAG in variant.tags:
                first_values.agree((*variant.written, *variant.read))
            _send_away(self.function, variant, _described(arrays, None))
            if placed_calls.TAG in variant.tags:
                # Placed calls need equal values everywhere, and each process has drawn its own.
                placed_calls.agree((*variant.written, *variant.read))
            variant.jitted = _jitted(self.function, variant, self.name, arrays, trace)
        else:
            from sporax.runtime.planned.step import plan_program

            program = _pure(self.function, variant, self.name, planned=True)
            data = _described(arrays, settings)
            variant.planned = plan_program(program, variant.written, variant.read, data, settings, variant.tags)
        compilation = Compilation(reason, time.perf_counter() - started, len(variant.read), len(variant.written))
        self.compilations.append(compilation)
        _log.info("compiled %s: %s", self.name, compilation)
        return variant

    def _reason(self, signature: Signature, candidates: list[_Variant]) -> str:
        if candidates:
            return candidates[-1].stale() or "configuration changed"
        # Those without variants failed while tracing.
        compiled = [earlier for earlier, variants in self._variants.items() if variants]
        return difference(compiled[-1], signature) if compiled else "first call"


def _assemble(variant: _Variant, outputs: list[jax.Array]) -> Any:
    # No static values between the arrays, so the structure can be filled directly.
    if len(outputs) == len(variant.out_leaves):  # arrays only
        return variant.out_tree.unflatten(outputs)
    remaining = iter(outputs)
    leaves = [next(remaining) if leaf is _ARRAY else leaf for leaf in variant.out_leaves]
    return jax.tree.unflatten(variant.out_tree, leaves)


def _values(variant: _Variant, arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array]]:
    """What the compiled program takes, in local form."""
    if variant.filed:
        written, read = (
            list(map(filed_variables.handed_over, variables)) for variables in (variant.written, variant.read)
        )
        return written, read, arrays
    if variant.stacks is not None:
        return *variant.stacks.values(), arrays
    return list(map(_raw, variant.written)), list(map(_raw, variant.read)), arrays


def _names(variant: _Variant) -> tuple[list[str], list[str]]:
    """Of the variables, or stacks of them, that the compiled program takes: those that it updates, and the others."""
    if variant.stacks is not None:
        return variant.stacks.names()
    return [variable.name for variable in variant.written], [variable.name for variable in variant.read]


def _joint_values(
    variant: _Variant, arrays: list[jax.Array], devices: joint_arrays.Devices
) -> tuple[list[jax.Array], list[jax.Array], list[jax.Array]]:
    """What the compiled program takes, in joint form."""
    if variant.parts is None:
        inputs = [joint_arrays.to_joint(array, devices) for array in arrays]
    else:
        inputs = variant.parts.taken(arrays, devices)
    return list(map(_joint, variant.written)), list(map(_joint, variant.read)), inputs


def _discovered(
    function: Callable[..., Any], name: str, signature: Signature, arrays: list[Any], by_rank: bool = True
) -> tuple[_Variant, Discovery]:
    """Trace `function` abstractly: a variant that is not compiled yet, and the trace.

    Args:
        function: what is traced.
        name: of the program.
        signature: its arguments.
        arrays: those among them that are arrays, or their shapes and dtypes.
        by_rank: whether ranks may run different programs.
    """

    def call(arrays: list[Any]) -> Any:
        args, kwargs = inputs_of(signature, arrays)
        return function(*args, **kwargs)

    discovery = discover(call, arrays, by_rank)
    frame = discovery.frame
    # Marks of variables, and what the trace has named.
    marked = {ByIdentity(variable): variable for variable in frame.found if hasattr(variable, "fingerprint")}
    guards: dict[Any, frames.Guard] = {**marked, **frame.guards}
    variant = _Variant(
        signature,
        name,
        written=discovery.written,
        read=discovery.read,
        guards=tuple((guard, guard.fingerprint()) for guard in guards.values()),
        version=frames.version(),
        # With one rank an exchange is no operation.
        communicates=frame.communicates and world.has_peers(),
        tags=frame.tags,
        checks=frame.checks,
        asked=frame.view if isinstance(frame.view, PlanSettings) else None,
        requests=frame.requests,
    )
    return variant, discovery


def _discovered_anywhere(
    function: Callable[..., Any],
    name: str,
    signature: Signature,
    arrays: list[jax.Array],
    settings: PlanSettings | None,
) -> tuple[_Variant, Discovery]:
    """As `_discovered`, with whole arrays or, where it must be, with those of one of the ranks that this process acts for."""
    own = local_ranks.places_of_own(arrays)
    if not own:
        with suppress(local_ranks.PartsNeeded):
            return _discovered(function, name, signature, _described(arrays, settings), settings is None)
    variant, trace = _discovered_in_parts(function, name, signature, arrays)
    variant.own = own
    return variant, trace


def _discovered_in_parts(
    function: Callable[..., Any], name: str, signature: Signature, arrays: list[jax.Array]
) -> tuple[_Variant, Discovery]:
    """As `_discovered`, of the part of one of the ranks that this process acts for."""
    inputs = local_ranks.divided(name, arrays)
    shapes = [
        jax.ShapeDtypeStruct(local_ranks.part_shape(array), array.dtype) if is_divided else array
        for array, is_divided in zip(arrays, inputs, strict=True)
    ]
    with local_ranks.inside():
        variant, trace = _discovered(function, name, signature, shapes)
    variant.communicates = True
    variant.parts = local_ranks.parts_of(name, trace, inputs, arrays)
    return variant, trace


def _described(arrays: list[jax.Array], settings: PlanSettings | None) -> list[Any]:
    """The arrays; in the global view those that this process feeds are described by their shapes over all processes."""
    if settings is None:
        return list(arrays)
    described: list[Any] = []
    position = 0
    for array in arrays:
        if global_view.is_on_devices(array):
            described.append(array)
            continue
        steps, batch = array.shape[: settings.num_stacked], array.shape[settings.num_stacked :]
        shape = (*steps, *global_view.whole_shape(tuple(batch), position, settings.parallel))
        described.append(jax.ShapeDtypeStruct(shape, array.dtype))
        position += 1
    return described


def _jitted(function: Callable[..., Any], variant: _Variant, name: str, arrays: list[Any], trace: Discovery) -> Any:
    program = _pure(function, variant, name, planned=False)
    options: Mapping[str, Any] = {}
    # These are facts about the program and no passes.
    passes = variant.tags - {placed_calls.TAG, first_values.TAG}
    # Stacks change how variables are stored, which neither joint programs nor files support.
    if BLOCKS in passes and not variant.communicates and not variant.filed and placed_calls.TAG not in variant.tags:
        whole = trace.program()
        if whole is None:
            whole = flat(jax.make_jaxpr(program)(*_shapes(variant), arrays))
        else:
            _note_results(variant, trace.result)
        variables = (*variant.written, *variant.read)
        # Numbered as the flat program takes them: updated variables, read ones, data.
        rows = frozenset(number for number, variable in enumerate(variables) if may_be_row(variable))
        program, stacked = rewritten_with_stacks(
            whole, passes, _chooser(variant, passes), len(variant.written), len(variant.read), rows, name
        )
        variant.stacks = arguments_of(stacked, variant.written, variant.read)
        options = compiler_options(passes)
    elif passes:
        filed = filed_variables.filed_arrays((*variant.written, *variant.read)) if variant.filed else {}
        files = filed_variables.files_of(passes)
        new_file = None if files is None else files.new
        program = rewritten(program, passes, _chooser(variant, passes), filed, new_file)
        options = compiler_options(passes)
    if variant.communicates:
        if variant.parts is not None:
            program = variant.parts.program(program)
        # Position 0 is the list of updated variables, whose buffers the results take over.
        return joint_arrays.compile_jointly(
            program, joint_arrays.all_devices(), donate=(0,), options=options, is_step=True
        )
    return jax.jit(program, donate_argnums=0, compiler_options=dict(options))


def _send_away(function: Callable[..., Any], variant: _Variant, arrays: list[Any]) -> None:
    """Bring the variables of a step to where its settings want them: host memory, or files.

    Raises:
        SporaxNotImplementedError: the step exchanges data with other ranks and should use files.
    """
    variables = (*variant.written, *variant.read)
    with_files = any(tag.startswith("files ") for tag in variant.tags)
    if with_files and variant.communicates:
        raise SporaxNotImplementedError(
            f"For '{variant.name}', 'disk' is offered in 'set_offload_context' for steps of one device, but the step exchanges "
            "data with other ranks. Use 'cpu' there."
        )

    def peak_bytes() -> int | None:
        # The model does not know how ranks' own exchanges use memory.
        if variant.communicates:
            return None
        from sporax.runtime.planned.recompute_auto import (
            peak_of_one_device,  # brings the planner along: only such steps wait
        )

        program = _pure(function, variant, variant.name, planned=False)
        return peak_of_one_device(program, variant.written, variant.read, _shapes(variant), arrays, variant.tags)

    bring_to_host(variables, variant.tags, peak_bytes)
    filed_variables.bring_to_files(variables, variant.tags, peak_bytes)
    variant.filed = with_files and any(filed_variables.place_of(variable) is not None for variable in variables)


def _shapes(variant: _Variant) -> list[list[Any]]:
    """What the variables that are updated, and those that are only read, look like to a trace."""
    return [[_shape(variable.raw) for variable in part] for part in (variant.written, variant.read)]


def _shape(array: jax.Array) -> Any:
    # A trace knows the memory of an array alone; a struct with its sharding would be taken for one on the device.
    return array if is_on_host(array) else jax.ShapeDtypeStruct(array.shape, array.dtype)


def _chooser(variant: _Variant, passes: frozenset[str]) -> Callable[[ClosedJaxpr], Chosen] | None:
    """What chooses what is computed again; None where nothing is to be chosen.

    Raises:
        SporaxNotImplementedError: the step exchanges data with other ranks.
    """
    if AUTO not in passes:
        return None
    if variant.communicates:
        raise SporaxNotImplementedError(
            f"For '{variant.name}', recompute='auto' is offered in steps of one device and in the parallel modes "
            "'semi_auto_parallel' and 'auto_parallel', but the step exchanges data with other ranks. Mark Cells with "
            "'recompute()' there."
        )
    from sporax.runtime.planned.recompute_auto import (
        chooser_for_one_device,  # brings the planner along: only such steps wait
    )

    return chooser_for_one_device(variant.written, variant.read, passes)


def _pure(function: Callable[..., Any], variant: _Variant, name: str, planned: bool) -> Callable[..., Any]:
    """`function` as a pure one of the values of its variables and its arrays."""

    def program(
        written: list[jax.Array], read: list[jax.Array], arrays: list[jax.Array]
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        variables = (*variant.written, *variant.read)
        # A step that a plan shards keeps everything on devices, or says so in its plan.
        values = dict(zip(variables, fetched(variables, (*written, *read), not planned), strict=True))
        with frames.Frame(values, compiled=True, planned=planned) as frame:
            frame.requests.update(variant.requests)
            data = placed_calls.of_first_worker(arrays) if placed_calls.TAG in variant.tags else arrays
            args, kwargs = inputs_of(variant.signature, data)
            result = function(*args, **kwargs)
        leaves = _note_results(variant, result)
        owned = {ByIdentity(value) for value in (*written, *read, *frame.values.values())}
        outputs = [
            # A variable's buffer is given away at the next step, so no output may share it.
            jnp.array(leaf, copy=True) if ByIdentity(leaf) in owned else leaf
            for leaf in leaves
            if isinstance(leaf, jax.Array)
        ]
        updated = [frame.values[variable] for variable in variant.written]
        return returned(variant.written, updated, not planned), outputs

    program.__name__ = program.__qualname__ = name
    return program


def _note_results(variant: _Variant, result: Any) -> list[Any]:
    """Note the structure of a function's result; gives its leaves."""
    leaves, variant.out_tree = jax.tree.flatten(result)
    variant.out_leaves = tuple(_ARRAY if isinstance(leaf, jax.Array) else leaf for leaf in leaves)
    return leaves
