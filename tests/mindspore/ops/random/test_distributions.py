import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, ops

N = 20000


@pytest.fixture(autouse=True)
def _seeded():
    ms.set_seed(3)


# what is drawn, its mean, its standard deviation
MOMENTS = {
    "StandardNormal": (lambda: ops.StandardNormal()((N,)), 0, 1),
    "StandardLaplace": (lambda: ops.StandardLaplace()((N,)), 0, 2**0.5),
    "laplace": (lambda: ops.laplace((N,), 1.0, 2.0), 1, 8**0.5),
    "UniformReal": (lambda: ops.UniformReal()((N,)), 0.5, 12**-0.5),
    "UniformInt": (lambda: ops.UniformInt()((N,), 0, 4), 1.5, 1.25**0.5),
    "TruncatedNormal": (lambda: ops.TruncatedNormal()((N,)), 0, 0.8796),
    "Gamma": (lambda: ops.Gamma()((N,), Tensor(3.0), Tensor(2.0)), 1.5, 0.75**0.5),
    "gamma": (lambda: ops.gamma((N,), Tensor(3.0), Tensor(1.0)), 3, 3**0.5),
    "RandomGamma": (lambda: ops.RandomGamma()((N,), Tensor(3.0)), 3, 3**0.5),
    "random_gamma": (lambda: ops.random_gamma((N,), Tensor(4.0)), 4, 2),
    "Poisson": (lambda: ops.Poisson()((N,), Tensor(4.0)), 4, 2),
    "poisson": (lambda: ops.poisson((N,), 4.0), 4, 2),
    "RandomPoisson": (lambda: ops.RandomPoisson()((N,), Tensor(4.0)), 4, 2),
    "random_poisson": (lambda: ops.random_poisson((N,), Tensor(4.0)), 4, 2),
    "bernoulli": (lambda: ops.bernoulli(ops.zeros((N,)), 0.3), 0.3, 0.21**0.5),
    "rand_like": (lambda: ops.rand_like(ops.zeros((N,))), 0.5, 12**-0.5),
    "mint.randn_like": (lambda: mint.randn_like(ops.zeros((N,))), 0, 1),
    "randint_like": (lambda: ops.randint_like(ops.zeros((N,)), 0, 4), 1.5, 1.25**0.5),
    "multinomial": (lambda: ops.multinomial(Tensor([0.25, 0.0, 0.75]), N), 1.5, 0.75**0.5),
    "Multinomial": (lambda: ops.Multinomial()(Tensor([[1.0, 0.0, 3.0]]), N), 1.5, 0.75**0.5),
    "random_categorical": (lambda: ops.random_categorical(Tensor([[0.0, -99.0, 1.0986123]]), N), 1.5, 0.75**0.5),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_draws_have_the_moments_of_their_distribution(name):
    draw, mean, deviation = MOMENTS[name]
    values = draw().asnumpy().astype(np.float64)
    assert values.size == N
    assert abs(values.mean() - mean) < 5 * deviation / N**0.5
    assert abs(values.std() / deviation - 1) < 0.05


def test_shapes_and_dtypes():
    assert ops.Gamma()((2,), Tensor([1.0, 2.0, 3.0]), Tensor(1.0)).shape == (2, 3)
    assert ops.poisson((2,), Tensor([[1.0]])).shape == (2, 1, 1)
    assert ops.poisson((2,), 1.0).dtype == ms.int32
    assert ops.random_poisson((2,), Tensor(1.0)).dtype == ms.float32
    assert ops.TruncatedNormal(ms.float64)((2,)).dtype == ms.float64
    assert ops.multinomial(Tensor([[1.0, 1.0]]), 5).shape == (1, 5)
    assert mint.multinomial(Tensor([1.0, 1.0]), 2).dtype == ms.int64
    assert ops.randint_like(Tensor([1.0]), 0, 3).dtype == ms.float32
    assert ops.StandardNormal()(Tensor([2, 3])).shape == (2, 3)
    assert abs(ops.TruncatedNormal()((1000,)).asnumpy()).max() <= 2


def test_a_seed_fixes_a_stream_of_draws():
    """A seeded operator draws on; a seeded function repeats itself; the global seed restarts everything else."""
    first, second = ops.StandardNormal(7), ops.StandardNormal(7)
    one, two = first((3,)).tolist(), first((3,)).tolist()
    assert one != two and second((3,)).tolist() == one
    assert ops.gamma((3,), 1.0, 1.0, seed=5).tolist() == ops.gamma((3,), 1.0, 1.0, seed=5).tolist()
    ms.set_seed(1)
    before = ops.UniformReal()((3,)).tolist()
    assert ops.UniformReal()((3,)).tolist() != before
    ms.set_seed(1)
    assert ops.UniformReal()((3,)).tolist() == before


def test_compiled_draws_differ():
    step = ms.jit(lambda: ops.standard_laplace((3,)))
    assert step().tolist() != step().tolist()


def test_choices_without_replacement():
    draws = ops.multinomial(Tensor(np.tile([1.0, 2.0, 3.0], (200, 1))), 3, False).asnumpy()
    assert (np.sort(draws, 1) == [0, 1, 2]).all()
    assert sorted(ops.randperm(6).tolist()) == list(range(6))
    assert sorted(ops.randperm(Tensor([6])).tolist()) == list(range(6))
    assert mint.randperm(3, dtype=ms.int32).dtype == ms.int32
    rows = Tensor([[1, 1], [2, 2], [3, 3]])
    for shuffled in (ops.shuffle(rows), ops.RandomShuffle()(rows)):
        assert sorted(shuffled.tolist()) == rows.tolist()


def test_random_positions_of_true_elements():
    mask = np.random.default_rng(0).random((6, 5)) < 0.4
    places, real = (item.asnumpy() for item in ops.RandomChoiceWithMask(8)(Tensor(mask)))
    assert real.all() and mask[tuple(places.T)].all() and len({tuple(row) for row in places}) == 8
    places, real = (item.asnumpy() for item in ops.choice_with_mask(Tensor([True, False, True]), 5))
    assert real.tolist() == [True, True, False, False, False] and sorted(places[:2, 0]) == [0, 2]
    assert not places[2:].any()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_channel_dropout(dims):
    x = Tensor(np.ones((50, 20, *[2] * dims), np.float32))
    rows = getattr(ops, f"dropout{dims}d")(x, 0.25).asnumpy().reshape(1000, -1)
    assert ((rows == rows[:, :1]).all(1)).all()
    assert set(np.unique(rows)) == {0.0, np.float32(1 / 0.75)}
    assert abs((rows[:, 0] == 0).mean() - 0.25) < 0.07
    assert getattr(ops, f"dropout{dims}d")(x, 0.25, False) is x


def test_channel_dropout_classes():
    result, mask = ops.Dropout2D(0.75)(Tensor(np.ones((10, 20, 2, 2), np.float32)))
    assert mask.dtype == ms.bool_
    np.testing.assert_allclose(result.asnumpy(), mask.asnumpy() / 0.75, rtol=1e-6)
    gradient = ms.grad(lambda x: ops.Dropout3D()(x)[0])(Tensor(np.ones((2, 2, 1, 1, 1), np.float32)))
    assert set(np.unique(gradient.asnumpy())) <= {0.0, 2.0}


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ops.StandardNormal(1.5), TypeError, "'seed' must be an int"),
        (lambda: ops.StandardNormal()((1.5,)), TypeError, "tuple of ints"),
        (lambda: ops.multinomial(Tensor([1.0, 2.0]), 3, False), ValueError, "at most 2"),
        (lambda: ops.bernoulli(Tensor([1.0]), 1.5), ValueError, r"\[0, 1\]"),
        (lambda: ops.dropout2d(Tensor(np.ones((2, 2, 2, 2))), 1.5), ValueError, r"\[0, 1\]"),
        (lambda: ops.RandomChoiceWithMask()(Tensor([1])), TypeError, r"Tensor\[Bool\]"),
        (lambda: ops.randperm(-1), ValueError, ">= 0"),
        (lambda: mint.randperm(3, generator=1), TypeError, "'generator' must be None"),
        (lambda: ops.randint_like(Tensor([1]), 3, 3), ValueError, "below 'high'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
