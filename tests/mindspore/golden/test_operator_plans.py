"""Strategies, slices of weights and collectives of semi-automatic plans, against those of MindSpore's compiler.

`operator_plans.json` was recorded by `tools/golden/make_operator_plans.py` from the nets of `operator_recipes`. What differs
is listed in `plan_deviations`, with the reason, and checked from both sides.
"""

import json
import math
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import plan_deviations as deviations
import pytest
from operator_recipes import NUM_DEVICES, RECIPES, REFUSED, step_of

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import MARK
from sporax.ir.layout import Layout
from sporax.ir.marks import OperatorMark, Side
from sporax.ir.placement import Placement
from sporax.mindspore import context
from sporax.mindspore.communication import init
from sporax.planner.communication.transfers import schedule

RECORDED = json.loads((Path(__file__).parent / "operator_plans.json").read_text())["plans"]
KINDS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_to_all": "AlltoAll",
    "permute": "Permute",
}
OWN_ENTRIES = {"OneHot", "Tile"}
"""Their strategies are about results, so the cuts of their inputs are no strategies."""


@pytest.fixture(autouse=True)
def _untouched():
    mode = context.get_context("mode")
    context.set_context(mode=context.GRAPH_MODE)
    init()
    yield
    context.set_context(mode=mode)
    context.set_world(1, 0)
    context.reset_auto_parallel_context()


def planned(recipe):
    context.reset_auto_parallel_context()
    context.set_auto_parallel_context(device_num=NUM_DEVICES, parallel_mode="semi_auto_parallel", **recipe.settings)
    step = step_of(ms, recipe)
    step.set_train()
    return step.program.plan(ms.Tensor(np.zeros(recipe.whole_shape, recipe.dtype)))


# One recipe has groups of 3 of the 8 ranks, in which weights stay whole.
pytestmark = pytest.mark.filterwarnings("ignore:.*'optimizer_weight_shard_size' must divide the 8 devices of a stage")


@cache
def plan_of(name):
    return planned(RECIPES[name])


# --------------------------------------------------------------------------------------------------- strategies, layouts


def strategies(step):
    """By kind of operator the cuts of all its calls, in ascending order."""
    actual = {}
    for operator, cut in zip(step.graph.operators, step.plan.operators, strict=True):
        mark = operator.operation.params["mark"] if operator.name == MARK else None
        if (
            isinstance(mark, OperatorMark)
            and mark.side is Side.IN
            and not mark.dims.follows
            and mark.operator not in OWN_ENTRIES
        ):
            places = [
                step.plan.reshardings[tensor].placement if tensor in step.plan.reshardings else placement
                for tensor, placement in zip(operator.results, cut.operands, strict=True)
            ]
            actual.setdefault(mark.operator, []).append([list(item.parts(step.plan.mesh)) for item in places])
    return {name: sorted(members) for name, members in actual.items()}


@pytest.mark.parametrize("name", RECIPES)
def test_strategies_are_those_of_mindspore(name):
    recorded = {key: value for key, value in RECORDED[name]["strategies"].items() if key not in OWN_ENTRIES}
    assert strategies(plan_of(name)) == recorded


def slices(matrix, tensor_map, shape):
    """What every rank holds, from a device matrix and a map that counts its axes from the right."""
    shardings = tuple((len(matrix) - 1 - axis,) if axis >= 0 else () for axis in tensor_map)
    layout = Layout(DeviceMatrix(tuple(matrix)), shardings)
    placement = Placement(layout.shardings)
    return [placement.block(shape, layout.device_matrix, rank) for rank in range(NUM_DEVICES)]


