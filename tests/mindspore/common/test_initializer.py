"""Initializers: distributions, structure, seeds, laziness."""

import math

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore.common import _threefry as threefry, initializer as I
from sporax.mindspore.common.initializer import initializer

SHAPE = (200, 300)  # fan in 300, fan out 200


@pytest.fixture(autouse=True)
def _seed():
    ms.set_seed(11)


def draw(init, shape=SHAPE, dtype=ms.float32):
    return initializer(init, shape, dtype).init_data().asnumpy()


# what, standard deviation, largest absolute value (None: unbounded)
DISTRIBUTIONS = [
    (I.Normal(0.3), 0.3, None),
    (I.Uniform(0.6), 0.6 / math.sqrt(3), 0.6),
    (I.XavierUniform(2), 2 * math.sqrt(2 / 500), 2 * math.sqrt(6 / 500)),
    (I.XavierNormal(2), 2 * math.sqrt(2 / 500), None),
    (I.HeUniform(), math.sqrt(2 / 300), math.sqrt(6 / 300)),
    (I.HeUniform(math.sqrt(5)), math.sqrt(1 / 900), 1 / math.sqrt(300)),
    (I.HeNormal(mode="fan_out", nonlinearity="relu"), math.sqrt(2 / 200), None),
    (I.HeNormal(nonlinearity="tanh"), 5 / 3 / math.sqrt(300), None),
    (I.HeNormal(nonlinearity="sigmoid"), 1 / math.sqrt(300), None),
    (I.VarianceScaling(2.0), math.sqrt(2 / 300), 2 * math.sqrt(2 / 300) / 0.8796),
    (I.VarianceScaling(1.0, "fan_out", "untruncated_normal"), math.sqrt(1 / 200), None),
    (I.VarianceScaling(1.0, "fan_avg", "uniform"), math.sqrt(1 / 250), math.sqrt(3 / 250)),
    (I.TruncatedNormal(1.0, 0.0, -1.0, 1.0), 0.5396, 1.0),
    ("normal", 0.01, None),
    ("uniform", 0.07 / math.sqrt(3), 0.07),
    ("truncatednormal", 0.01, None),
    ("xavier_uniform", math.sqrt(2 / 500), math.sqrt(6 / 500)),
    ("he_normal", math.sqrt(2 / 300), None),
]


@pytest.mark.parametrize(("init", "deviation", "bound"), DISTRIBUTIONS, ids=lambda value: type(value).__name__)
def test_initial_values_have_the_spread_of_their_distribution(init, deviation, bound):
    values = draw(init)
    assert values.std() == pytest.approx(deviation, rel=0.02)
    assert values.mean() == pytest.approx(0, abs=0.02 * deviation)
    if bound is not None:
        assert 0.98 * bound < np.abs(values).max() <= bound * 1.0001


def test_truncation_bounds_are_absolute():
    values = draw(I.TruncatedNormal(1.0, 2.0, -1.0, 0.5))
    assert (values.min() >= -1, values.max() <= 0.5) == (True, True)
    assert draw(I.Normal(0.5, 3.0)).mean() == pytest.approx(3, abs=0.01)


@pytest.mark.parametrize("lowest", [True, False])
def test_far_bounds_are_not_drawn(monkeypatch, lowest):
    """Bounds of 200 deviations were drawn once in 2**24 elements, where the bits of an element are all 0 or all 1."""
    bits = 0 if lowest else 2**32 - 1
    monkeypatch.setattr(threefry, "_bits", lambda key, places: np.full(places.size, bits, np.uint32))
    assert 0.04 < abs(draw(I.TruncatedNormal(0.01))).max() < 0.056


def test_a_cpu_makes_large_arrays_without_a_program(monkeypatch):
    small = draw(I.HeNormal(), (8, 8))
    ms.set_seed(11)
    monkeypatch.setattr(I, "ON_HOST", 1)
    monkeypatch.setattr(I, "_maker", lambda *_: pytest.fail("a program is compiled"))
    np.testing.assert_array_equal(draw(I.HeNormal(), (8, 8)), small)


def test_constant_initializers_fill_with_one_value():
    for init, value in (("zeros", 0), ("ones", 1), (I.Constant(2.5), 2.5), (3, 3), (I.One(), 1), (I.Zero(), 0)):
        np.testing.assert_array_equal(draw(init, (2, 3)), np.full((2, 3), value, "f"))
    assert draw("ones", (2,), ms.float16).dtype == np.float16


def test_identity_orthogonal_and_sparse_matrices():
    np.testing.assert_array_equal(draw("identity", (2, 3)), np.eye(2, 3))
    rows = draw(I.Orthogonal(2.0), (3, 2, 4)).reshape(3, 8)
    np.testing.assert_allclose(rows @ rows.T, 4 * np.eye(3), atol=1e-5)
    columns = draw(I.Orthogonal(), (5, 3))
    np.testing.assert_allclose(columns.T @ columns, np.eye(3), atol=1e-5)
    sparse = draw(I.Sparse(0.25, 1.0), (8, 50))
    np.testing.assert_array_equal((sparse == 0).sum(0), np.full(50, 2))


