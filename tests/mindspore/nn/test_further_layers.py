"""Layers that measure images or hold others; values of MindSpore are in tests/mindspore/golden/cases/layers.cases too."""

import numpy as np
import pytest
from scipy.ndimage import correlate

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops


def positive(*shape):
    return (0.1 + np.abs(np.sin(2.3 * np.arange(int(np.prod(shape))) + 0.1))).astype(np.float32).reshape(shape)


def ssim(first, second, size, sigma):
    """Of two (h, w) images, written down from the formula."""
    at = np.arange(-(size // 2), size - size // 2)[:size]
    bell = np.exp(-np.square(at) / (2 * sigma**2))
    window = np.outer(bell, bell) / bell.sum() ** 2
    low, high = size // 2, -(size - size // 2 - 1) or None

    def blur(image):
        return correlate(image, window)[low:high, low:high]

    a, b = blur(first), blur(second)
    c, d, e = blur(first**2) - a**2, blur(second**2) - b**2, blur(first * second) - a * b
    return np.mean((2 * a * b + 1e-4) * (2 * e + 9e-4) / ((a**2 + b**2 + 1e-4) * (c + d + 9e-4)))


def test_similarity_of_images():
    first, second = positive(2, 1, 8, 9), positive(2, 1, 9, 8).reshape(2, 1, 8, 9)
    result = nn.SSIM(filter_size=5, filter_sigma=1.2)(Tensor(first), Tensor(second)).asnumpy()
    expected = [ssim(a, b, 5, 1.2) for a, b in zip(first[:, 0].astype(float), second[:, 0].astype(float), strict=True)]
    np.testing.assert_allclose(result, expected, rtol=2e-4)
    np.testing.assert_allclose(nn.SSIM(filter_size=5)(Tensor(first), Tensor(first)).asnumpy(), 1, rtol=1e-5)


def test_similarity_that_mindspore_gives_in_graph_mode():
    left, right = positive(1, 2, 5, 5), positive(2, 1, 5, 5).reshape(1, 2, 5, 5) / 2
    np.testing.assert_allclose(nn.SSIM(1.0, 3)(Tensor(left), Tensor(right)).asnumpy(), [0.6414486], rtol=1e-5)
    image = positive(2, 2, 8, 8)
    several = nn.MSSSIM(1.0, (0.5, 0.5), 3)
    np.testing.assert_allclose(
        several(Tensor(image), Tensor(image * 0.9)).asnumpy(), [0.99178326, 0.9917823], rtol=1e-5
    )
    bytes_, twice = (Tensor((np.arange(64) * factor).reshape(1, 1, 8, 8).astype(np.uint8)) for factor in (1, 2))
    np.testing.assert_allclose(nn.MSSSIM(255.0, (0.4, 0.6), 3)(bytes_, twice).asnumpy(), [0.72278714], rtol=1e-5)


def test_similarity_has_gradients_for_the_images_only():
    layer = nn.SSIM(filter_size=3)
    assert layer.trainable_params() == []
    left, right = Tensor(positive(1, 1, 4, 4)), Tensor(positive(1, 1, 4, 4) * 0.7)
    assert np.abs(ms.grad(layer)(left, right).asnumpy()).max() > 1e-4


def test_matrix_layers_equal_numpy():
    matrix = np.array([[[4.0, 1.0], [1.0, 3.0]], [[2.0, 0.5], [0.5, 1.0]]])
    np.testing.assert_allclose(nn.MatDet()(Tensor(matrix)).asnumpy(), np.linalg.det(matrix))
    np.testing.assert_allclose(nn.MatInverse()(Tensor(matrix)).asnumpy(), np.linalg.inv(matrix))
    assert nn.MatrixDiagPart()(nn.MatrixDiag()(Tensor([[1, 2], [3, 4]]))).tolist() == [[1, 2], [3, 4]]
    changed = nn.MatrixSetDiag()(Tensor(matrix), Tensor([[7.0, 8.0], [9.0, 6.0]], ms.float64)).asnumpy()
    np.testing.assert_array_equal(np.diagonal(changed, 0, 1, 2), [[7, 8], [9, 6]])
    np.testing.assert_array_equal(changed[:, 0, 1], matrix[:, 0, 1])


def test_fractional_pooling_draws_its_windows():
    layer, x = nn.FractionalMaxPool2d(2, output_ratio=0.5), Tensor(positive(1, 2, 9, 9))
    ms.set_seed(3)
    results = [layer(x).asnumpy() for _ in range(4)]
    assert {result.shape for result in results} == {(1, 2, 4, 4)}
    assert any((results[0] != other).any() for other in results[1:])


def test_sampled_softmax_approaches_the_whole_one():
    """With all other classes in the sample and what is expected the same for all, it is the cross entropy."""
    generator = np.random.default_rng(0)
    weights, biases, x = (Tensor(generator.normal(size=s).astype(np.float32)) for s in ((6, 4), (6,), (3, 4)))
    labels = Tensor([2, 2, 2], ms.int32)
    others = (Tensor([0, 1, 3, 4, 5], ms.int32), ops.ones((3, 1)), ops.ones((5,)))
    loss = nn.SampledSoftmaxLoss(5, 6, sampled_values=others, reduction="mean")(weights, biases, labels, x)
    expected = ops.cross_entropy(ops.matmul(x, weights.T) + biases, labels)
    np.testing.assert_allclose(loss.asnumpy(), expected.asnumpy(), rtol=1e-5)
    drawn = nn.SampledSoftmaxLoss(3, 6, seed=1)(weights, biases, labels, x)
    assert drawn.shape == (3,)
    assert np.isfinite(drawn.asnumpy()).all()


def test_adam_offload_says_where_its_state_is():
    net = nn.Dense(2, 1)
    with pytest.warns(UserWarning, match="kept on the device, not on the host"):
        optimizer = nn.AdamOffload(net.trainable_params())
    assert optimizer.beta1_power.shape == (1,)


def test_arguments_that_do_not_fit_are_refused():
    x = Tensor(positive(1, 1, 5, 5))
    with pytest.raises(ValueError, match="must be >= 'filter_size' = 11"):
        nn.SSIM()(x, x)
    for layer in (nn.SSIM(), nn.PSNR()):
        with pytest.raises(TypeError, match="both images must have one dtype, but got Float32 and Float16"):
            layer(x, x.astype(ms.float16))
        with pytest.raises(ValueError, match="both images must have one shape"):
            layer(x, x[..., :4])
    with pytest.raises(TypeError, match="'name' must be a str"):
        nn.probability.bijector.Exp(name=0.1)
    with pytest.raises(
        ValueError, match="For 'Optimizer', the argument parameters must not be empty, but 'params' of 'SGD'"
    ):
        nn.SGD([], 0.1)
    with pytest.raises(TypeError, match="'power_factors' must be a tuple or list"):
        nn.MSSSIM(power_factors=0.5)
    with pytest.raises(ValueError, match="give either 'output_size' or 'output_ratio'"):
        nn.FractionalMaxPool2d(2)(x)
    with pytest.raises(ValueError, match="need an input of at least"):
        nn.FractionalMaxPool2d(2, 5)(x)
    with pytest.raises(ValueError, match="at least 3 dimensions"):
        nn.TimeDistributed(nn.Dense(2, 2), 1)(x[0, 0])


def test_directions_of_jvp_and_vjp_are_as_many_as_tensors():
    x, net = Tensor([1.0, 2.0]), nn.ReLU()
    for kind in (nn.Jvp, nn.Vjp):
        for wrong in ((x, x), (x,)):
            with pytest.raises(TypeError, match=f"For '{kind.__name__}', 'v' must be a Tensor for one"):
                kind(net)(x, wrong)
    with pytest.raises(TypeError, match="For 'Jvp', 'v' must be"):
        nn.Jvp(lambda a, b: a + b)(x, x, x)
    with pytest.raises(TypeError, match="For 'ParameterUpdate', 'param' must be a Parameter"):
        nn.ParameterUpdate(x)
