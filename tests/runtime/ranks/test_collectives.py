"""Collectives inside compiled programs: results, derivatives of any order, and where they are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.runtime.ranks import exchanges
from sporax.runtime.ranks.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    Barrier,
    Broadcast,
    Gather,
    Reduce,
    ReduceScatter,
    Scatter,
    run,
)
from sporax.runtime.ranks.groups import Group
from sporax.runtime.state import frames

EVERYONE = Group("all", tuple(range(8)))
ALONE = Group("alone", (0,))
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(8, 16)).astype(np.float32)
WEIGHTS = {count: DRAW.normal(size=(8, count)).astype(np.float32) for count in (2, 16, 128)}


def swapped(stacked):
    """What an all-to-all does with rows of equal pieces."""
    return stacked.reshape(8, 8, -1).transpose(1, 0, 2).reshape(8, -1)


def slopes(on_ranks, collective, count, rank=0):
    """Derivative of the sum over ranks of ``weights * result`` with respect to each rank's array."""

    def program(x, weights):
        return jax.grad(lambda x: (weights * run(collective, x)).sum())(x)

    return on_ranks(program, X, WEIGHTS[count], rank=rank)


LINEAR = {
    "AllReduce": (AllReduce(EVERYONE), 16, lambda w: np.broadcast_to(w.sum(0), (8, 16))),
    "AllGather": (AllGather(EVERYONE), 128, lambda w: w.sum(0).reshape(8, 16)),
    "ReduceScatter": (ReduceScatter(EVERYONE), 2, lambda w: np.broadcast_to(w.reshape(16), (8, 16))),
    "AllToAll": (AllToAll(EVERYONE), 16, swapped),
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_derivative_is_the_exchange_of_the_cotangents(on_ranks, name):
    collective, count, expected = LINEAR[name]
    np.testing.assert_allclose(slopes(on_ranks, collective, count), expected(WEIGHTS[count]), rtol=1e-4, atol=1e-5)


def test_the_derivative_of_a_maximum_goes_to_the_ranks_that_have_it(on_ranks):
    expected = np.where(X.max(0) == X, WEIGHTS[16].sum(0), 0)
    np.testing.assert_allclose(slopes(on_ranks, AllReduce(EVERYONE, "max"), 16), expected, rtol=1e-4, atol=1e-5)


def test_the_product_of_floats_has_a_derivative_also_at_zero(on_ranks):
    x = np.full((8, 2), 2.0, np.float32)
    x[3, 0] = 0
    got = on_ranks(jax.grad(lambda x: run(AllReduce(EVERYONE, "prod"), x).sum()), x)
    expected = np.full((8, 2), 8 * 2.0**7, np.float32)
    expected[:, 0] = 0
    expected[3, 0] = 8 * 2.0**7
    np.testing.assert_allclose(got, expected)


def test_derivatives_of_derivatives_are_exchanges_again(on_ranks):
    def squares(x):
        return (run(AllReduce(EVERYONE), x) ** 2).sum()

    second = on_ranks(jax.grad(lambda x: jax.grad(squares)(x).sum()), X)
    np.testing.assert_allclose(second, 2.0 * 8 * 8)  # d/dx of sum(2 * 8 * sum(x)), seen from all eight ranks


def test_collectives_for_one_member_leave_one_zero_with_the_others(on_ranks):
    def program(x):
        return run(Reduce(EVERYONE, dest=2), x), run(Gather(EVERYONE, dest=2), x)

    total, gathered = on_ranks(program, X, rank=2)
    np.testing.assert_allclose(total[2], X.sum(0), rtol=1e-5)
    np.testing.assert_array_equal(gathered[2], X.reshape(-1))
    for result in on_ranks(program, X, rank=5):
        np.testing.assert_array_equal(result, np.zeros((8, 1)))


def test_pieces_and_whole_arrays_come_from_their_source(on_ranks):
    only = np.where(np.arange(8)[:, None] == 6, X, 0)
    pieces, (everywhere,) = on_ranks(
        lambda x: (run(Scatter(EVERYONE, src=6), x), run(Broadcast(EVERYONE, root=6), x)), only, rank=6
    )
    np.testing.assert_array_equal(pieces, X[6].reshape(8, 2))
    np.testing.assert_array_equal(everywhere, np.tile(X[6], (8, 1)))


def test_a_group_of_one_member_exchanges_nothing():
    array = jnp.arange(4)
    assert run(AllReduce(ALONE), array) is array
    assert run(AllGather(ALONE), array) is array
    assert int(run(Barrier(ALONE))) == 0


def test_the_program_of_collectives_knows_which_ranks_it_needs(traced):
    x = jnp.arange(8)
    assert traced(lambda x: run(AllReduce(ALONE), x), x)[1].communicates == set()
    assert traced(lambda x: run(AllReduce(EVERYONE), x), x)[1].communicates == set(range(8))
    both = AllReduce(Group("ends", (0, 7))), AllReduce(Group("three", (0, 1, 3)))
    assert traced(lambda x: [run(each, x) for each in both], x)[1].communicates == {0, 1, 3, 7}


@pytest.mark.parametrize(
    ("collective", "shape", "error", "words"),
    [
        (
            ReduceScatter(EVERYONE),
            (9,),
            SporaxValueError,
            r"For 'ReduceScatter', dim 0 must be divisible by the 8 ranks",
        ),
        (Scatter(EVERYONE), (7,), SporaxValueError, r"For 'CollectiveScatter', dim 0 must be divisible by the 8 ranks"),
        (AllToAll(EVERYONE, 2), (8, 8), SporaxValueError, r"For 'AlltoAll', dim 2 must exist, but .* shape \(8, 8\)"),
        (
            AllReduce(Group("odd", (1, 3))),
            (8,),
            SporaxRuntimeError,
            r"For 'AllReduce', this rank must be a member of group",
        ),
    ],
)
def test_arrays_and_ranks_that_do_not_fit_are_refused(join, collective, shape, error, words):
    join()
    with frames.Frame(compiled=True), pytest.raises(error, match=f"^{words}"):
        run(collective, jnp.zeros(shape))


def test_only_sums_are_scattered_with_a_derivative(on_ranks):
    with pytest.raises(
        SporaxTypeError, match=r"^For 'ReduceScatter', only 'sum' has a derivative, but 'op' is 'max'\."
    ):
        on_ranks(jax.grad(lambda x: run(ReduceScatter(EVERYONE, "max"), x).sum()), X)


def test_exchanges_are_refused_where_not_all_ranks_come_by(join):
    join()
    with (
        exchanges.refused("a call that is placed on worker 1"),
        pytest.raises(
            SporaxRuntimeError,
            match=r"^For 'a call that is placed on worker 1', communication operators must stand outside of it\.$",
        ),
    ):
        run(AllReduce(ALONE), jnp.arange(4))
    with exchanges.forward_mode_refused(), pytest.raises(exchanges.ReverseModeNeeded):
        run(AllReduce(ALONE), jnp.arange(4))
    exchanges.check_mode()


def test_a_collective_inside_a_function_that_jax_compiles_itself_is_an_error(join):
    join()
    with pytest.raises(SporaxRuntimeError, match=r"^For 'AllReduce', a collective must be run step by step"):
        jax.jit(lambda x: run(AllReduce(EVERYONE), x))(jnp.arange(4))