@pytest.mark.parametrize("name", RECIPES)
def test_every_rank_uses_the_same_slices_of_weights(name):
    step = plan_of(name)
    mesh, recorded = step.plan.mesh, RECORDED[name]["layouts"]
    weights = {item.name: item.tensor for item in step.graph.inputs if item.name.startswith("links")}
    assert weights.keys() == recorded.keys()
    kept = {item.tensor: placement for item, placement in zip(step.graph.inputs, step.plan.inputs, strict=True)}
    for weight, tensor in weights.items():
        shape, layout = step.graph.tensors[tensor].shape, recorded[weight]
        resharding = step.plan.reshardings.get(tensor)
        used = kept[tensor] if resharding is None else resharding.placement
        assert [used.block(shape, mesh, rank) for rank in range(NUM_DEVICES)] == slices(
            layout["matrix"], layout["map"], shape
        )


# ----------------------------------------------------------------------------------------------------------- collectives


def collectives(step):
    """For the forward pass, the backward pass and the weights: (kind, members of rank 0's group, elements that enter)."""
    graph, mesh = step.graph, step.plan.mesh
    actual = {"forward": [], "backward": [], "weights": []}
    for together in schedule(graph, step.plan):
        for transfer in together:
            reason = transfer.resharding.reason if transfer.resharding else ""
            backward = graph.operators[transfer.operator].backward
            part = "weights" if reason.startswith(("gradient of", "weight")) else "backward" if backward else "forward"
            size = graph.tensors[transfer.tensor].itemsize
            for move in transfer.redistribution.moves:
                if move.collective:
                    group = tuple(rank for rank in mesh.ranks if _with_rank_0(mesh, rank, move.axes))
                    actual[part].append((KINDS[move.collective], group, move.local_bytes // size))
    return actual


def _with_rank_0(mesh, rank, axes):
    return all(axis in axes or place == 0 for axis, place in enumerate(mesh.coordinates(rank)))


def recorded_collectives(name):
    """The same of MindSpore, which was recorded with the shapes of results."""
    return {part: list(map(_entering, RECORDED[name][part])) for part in ("forward", "backward", "weights")}


def _entering(collective):
    kind, ranks, shape = collective
    elements = math.prod(shape)
    factor = {"AllGather": 1 / len(ranks), "ReduceScatter": len(ranks)}.get(kind, 1)
    return kind, tuple(ranks), int(elements * factor)


def groups(members):
    return Counter((kind, ranks) for kind, ranks, _ in members)


def wire(members):
    """Elements that one rank sends, in rings."""
    total = 0.0
    for kind, ranks, elements in members:
        others = len(ranks) - 1
        share = others / len(ranks)
        factor = {"AllReduce": 2 * share, "AllGather": others, "Permute": 1.0}.get(kind, share)
        total += factor * elements
    return total


@pytest.mark.parametrize("name", RECIPES)
def test_the_forward_pass_has_the_same_collectives(name):
    ours, theirs = collectives(plan_of(name))["forward"], recorded_collectives(name)["forward"]
    assert (groups(ours) != groups(theirs)) == (name in deviations.names(deviations.FORWARD))


@pytest.mark.parametrize("name", RECIPES)
def test_gradients_and_weights_have_the_same_collectives(name):
    ours, theirs = collectives(plan_of(name))["weights"], recorded_collectives(name)["weights"]
    assert (sorted(ours) != sorted(theirs)) == (name in deviations.names(deviations.WEIGHTS))


@pytest.mark.parametrize("name", RECIPES)
def test_the_backward_pass_has_the_same_collectives(name):
    ours, theirs = collectives(plan_of(name))["backward"], recorded_collectives(name)["backward"]
    assert (groups(ours) != groups(theirs)) == (name in deviations.names(deviations.BACKWARD))


@pytest.mark.parametrize("name", RECIPES)
def test_no_step_sends_more(name):
    ours, theirs = collectives(plan_of(name)), recorded_collectives(name)
    more = sum(map(wire, ours.values())) > sum(map(wire, theirs.values()))
    assert more == (name in deviations.names(deviations.SENDS_MORE))


# ---------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("name", REFUSED)
def test_what_mindspore_refuses_is_refused(name):
    assert RECORDED[name]["error"][0] == "RuntimeError"
    with pytest.raises(SporaxRuntimeError, match=REFUSED[name].links[0].name):
        planned(REFUSED[name])
