"""From a pure function to a planned step: traced, taken through the list of passes, announced.

`runtime.program.program` imports this module only for steps that need a plan: the searches bring scipy along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from sporax.base.progress import activity, reported
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.graph import Role
from sporax.report.plan_warnings import plan_warnings
from sporax.report.questions import PlannedGraph
from sporax.runtime.devices.global_view import Argument
from sporax.runtime.pipeline.pipelined_step import PipelinedStep
from sporax.runtime.planned.step import PlannedStep
from sporax.runtime.planned.step_passes import STEP_PASSES, StepState, announce, run_passes
from sporax.runtime.process.defects import report_internal_errors
from sporax.runtime.session import SESSION


def plan_program(
    program: Callable[..., Any],
    written: Sequence[Any],
    read: Sequence[Any],
    data: Sequence[Any],
    settings: PlanSettings,
    tags: frozenset[str] = frozenset(),
    traced: ClosedJaxpr | None = None,
) -> PlannedStep | PipelinedStep:
    """Plan a pure function ``(written, read, data) -> (written, outputs)`` of variables' values and arrays.

    Args:
        data: the arrays that are on the devices already; for the others their shapes and dtypes, over all processes.
        traced: the function as a program of all these arrays one after another, where a trace has been made already.
    """
    first_read, first_data = len(written), len(written) + len(read)

    def flat(*values: jax.Array) -> list[jax.Array]:
        updated, outputs = program(
            list(values[:first_read]), list(values[first_read:first_data]), list(values[first_data:])
        )
        return [*updated, *outputs]

    flat.__name__ = program.__name__
    arguments = [
        *map(_of_variable, (*written, *read)),
        *(Argument(Role.DATA, f"input {number}", array) for number, array in enumerate(data)),
    ]
    return plan_step(flat, arguments, len(written), settings, tags, traced)


def _of_variable(variable: Any) -> Argument:
    role = Role.STATE if getattr(variable, "requires_grad", None) is None else Role.PARAMETER
    unmade = getattr(variable, "unmade", None)
    return Argument(
        role,
        variable.name,
        variable.raw if unmade is None else unmade,
        shardable=getattr(variable, "parallel_optimizer", True),
        from_values=not getattr(variable, "by_initializer", True),
        trainable=bool(getattr(variable, "requires_grad", False)),
        on_host=bool(getattr(variable, "on_host", False)),
    )


def plan_step(
    function: Callable[..., Any],
    arguments: Sequence[Argument],
    num_updated: int,
    settings: PlanSettings,
    tags: frozenset[str] = frozenset(),
    traced: ClosedJaxpr | None = None,
) -> PlannedStep | PipelinedStep:
    """Trace, plan and lower a step.

    Args:
        function: takes the arguments one after another, gives a list of arrays, the new values of the updated ones first.
        arguments: what they are, with whole shapes.
        num_updated: how many of them are updated in place.
        traced: the function as a program of the arguments, where a trace has been made already.
    """
    name = getattr(function, "__name__", "step")
    # Shapes and dtypes only: arrays that are on a mesh already would leave their shardings in the program.
    structs = [jax.ShapeDtypeStruct(argument.array.shape, argument.array.dtype) for argument in arguments]
    with reported(speaks=jax.process_index() == 0), activity("planning a step"):
        jaxpr = jax.make_jaxpr(function)(*structs) if traced is None else traced
        state = StepState(
            name=name, jaxpr=jaxpr, arguments=tuple(arguments), num_updated=num_updated, settings=settings, tags=tags
        )
        with report_internal_errors("planning", name, settings):
            planned = run_passes(STEP_PASSES, state).planned
    assert isinstance(planned, PlannedStep | PipelinedStep)
    if isinstance(planned, PipelinedStep):
        announce(replace(planned, remarks=SESSION.remarks), planned.warnings())
    else:
        graph, plan, model = planned.graph, planned.plan, planned.model
        announce(PlannedGraph(graph, plan, planned.search, model, SESSION.remarks), plan_warnings(graph, plan, model))
    return planned
