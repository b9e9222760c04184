"""Ids and rows that the host adds to gradients of whole tables: marked, so that every device has all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from small_pipelines import MICRO, RATE, assert_same, opened, run_flat

from operator_marks import operator_mark
from sporax.ir.graph import MICRO_LOOP, Role
from sporax.ir.marks import GradientMark, OperatorMark, Side
from sporax.lowering.marks.host_transfer import place_of_work
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.lowering.passes.host.host_rows import with_replicated_rows

TABLE = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
IDS = np.random.default_rng(1).integers(0, 16, (8, 3)).astype(np.int32)
SETTINGS = {"arguments": (TABLE, IDS), "roles": ((Role.PARAMETER, "table"), (Role.DATA, "ids")), "num_updated": 1}


def training(on_host=True, strategy=((1, 1), (4, 1))):
    """A lookup whose strategy is `strategy`, and an update of the whole table."""

    def loss(table, ids):
        table, ids = apply_mark((table, ids), operator_mark("EmbeddingLookup", 7, Side.IN, strategy=strategy))
        with place_of_work(on_host):
            return (jnp.take(table, ids, 0, mode="fill", fill_value=0) ** 2).sum()

    def summed(table, ids):
        def add(total, row):
            return total + loss(table, row), None

        with jax.named_scope(MICRO_LOOP):
            return lax.scan(add, jnp.float32(0), ids.reshape(MICRO, -1, 3))[0]

    def step(table, ids):
        total, gradient = jax.value_and_grad(summed)(table, ids)
        (gradient,) = apply_mark([gradient], GradientMark(("table",), (0,)))
        return [table - RATE * gradient, total]

    return step


def whole_rows(micro):
    marks = [operator.mark for operator in micro.step.graph.operators]
    return [mark for mark in marks if isinstance(mark, OperatorMark) and mark.operator == "RowUpdate"]


def test_what_the_host_adds_up_is_whole_and_values_are_the_same():
    micro = opened(training(), **SETTINGS)
    changed = with_replicated_rows(micro)
    (mark,) = whole_rows(changed)
    assert {cut for cuts in mark.in_strategy for cut in cuts} == {1}
    (place,) = [number for number, operator in enumerate(changed.step.graph.operators) if operator.mark is mark]
    addition = changed.step.graph.operators[place + 1]
    assert addition.name == "scatter-add"
    assert addition.operands[1:] == changed.step.graph.operators[place].results
    assert changed.phases[place] is changed.phases[place + 1]
    assert_same(run_flat(changed, (TABLE, IDS)), [np.asarray(result) for result in training()(TABLE, IDS)])


@pytest.mark.parametrize(
    "settings", [{"on_host": False}, {"strategy": ((4, 1), (1, 1))}], ids=["on devices", "a table in slices"]
)
def test_other_gradients_stay_as_they_are(settings):
    micro = opened(training(**settings), **SETTINGS)
    assert with_replicated_rows(micro) is micro


def test_tables_that_optimizer_parallelism_shards_stay_as_they_are():
    micro = opened(training(), **SETTINGS)
    assert with_replicated_rows(micro, {"other"}) is micro
    assert len(whole_rows(with_replicated_rows(micro, {"table"}))) == 1
