import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, mint

F = mint.nn.functional


def numbers(*shape):
    return Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def test_shapes_and_dtypes_of_random_functions():
    ms.set_seed(0)
    assert mint.rand(2, 3).shape == mint.rand((2, 3)).shape == mint.randn(2, 3).shape == (2, 3)
    assert mint.rand(3, dtype=ms.float16).dtype == ms.float16
    like = numbers(4)
    for drawn in (
        mint.rand_like(like),
        mint.randn_like(like),
        mint.randint_like(like, 5),
        mint.bernoulli(like.abs() / 9),
    ):
        assert drawn.shape == (4,)
        assert drawn.dtype == ms.float32
    assert mint.randint_like(like, 1, 5, dtype=ms.int32).dtype == ms.int32
    assert mint.randint(5, (2,)).dtype == mint.randperm(5).dtype == mint.multinomial(like.abs(), 2).dtype == ms.int64
    assert sorted(mint.randperm(6).tolist()) == list(range(6))
    assert sorted(mint.multinomial(mint.ones(4), 4).tolist()) == [0, 1, 2, 3]


def test_ranges_and_moments_of_random_functions():
    ms.set_seed(0)
    draws = mint.randint(2, 5, (1000,)).asnumpy()
    assert set(draws.tolist()) == {2, 3, 4}
    assert set(mint.randint(3, (300,)).tolist()) == {0, 1, 2}
    uniform = mint.rand(4000).asnumpy()
    assert 0 <= uniform.min()
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.03
    normal = mint.normal(3.0, 0.5, (4000,)).asnumpy()
    assert abs(normal.mean() - 3) < 0.05
    assert abs(normal.std() - 0.5) < 0.05
    around = mint.normal(Tensor([0.0, 100.0]), Tensor([1.0, 0.0]))
    assert around.shape == (2,)
    assert around.tolist()[1] == 100
    assert mint.bernoulli(Tensor([0.0, 1.0])).tolist() == [0, 1]


