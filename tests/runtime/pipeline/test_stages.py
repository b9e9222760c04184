"""Stages chosen by the planner: the chain of Cells is cut where the slowest stage is quickest."""

import jax
import jax.numpy as jnp
import pytest
from small_pipelines import opened, training

from operator_marks import operator_mark
from sporax.base.errors import SporaxRuntimeError
from sporax.ir.hardware import load_profile
from sporax.ir.marks import Side
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.lowering.marks.numbers import next_number
from sporax.lowering.pipeline.flat import Phase
from sporax.runtime.pipeline.stages import chosen_stages

PROFILE = load_profile("cpu")


def in_cells(work):
    """The loss of a chain of Cells; each multiplies as often as `work` says. Cotangents pass the mark of their Cell."""

    def loss_of(w0, w1, x, y):
        for name, times in work.items():
            with jax.named_scope(name):
                (x,) = apply_mark([x], operator_mark("MatMul", next_number(), Side.IN))
                for _ in range(times):
                    x = jnp.tanh(x @ w0)
                (x,) = apply_mark([x], operator_mark("MatMul", next_number(), Side.OUT))
        with jax.named_scope("last"):
            (x,) = apply_mark([x], operator_mark("MatMul", next_number(), Side.IN))
            return ((x @ w1 - y) ** 2).sum()

    return loss_of


def stages(settings, work):
    """The flat step, what chooses stages, the reason, and the stage of every Cell."""
    micro = opened(training(in_cells(work)))
    stage_of, reason = chosen_stages(micro, settings(auto_pipeline=True), PROFILE)
    operators = zip(micro.step.graph.operators, micro.phases, strict=True)
    cells = {
        operator.path.rpartition(".")[2]: stage_of(operator)[0]
        for operator, phase in operators
        if phase is Phase.FORWARD and operator.name == "dot_general"
    }
    return micro, stage_of, reason, cells


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ({"a": 1, "b": 1, "c": 1}, {"a": 0, "b": 0, "c": 1, "last": 1}),
        ({"a": 6, "b": 1, "c": 1}, {"a": 0, "b": 1, "c": 1, "last": 1}),
        ({"a": 1, "b": 1, "c": 6}, {"a": 0, "b": 0, "c": 1, "last": 1}),
    ],
)
def test_stages_have_equal_work_as_far_as_cells_allow(settings, work, expected):
    _, _, reason, actual = stages(settings, work)
    assert actual == expected
    assert reason.startswith("Stages chosen by the planner: they start with ")
    assert "no other division of the chain of 4 blocks has a quicker slowest stage" in reason


def test_operators_of_the_update_follow_what_they_read(settings):
    micro, stage_of, *_ = stages(settings, {"a": 1, "b": 1})
    update = [
        operator
        for operator, phase in zip(micro.step.graph.operators, micro.phases, strict=True)
        if phase is Phase.UPDATE
    ]
    assert update
    assert {stage_of(operator) for operator in update} == {None}


def test_a_chain_with_too_few_cells_is_refused(settings):
    def loss_of(w0, w1, x, y):
        with jax.named_scope("only"):
            return ((x @ w0 @ w1 - y) ** 2).sum()

    with pytest.raises(SporaxRuntimeError, match="auto_pipeline"):
        chosen_stages(opened(training(loss_of)), settings(auto_pipeline=True), PROFILE)