def test_dirac_passes_its_input_through():
    kernel = draw(I.Dirac(2), (4, 2, 3, 3))
    expected = np.zeros((4, 2, 3, 3))
    for out, channel in ((0, 0), (1, 1), (2, 0), (3, 1)):
        expected[out, channel, 1, 1] = 1
    np.testing.assert_array_equal(kernel, expected)


def test_the_seed_fixes_initial_values():
    first, second = draw("normal", (3,)), draw("normal", (3,))
    ms.set_seed(11)
    np.testing.assert_array_equal(first, draw("normal", (3,)))
    assert not np.array_equal(first, second)


def test_values_do_not_depend_on_when_they_are_made():
    lazy = [initializer("normal", (3,)) for _ in range(2)]
    late = [lazy[1].init_data().asnumpy(), lazy[0].init_data().asnumpy()][::-1]
    ms.set_seed(11)
    np.testing.assert_array_equal(late, [draw("normal", (3,)) for _ in range(2)])


def test_values_that_are_whole_on_every_device_take_one_transfer(monkeypatch):
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    put, transfers = jax.device_put, []

    def watched(arrays, *arguments, **options):
        transfers.extend([1] if len(arrays) else [])
        return put(arrays, *arguments, **options)

    monkeypatch.setattr(jax, "device_put", watched)
    tensor = initializer(I.Normal(0.3), SHAPE, ms.float32)
    tensor.make_at(jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    assert len(transfers) == 1
    ms.set_seed(11)
    expected = draw(I.Normal(0.3))
    assert len(tensor.raw.addressable_shards) == 8
    assert all(np.array_equal(shard.data, expected) for shard in tensor.raw.addressable_shards)


def test_from_values():
    tensor = ms.Tensor([[1, 2]])
    np.testing.assert_array_equal(initializer(tensor).asnumpy(), [[1, 2]])
    assert initializer(np.ones(2), (2,), ms.float16).dtype == ms.float16


def test_initializers_written_for_mindspore_fill_arrays():
    class Ramp(I.Initializer):
        def _initialize(self, arr):
            arr[:] = np.arange(arr.size).reshape(arr.shape)

    np.testing.assert_array_equal(draw(Ramp(), (2, 2)), [[0, 1], [2, 3]])
    array = np.zeros((2, 2), np.float32)
    I.One()(array)
    np.testing.assert_array_equal(array, np.ones((2, 2)))


ERRORS = [
    (lambda: initializer("foo", (2,)), ValueError, "no initializer is called 'foo'"),
    (lambda: initializer([1.0], (1,)), TypeError, "but got list"),
    (lambda: initializer("ones"), ValueError, "'shape' must be given"),
    (lambda: initializer("ones", (2, 0)), ValueError, r"must be positive, but got \(2, 0\)"),
    (lambda: initializer("ones", (2.0,)), TypeError, "must hold ints, but got float"),
    (lambda: initializer(ms.Tensor([1.0]), (2,)), ValueError, r"\(1,\) and \(2,\)"),
    (lambda: draw("xavier_uniform", (3,)), ValueError, r"at least 2 dimensions, but got shape \(3,\)"),
    (lambda: draw("identity", (3,)), ValueError, "2 dimensions"),
    (lambda: draw(I.Orthogonal(), (3,)), ValueError, "at least 2 dimensions"),
    (lambda: draw(I.Sparse(0.1), (3,)), ValueError, "2 dimensions"),
    (lambda: draw(I.Dirac(3), (4, 2, 3)), ValueError, r"dim 0 \(4\) must be divisible by 'groups' \(3\)"),
    (lambda: I.Dirac(0), TypeError, "positive int, but got 0"),
    (lambda: I.Sparse(2.0), ValueError, r"in \[0, 1\], but got 2.0"),
    (lambda: I.HeNormal(mode="fan"), ValueError, "'fan_in' or 'fan_out', but got 'fan'"),
    (lambda: I.VarianceScaling(0), ValueError, "must be positive, but got 0"),
    (lambda: I.VarianceScaling(1.0, "fan"), ValueError, "but got 'fan'"),
    (lambda: I.VarianceScaling(1.0, "fan_in", "cauchy"), ValueError, "but got 'cauchy'"),
    (lambda: I.TruncatedNormal(a=1.0, b=1.0), ValueError, "'a' must be smaller than 'b'"),
    (lambda: draw(I.HeNormal(nonlinearity="swish")), ValueError, "not known: 'swish'"),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_arguments_that_do_not_fit_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_helpers_that_scripts_import():
    """Values of MindSpore 2.10."""
    from sporax.mindspore.common import initializer as module

    assert module._calculate_fan_in_and_fan_out((3, 4, 5, 6)) == (120, 90)
    assert (
        module._calculate_correct_fan((3, 4, 5), "fan_in"),
        module._calculate_correct_fan((3, 4, 5), "FAN_OUT"),
    ) == (20, 15)
    assert module._calculate_gain("leaky_relu") == pytest.approx(1.4141428569978354)
    assert module._calculate_gain("leaky_relu", 0.2) == pytest.approx(1.3867504905630728)
    assert module._assignment(np.zeros(2), 3).tolist() == [3, 3]
    assert module._assignment(np.zeros(()), 3) == 3
    with pytest.raises(ValueError, match="fan_in"):
        module._calculate_correct_fan((3, 4), "both")