def test_random_functions_follow_the_seed():
    def draw():
        ms.set_seed(7)
        return mint.randn(3).tolist(), mint.randperm(9).tolist(), F.dropout(mint.ones(9)).tolist()

    assert draw() == draw()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mint.rand(2, generator=1), SporaxTypeError, "'generator' must be None"),
        (lambda: mint.randperm(2, generator=1), SporaxTypeError, "'generator' must be None"),
        (lambda: mint.randn(2, device="GPU"), SporaxNotImplementedError, "'device' must be None"),
        (lambda: mint.rand_like(mint.ones(2), device="GPU"), SporaxNotImplementedError, "'device' must be None"),
        (lambda: mint.empty(2, pin_memory=True), SporaxNotImplementedError, "pin_memory"),
        (lambda: mint.randint(3), SporaxTypeError, "but got 1"),
        (lambda: mint.randint(3, 3, (2,)), SporaxValueError, "'low' must be below 'high'"),
        (lambda: mint.randint_like(mint.ones(2)), SporaxTypeError, "but got 1"),
        (lambda: mint.normal(), SporaxTypeError, "neither"),
        (lambda: mint.normal(Tensor([1.0]), 1.0, (2,)), SporaxTypeError, "both"),
        (lambda: mint.full((2,), "a"), SporaxTypeError, "'fill_value' must be a number"),
        (lambda: mint.linspace(0, 1, -1), SporaxValueError, "'steps'"),
        (lambda: mint.arange(1, 2, 0), SporaxValueError, "'step'"),
        (lambda: mint.max(mint.ones(2), keepdim=True), SporaxTypeError, "'keepdim' needs a 'dim'"),
        (lambda: mint.max(mint.ones(2), 0, other=mint.ones(2)), SporaxTypeError, "'other' stands alone"),
        (lambda: mint.max(mint.ones(2), 3), SporaxValueError, "3"),
        (lambda: F.one_hot(mint.ones(2)), SporaxTypeError, "integers"),
        (lambda: F.one_hot(mint.arange(3), 0), SporaxValueError, "'num_classes'"),
        (lambda: F.one_hot(mint.zeros(0, dtype=ms.int64)), SporaxValueError, "'num_classes'"),
        (lambda: F.layer_norm(mint.ones((2, 3)), (2,)), SporaxValueError, "must end with"),
        (lambda: F.layer_norm(mint.ones((2, 3)), (3,), mint.ones(2)), SporaxValueError, "'weight' must have shape"),
        (lambda: F.batch_norm(mint.ones((2, 3)), None, None), SporaxTypeError, "unless 'training'"),
        (lambda: F.batch_norm(mint.ones(3), None, None, training=True), SporaxValueError, "at least 2 dimensions"),
        (lambda: F.dropout(mint.ones(3), 1.5), SporaxValueError, "1.5"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_in_place_forms_write_to_their_input():
    for function, expected in (
        (lambda a: F.relu(a, inplace=True), [0, 2]),
        (lambda a: F.relu6(a, True), [0, 2]),
        (lambda a: F.hardtanh(a, -0.5, 1.0, True), [-0.5, 1]),
        (lambda a: F.threshold(a, 0.0, 9.0, True), [9, 2]),
        (lambda a: F.elu(a, 0.0, True), [0, 2]),
        (lambda a: F.silu(a * 0, True), [0, 0]),
        (lambda a: F.dropout(a, 1.0, True, True), [0, 0]),
        (F.relu_, [0, 2]),
        (lambda a: F.threshold_(a, 0.0, 9.0), [9, 2]),
        (lambda a: mint.addr_(a.reshape((1, 2)), Tensor([2.0]), Tensor([1.0, 3.0]), 0).reshape((2,)), [2, 6]),
    ):
        value = Tensor([-1.0, 2.0])
        assert function(value).tolist() == pytest.approx(expected)
    value = Tensor([-1.0, 2.0])
    assert F.relu_(value) is value
    assert F.sigmoid_(Tensor([0.0])).tolist() == [0.5]
    value = Tensor([[1.0, 1.0]])
    assert mint.addr_(value, Tensor([2.0]), Tensor([1.0, 3.0]), 2, 0.5) is value
    assert value.tolist() == [[3, 5]]


def test_in_place_on_what_a_function_made_has_a_gradient():
    gradient = ms.grad(lambda x: F.relu(x * 2, inplace=True).sum())(Tensor([-1.0, 3.0]))
    assert gradient.tolist() == [0, 2]


def test_the_gradient_of_a_largest_element_goes_to_one_position():
    gradient = ms.grad(lambda x: mint.max(x, 0)[0])(Tensor([1.0, 3.0, 3.0]))
    assert gradient.tolist() == [0, 1, 0]


def test_dropout_drops_whole_channels():
    ms.set_seed(1)
    dropped = F.dropout2d(mint.ones((8, 16, 2, 3)), 0.25).asnumpy()
    assert np.unique(dropped).tolist() == pytest.approx([0, 4 / 3])
    assert (dropped.std((2, 3)) == 0).all()
    assert F.dropout2d(mint.ones((3, 2, 2)), 1.0).tolist() == np.zeros((3, 2, 2)).tolist()
    assert F.dropout2d(mint.ones((1, 3, 2, 2)), 0.9, False).asnumpy().all()


def test_running_statistics_move_by_the_functional_form():
    values = numbers(5, 3)
    mean, variance = mint.zeros(3), mint.ones(3)
    F.batch_norm(values, mean, variance, training=True, momentum=0.25)
    array = values.asnumpy()
    np.testing.assert_allclose(mean.asnumpy(), 0.25 * array.mean(0), rtol=1e-5)
    np.testing.assert_allclose(variance.asnumpy(), 0.75 + 0.25 * array.var(0, ddof=1), rtol=1e-5)


def test_joined_statistics_are_those_of_the_whole_batch():
    parts = [numbers(2, 3, 4), numbers(3, 3, 4) * 2 + 1]
    whole = np.concatenate([part.asnumpy() for part in parts]).transpose(1, 0, 2).reshape(3, -1)
    of_each = [mint.batch_norm_stats(part, 1e-5) for part in parts]
    mean, variance = mint.zeros(3), mint.ones(3)
    joined, invstd = mint.batch_norm_gather_stats_with_counts(
        parts[0],
        mint.stack([mean for mean, _ in of_each]),
        mint.stack([invstd for _, invstd in of_each]),
        mean,
        variance,
        0.5,
        1e-5,
        Tensor([8.0, 12.0]),
    )
    np.testing.assert_allclose(joined.asnumpy(), whole.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(invstd.asnumpy(), 1 / np.sqrt(whole.var(1) + 1e-5), rtol=1e-4)
    np.testing.assert_allclose(variance.asnumpy(), 0.5 + 0.5 * whole.var(1, ddof=1), rtol=1e-4)
    normed = mint.batch_norm_elemt(parts[0], mint.ones(3) * 2, mint.ones(3), joined, invstd)
    expected = (parts[0].asnumpy() - whole.mean(1)[:, None]) / np.sqrt(whole.var(1) + 1e-5)[:, None] * 2 + 1
    np.testing.assert_allclose(normed.asnumpy(), expected, rtol=1e-4, atol=1e-5)
    assert mint.batch_norm_elemt(parts[0]).tolist() == parts[0].tolist()


def test_equal_counts_are_the_default():
    part = numbers(2, 3, 4)
    mean, invstd = mint.batch_norm_stats(part, 1e-5)
    joined, deviation = mint.batch_norm_gather_stats_with_counts(part, mint.stack([mean] * 2), mint.stack([invstd] * 2))
    np.testing.assert_allclose(joined.asnumpy(), mean.asnumpy(), rtol=1e-6)
    np.testing.assert_allclose(deviation.asnumpy(), invstd.asnumpy(), rtol=1e-5)


def test_new_tensors():
    assert mint.empty(2, 3).shape == mint.empty((2, 3)).shape == (2, 3)
    assert mint.empty_like(mint.ones(2), dtype=ms.int32).dtype == ms.int32
    assert mint.linspace(0, 4, 3, dtype=ms.int32).tolist() == [0, 2, 4]
    assert mint.item(Tensor([2.5])) == 2.5
    value = mint.ones(2)
    copy = mint.clone(value)
    copy[0] = 5
    assert value.tolist() == [1, 1]


def test_functions_run_inside_a_compiled_step():
    @ms.jit
    def step(x):
        return mint.max(F.layer_norm(x, (3,)), 1), F.one_hot(mint.argmax(x, 1), 3), mint.rand(2)

    (values, positions), hot, _ = step(numbers(4, 3))
    assert values.shape == positions.shape == (4,)
    assert hot.sum().item() == 4
    with pytest.warns(UserWarning, match="For 'one_hot', the step runs operator by operator"):
        assert ms.jit(F.one_hot)(mint.arange(3)).shape == (3, 3)


def test_layer_norm_of_half_precision_is_computed_in_float32():
    values = 100 * np.random.default_rng(0).normal(size=(2, 64)).astype(np.float16)
    result = F.layer_norm(Tensor(values), (64,))
    assert result.dtype == ms.float16
    wide = values.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    np.testing.assert_allclose(result.asnumpy(), expected, atol=3e-3)


def test_names_that_lead_nowhere_say_so():
    with pytest.raises(AttributeError, match="sporax.mindspore.mint.linalg"):
        mint.linalg.nothing  # noqa: B018 - the access is what raises
