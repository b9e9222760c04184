"""The headline of a plan: its time, throughput and memory, from the graph, the plan and what a cost model predicts."""

from __future__ import annotations

import math
from dataclasses import replace

from msgspec import Struct

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import MARK, OperatorGraph, Role
from sporax.ir.hardware import HardwareProfile
from sporax.planner import SearchResult
from sporax.planner.cost.model import CostModel, Roofline, multiplied
from sporax.planner.cost.symbolic import unit_of
from sporax.planner.loops.inline import inline_loops
from sporax.planner.rules import local_flops, rule_for
from sporax.planner.search.space.operator_rules import is_light
from sporax.report.view.plan_view import Headline

_SIMULATED = (
    "the profile 'cpu' is of devices that share the cores of one machine: figures compare plans for these devices with each "
    "other; more of them do not make a step faster. --hardware h100 plans for real ones."
)
_NO_DEVICE = DeviceMatrix(())


class Costs(Struct, frozen=True):
    """What is known of a plan's costs, for its headline.

    Attributes:
        seconds: of a step, in the unit of the model; None where no model is known.
        peak_bytes: predicted memory of one device.
        model: the cost model.
        search: how the plan was found.
    """

    seconds: float | None
    peak_bytes: int
    model: CostModel | None
    search: SearchResult | None


def headline(graph: OperatorGraph, num_devices: int, costs: Costs) -> Headline:
    """The headline of a plan for `graph` on `num_devices`."""
    model, search = costs.model, costs.search
    unit = "s" if model is None else unit_of(model)
    samples, tokens = _samples(graph)
    view = Headline(seconds=costs.seconds, unit=unit, samples=samples, tokens=tokens, peak_bytes=costs.peak_bytes)
    if search is not None:
        limit = None if search.options is None else search.options.memory_bytes
        compiled = search.statistics.get("compiled_bytes")
        view = replace(view, bound=search.bound_seconds, limit_bytes=limit)
        view = replace(view, compiled_bytes=compiled) if isinstance(compiled, int) else view
    return _on_hardware(view, graph, num_devices, model.profile) if isinstance(model, Roofline) else view


def pipeline_headline(micro: OperatorGraph, num_micro: int, num_devices: int, costs: Costs) -> Headline:
    """The headline of a pipeline.

    Args:
        micro: the graph of one micro batch, with the whole batch among its inputs.
        num_micro: micro batches of a step.
        num_devices: of all stages together.
        costs: of the whole step; the memory is that of the fullest stage.
    """
    view = headline(micro, num_devices, costs)
    return replace(view, mfu=view.mfu and view.mfu * num_micro)


def utilization(graph: OperatorGraph, num_devices: int, model: CostModel) -> tuple[float, str] | None:
    """Model FLOPs utilization of a step of `graph` that takes one second, and the name of the hardware profile; None where the
    model knows no rates. For other times divide by their seconds.
    """
    if not isinstance(model, Roofline):
        return None
    return ideal_seconds(graph, model.profile) / num_devices, model.profile.name


def _on_hardware(view: Headline, graph: OperatorGraph, num_devices: int, profile: HardwareProfile) -> Headline:
    """The headline with what the devices say."""
    rate = 1 / view.seconds if view.seconds else None
    return replace(
        view,
        hardware=profile.name,
        samples_per_second=rate and view.samples and view.samples * rate,
        tokens_per_second=rate and view.tokens and view.tokens * rate,
        mfu=rate and ideal_seconds(graph, profile) * rate / num_devices,
        limit_bytes=profile.memory_bytes if view.limit_bytes is None else view.limit_bytes,
        remark=_SIMULATED if profile.name == "cpu" and num_devices > 1 else "",
    )


def _samples(graph: OperatorGraph) -> tuple[int | None, int | None]:
    """Samples of a step: the first dimension of its data; and tokens: all elements of a matrix of whole numbers."""
    # In a function that keeps no variables, weights and samples are both data.
    if not any(argument.role is Role.PARAMETER for argument in graph.inputs):
        return None, None
    data = [graph.tensors[argument.tensor] for argument in graph.inputs if argument.role is Role.DATA]
    samples = next((spec.shape[0] for spec in data if spec.shape), None)
    tokens = next((math.prod(spec.shape) for spec in data if len(spec.shape) == 2 and "int" in spec.dtype), None)
    return samples, tokens


def ideal_seconds(graph: OperatorGraph, profile: HardwareProfile) -> float:
    """Time of all products and convolutions on one device that reaches its nominal rate."""
    total = 0.0
    for operator in inline_loops(graph).graph.operators:
        if operator.name != MARK and not operator.bodies and operator.operands and not is_light(operator):
            rule = rule_for(operator.operation)
            flops = local_flops(rule, ((),) * len(rule.factors), _NO_DEVICE)
            total += operator.times * flops / profile.nominal_flops(*multiplied(operator.operation))
    return total
