"""Variants of a program: found by an abstract trace for the shapes of a call, and compiled or planned (`Variant`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from sporax.base.identity import ByIdentity
from sporax.ir.config.plan_settings import PlanSettings
from sporax.lowering import passes
from sporax.runtime import planned as planned_steps
from sporax.runtime import world
from sporax.runtime.devices import global_view
from sporax.runtime.program.arguments import note_results
from sporax.runtime.program.discovery import Discovery, discover
from sporax.runtime.program.pure_program import jit_program, pure, send_away
from sporax.runtime.program.signature import Signature, inputs_of
from sporax.runtime.program.variant import Variant
from sporax.runtime.ranks import first_values, local_ranks, placed_calls
from sporax.runtime.state import frames


def new_variant(
    function: Callable[..., Any],
    name: str,
    signature: Signature,
    arrays: list[jax.Array],
    settings: PlanSettings | None,
) -> Variant:
    """Trace a function and make its program; it is compiled at the first call.

    Args:
        function: the user's.
        name: of the program.
        signature: its arguments.
        arrays: those among them that are arrays.
        settings: of the global view, if a plan should shard the program.
    """
    variant, trace = _discovered_anywhere(function, name, signature, arrays, settings)
    # A part of the function (`shard`) asked for a plan, so everything is traced again in the global view.
    if settings is None and variant.asked is not None:
        settings = variant.asked
        variant, trace = discovered(function, name, signature, described(arrays, settings), planned=True)
    if settings is None:
        _prepare_variables(variant, arrays)
        send_away(function, variant, described(arrays, None))
        if placed_calls.TAG in variant.tags:
            # Placed calls need equal values everywhere, and each process has drawn its own.
            placed_calls.agree((*variant.written, *variant.read))
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
    if first_values.TAG in variant.tags:
        first_values.agree((*variant.written, *variant.read))


def discovered(
    function: Callable[..., Any], name: str, signature: Signature, arrays: list[Any], planned: bool = False
) -> tuple[Variant, Discovery]:
    """Trace `function` abstractly: a variant that is not compiled yet, and the trace.

    Args:
        function: what is traced.
        name: of the program.
        signature: its arguments.
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
) -> tuple[Variant, Discovery]:
    """As `discovered`, with whole arrays or, where it must be, with those of one of the ranks that this process acts for.

    A network that holds the size of one rank's batch fails with whole arrays before it asks for gradients.
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
        variant, trace = _discovered_in_parts(function, name, signature, arrays, weightless)
    except Exception:
        if failed is None:
            raise
        raise failed from None
    variant.own = own
    return variant, trace


def _discovered_in_parts(
    function: Callable[..., Any], name: str, signature: Signature, arrays: list[jax.Array], weightless: bool = False
) -> tuple[Variant, Discovery]:
    """As `discovered`, of one of the ranks that this process acts for, of its part or, where `weightless`, whole."""
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
    variant.parts = local_ranks.parts_of(name, trace, inputs, arrays)
    return variant, trace


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
