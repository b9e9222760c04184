"""Calls that one worker computes for all: who computes, who reads zeros, and what placements are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore.ops._core import placed_calls
from sporax.runtime.ranks import collectives
from sporax.runtime.state import frames


class Variable:
    def __init__(self, raw):
        self.raw, self.name = raw, "weight"


def test_only_the_owner_computes_the_call_and_its_derivative(traced):
    def loss(x):
        return placed_calls.run_placed("Net", 2, lambda x: jnp.tanh(x).sum(), (x,), {})

    for rank in (2, 3):
        closed, frame = traced(jax.grad(loss), jnp.ones(4), rank=rank)
        assert ("tanh" in str(closed)) is (rank == 2)
        assert str(closed).count("psum") == 2  # the result, and the cotangent
        assert collectives.PLACED in frame.tags
        assert frame.communicates


def test_results_and_written_variables_are_the_owners_everywhere(on_ranks):
    variable = Variable(jnp.zeros(2))

    def call(x, *, scale):
        frames.write(variable, x * scale)
        return {"sum": x.sum(), "count": 3}

    def program(x):
        result, updates = frames.isolate(lambda: placed_calls.run_placed("Net", 4, call, (x,), {"scale": 10}))
        return result["sum"], result["count"], updates[variable]

    x = np.zeros((8, 2), np.float32)
    x[4] = [1, 2]  # ranks run the owner's program here, and zeros stand for what is not computed
    total, _, written = on_ranks(program, x, rank=4)
    np.testing.assert_array_equal(total, [3] * 8)
    np.testing.assert_array_equal(written, [[10, 20]] * 8)


def test_a_single_worker_computes_everything_itself(join):
    join(size=1)
    assert placed_calls.run_placed("Net", 0, lambda x, y: x - y, (5,), {"y": 3}) == 2
    arrays = [jnp.ones(2)]
    assert collectives.of_first_worker(arrays) is arrays


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (8, "'rank_id' must be < 8, the workers, but got 8"),
        (1, "the mode must be GRAPH_MODE for an operator that is placed on worker 1, but it is PYNATIVE_MODE"),
    ],
)
def test_workers_that_are_not_there_and_calls_outside_of_steps_are_refused(join, owner, words):
    join()
    with pytest.raises(SporaxRuntimeError, match=f"^For 'Dense', {words}"):
        placed_calls.run_placed("Dense", owner, jnp.sin, (jnp.ones(2),), {})


def test_inside_a_placed_cell_there_is_one_worker_only(traced):
    def inner(owner):
        return lambda x: placed_calls.run_placed("Dense", owner, jnp.sin, (x,), {})

    closed, _ = traced(lambda x: placed_calls.run_placed("Net", 1, inner(1), (x,), {}), jnp.ones(2), rank=1)
    assert str(closed).count("psum") == 1
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'Dense', the placement must be that of the Cell around it, worker 1, but it is worker 0\.",
    ):
        traced(lambda x: placed_calls.run_placed("Net", 1, inner(0), (x,), {}), jnp.ones(2), rank=1)


@pytest.mark.parametrize(
    ("role", "rank", "mode", "error", "words"),
    [
        ("MS_SCHED", 0, "stand_alone", SporaxValueError, "'role' must be 'MS_WORKER', but got 'MS_SCHED'"),
        ("MS_WORKER", True, "stand_alone", SporaxTypeError, "'rank_id' must be an int, but got bool"),
        ("MS_WORKER", -1, "stand_alone", SporaxValueError, "'rank_id' must be >= 0, but got -1"),
        (
            "MS_WORKER",
            0,
            "data_parallel",
            SporaxRuntimeError,
            "place must be used in the parallel mode 'stand_alone', but the mode is 'data_parallel'",
        ),
    ],
)
def test_arguments_of_place_are_checked(role, rank, mode, error, words):
    with pytest.raises(error, match=rf"^For 'Dense', {words}\.$"):
        placed_calls.check_place("Dense", role, rank, mode)
    placed_calls.check_place("Dense", "MS_WORKER", 0, "stand_alone")
