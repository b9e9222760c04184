"""Variants of a program: found by an abstract trace for the shapes of a call, and compiled or planned (`Variant`).

A function of variables as a pure program of arrays, rewritten by the passes that its settings request, and compiled.

The program is ``(updated variables, variables that are only read, inputs) -> (updated variables, outputs)``. What a frame
(`sporax.runtime.state.frames`) collects while the function is traced becomes arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxNotImplementedError
from sporax.base.identity import ByIdentity
from sporax.ir.config.plan_settings import PlanSettings
from sporax.lowering import marks as trace_marks, passes, passes as step_passes
from sporax.lowering.passes.pass_tags import AUTO, BLOCKS, compiler_options
from sporax.lowering.rewriter import flat
from sporax.runtime import planned as planned_steps, world
from sporax.runtime.devices import global_view
from sporax.runtime.program.discovery import Discovery, discover
from sporax.runtime.program.variant import Signature, Variant, inputs_of, note_results
from sporax.runtime.ranks import collectives, initial_broadcast, joint_arrays, local_ranks
from sporax.runtime.state import frames
from sporax.runtime.storage import block_files
from sporax.runtime.storage.block_files import Filed
from sporax.runtime.storage.host_memory import bring_to_host, moved
from sporax.runtime.storage.variables import InMemory, VariableStorage, may_be_row, stacks_of

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

    from sporax.lowering.passes.recompute.recompute_blocks import Chosen


def pure(function: Callable[..., Any], variant: Variant, name: str, planned: bool) -> Callable[..., Any]:
    """`function` as a pure one of the values of its variables and its arrays."""

    def program(
        written: list[jax.Array], read: list[jax.Array], arrays: list[jax.Array]
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        variables = (*variant.written, *variant.read)
        # A step that a plan shards keeps everything on devices, or says so in its plan.
        values = dict(
            zip(variables, moved(variables, (*written, *read), trace_marks.to_device, not planned), strict=True)
        )
        with frames.Frame(values, compiled=True, planned=planned) as frame:
            frame.requests.update(variant.requests)
            data = collectives.of_first_worker(arrays) if collectives.PLACED in variant.tags else arrays
            args, kwargs = inputs_of(variant.signature, data)
            result = function(*args, **kwargs)
        leaves = note_results(variant, result)
        owned = {ByIdentity(value) for value in (*written, *read, *frame.values.values())}
        outputs = [
            # A variable's buffer is given away at the next step, so no output may share it.
            jnp.array(leaf, copy=True) if ByIdentity(leaf) in owned else leaf
            for leaf in leaves
            if isinstance(leaf, jax.Array)
        ]
        updated = [frame.values[variable] for variable in variant.written]
        return moved(variant.written, updated, trace_marks.to_host, not planned), outputs

    program.__name__ = program.__qualname__ = name
    return program


def jit_program(
    function: Callable[..., Any], variant: Variant, name: str, arrays: list[Any], trace: Discovery
) -> tuple[Any, VariableStorage]:
    """The pure program of a variant, rewritten and handed to `jax.jit`; and how it takes its variables."""
    program = pure(function, variant, name, planned=False)
    # These are facts about the program and no passes.
    passes = variant.tags - {collectives.PLACED, initial_broadcast.TAG}
    options = compiler_options(passes) if passes else {}
    storage = _storage(variant)
    # Stacks change how variables are stored, which neither joint programs nor files support.
    if BLOCKS in passes and not variant.communicates and not variant.filed and collectives.PLACED not in variant.tags:
        program, storage = _with_stacks(program, variant, passes, name, arrays, trace)
    elif passes:
        filed = block_files.filed_arrays((*variant.written, *variant.read)) if variant.filed else {}
        files = block_files.files_of(passes)
        new_file = None if files is None else files.new
        program = step_passes.rewritten(program, passes, _chooser(variant, passes), filed, new_file)
    if not variant.communicates:
        return jax.jit(program, donate_argnums=0, compiler_options=dict(options)), storage
    if variant.parts is not None:
        program = variant.parts.program(program)
    # Position 0 is the list of updated variables, whose buffers the results take over.
    jitted = joint_arrays.compile_jointly(
        program, joint_arrays.all_devices(), donate=(0,), options=options, is_step=True
    )
    return jitted, storage


def _storage(variant: Variant) -> VariableStorage:
    if variant.communicates:
        return InMemory(variant.written, variant.read, "joint")
    return (Filed if variant.filed else InMemory)(variant.written, variant.read)


def _with_stacks(
    program: Callable[..., Any],
    variant: Variant,
    passes: frozenset[str],
    name: str,
    arrays: list[Any],
    trace: Discovery,
) -> tuple[Any, VariableStorage]:
    """The program with repeated blocks as loops, and the variables that it takes as rows of stacks."""
    flattened = trace.program()
    if flattened is None:
        flattened = flat(jax.make_jaxpr(program)(*_shapes(variant), arrays))
    else:
        note_results(variant, trace.result)
    variables = (*variant.written, *variant.read)
    # Numbered as the flat program takes them: updated variables, read ones, data.
    rows = frozenset(number for number, variable in enumerate(variables) if may_be_row(variable))
    looped, stacked = step_passes.rewritten_with_stacks(
        flattened, passes, _chooser(variant, passes), len(variant.written), len(variant.read), rows, name
    )
    return looped, stacks_of(stacked, variant.written, variant.read)


def send_away(function: Callable[..., Any], variant: Variant, arrays: list[Any]) -> None:
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
        program = pure(function, variant, variant.name, planned=False)
        return planned_steps.peak_of_one_device(
            program, variant.written, variant.read, _shapes(variant), arrays, variant.tags
        )

    bring_to_host(variables, variant.tags, peak_bytes)
    block_files.bring_to_files(variables, variant.tags, peak_bytes)
    variant.filed = with_files and any(block_files.place_of(variable) is not None for variable in variables)


def _shapes(variant: Variant) -> list[list[Any]]:
    """What the variables that are updated, and those that are only read, look like to a trace."""
    return [[_shape(variable.raw) for variable in part] for part in (variant.written, variant.read)]


def _shape(array: jax.Array) -> Any:
    # A trace knows the memory of an array alone; a struct with its sharding would be taken for one on the device.
    return array if trace_marks.is_on_host(array) else jax.ShapeDtypeStruct(array.shape, array.dtype)


def _chooser(variant: Variant, passes: frozenset[str]) -> Callable[[ClosedJaxpr], Chosen] | None:
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
    return planned_steps.chooser_for_one_device(variant.written, variant.read, passes)


def new_variant(
    function: Callable[..., Any],
    name: str,
    signature: Signature,
    arrays: list[jax.Array],
    settings: PlanSettings | None,
) -> Variant:
    """Trace a function and make its program; it is compiled at the first call.

    Args:
        arrays: those among them that are arrays.
        settings: of the global view, if a plan should shard the program.
    """
    variant, trace = _discovered_anywhere(function, name, signature, arrays, settings)
    # A part of the function (`shard`) requested a plan, so everything is traced again in the global view.
    if settings is None and variant.requested is not None:
        settings = variant.requested
        variant, trace = discovered(function, name, signature, described(arrays, settings), planned=True)
    if settings is None:
        _prepare_variables(variant, arrays)
        send_away(function, variant, described(arrays, None))
        if collectives.PLACED in variant.tags:
            # Placed calls need equal values everywhere, and each process has drawn its own.
            collectives.agree((*variant.written, *variant.read))
        variant.jitted, variant.storage = jit_program(function, variant, name, arrays, trace)
    else:
        program = pure(function, variant, name, planned=True)
        data = described(arrays, settings)
        # The first trace again, where it can be had in this form.
        traced = trace.program(passes.seen_into)
        if traced is not None:
            note_results(variant, trace.result)
        variant.planned = planned_steps.plan_program(
            program, variant.written, variant.read, data, settings, variant.tags, traced
        )
        variant.storage = variant.planned.stored(variant.written, variant.read)
    return variant


def _prepare_variables(variant: Variant, arrays: list[jax.Array]) -> None:
    """Bring variables to one form, and to equal values where ranks must begin with such."""
    local_ranks.settle((*variant.written, *variant.read), arrays)
    if initial_broadcast.TAG in variant.tags:
        initial_broadcast.agree((*variant.written, *variant.read))


def discovered(
    function: Callable[..., Any], name: str, signature: Signature, arrays: list[Any], planned: bool = False
) -> tuple[Variant, Discovery]:
    """Trace `function` abstractly: a variant that is not compiled yet, and the trace.

    Args:
        arrays: those among them that are arrays, or their shapes and dtypes.
        planned: whether a plan shards the program; if not, ranks may run different programs.
    """

    def call(arrays: list[Any]) -> Any:
        args, kwargs = inputs_of(signature, arrays)
        return function(*args, **kwargs)

    discovery = discover(call, arrays, by_rank=not planned, planned=planned)
    frame = discovery.frame
    # Marks of variables, and what the trace has named.
    marked = {ByIdentity(variable): variable for variable in frame.found if hasattr(variable, "fingerprint")}
    guards: dict[Any, frames.Guard] = {**marked, **frame.guards}
    variant = Variant(
        signature,
        name,
        written=discovery.written,
        read=discovery.read,
        guards=tuple((guard, guard.fingerprint()) for guard in guards.values()),
        version=frames.version(),
        # With one rank an exchange is no operation.
        communicates=bool(frame.communicates) and world.has_peers(),
        peers=frame.communicates,
        tags=frame.tags,
        checks=frame.checks,
        requested=frame.view if isinstance(frame.view, PlanSettings) else None,
        requests=frame.requests,
        effects=frame.effects,
    )
    return variant, discovery


def _discovered_anywhere(
    function: Callable[..., Any],
    name: str,
    signature: Signature,
    arrays: list[jax.Array],
    settings: PlanSettings | None,
) -> tuple[Variant, Discovery]:
    """As `discovered`, with whole arrays or, where it must be, with those of one of the ranks that this process acts for.

    A network that holds the size of one rank's batch fails with whole arrays before it needs gradients.
    """
    own, weightless, failed = local_ranks.positions_of_own(arrays), False, None
    if not own:
        try:
            return discovered(function, name, signature, described(arrays, settings), settings is not None)
        except local_ranks.PartsNeeded as stopped:
            weightless = stopped.reads_nothing
        except Exception as error:
            if settings is not None or world.num_ranks_here() == 1:
                raise
            failed = error
    try:
        variant, trace, divided = _discovered_in_parts(function, name, signature, arrays, weightless)
    except Exception:
        if failed is None:
            raise
        raise failed from None
    # What is refused here is a program that computes with parts, so it goes before the failure with whole arrays.
    variant.parts = local_ranks.parts_of(name, trace, divided, arrays)
    variant.own = own
    return variant, trace


def _discovered_in_parts(
    function: Callable[..., Any], name: str, signature: Signature, arrays: list[jax.Array], weightless: bool = False
) -> tuple[Variant, Discovery, tuple[bool, ...]]:
    """As `discovered`, of one of the ranks that this process acts for, of its part or, where `weightless`, whole.

    The third result says which arrays are divided.
    """
    inputs = (False,) * len(arrays) if weightless else local_ranks.divided(name, arrays)
    shapes = [
        jax.ShapeDtypeStruct(local_ranks.part_shape(array), array.dtype) if is_divided else array
        for array, is_divided in zip(arrays, inputs, strict=True)
    ]
    with local_ranks.inside():
        variant, trace = discovered(function, name, signature, shapes)
    if weightless and trace.frame.found:  # after the first exchange
        return _discovered_in_parts(function, name, signature, arrays)
    variant.communicates = True
    return variant, trace, inputs


def described(arrays: list[jax.Array], settings: PlanSettings | None) -> list[Any]:
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
        shape = (*steps, *global_view.global_shape(tuple(batch), position, settings.parallel))
        described.append(jax.ShapeDtypeStruct(shape, array.dtype))
        position += 1
    return described
