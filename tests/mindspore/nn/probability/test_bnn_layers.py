"""Layers with random weights: their outputs on average, what they train, and their loss."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.nn.probability import bnn_layers

X = Tensor(np.sin(np.arange(6)).astype(np.float32).reshape(2, 3))


def wide_posterior(name, shape):
    return bnn_layers.NormalPosterior(name, shape, untransformed_scale_mean=0.0)


@pytest.mark.parametrize("kind", [bnn_layers.DenseReparam, bnn_layers.DenseLocalReparam])
def test_dense_layers_draw_around_the_mean_of_their_weight(kind):
    ms.set_seed(1)
    layer = kind(3, 4, has_bias=False, weight_posterior_fn=wide_posterior)
    draws = np.stack([layer(X).asnumpy() for _ in range(600)])
    mean, sd = (layer.weight_posterior(name).asnumpy() for name in ("mean", "sd"))
    deviation = np.sqrt(X.asnumpy() ** 2 @ sd.T**2)
    np.testing.assert_allclose(draws.mean(0), X.asnumpy() @ mean.T, atol=5 * deviation.max() / np.sqrt(600))
    np.testing.assert_allclose(draws.std(0), deviation, rtol=0.15)


def test_convolutions_draw_their_kernel():
    layer = bnn_layers.ConvReparam(2, 3, 3, has_bias=True)
    images = Tensor(np.ones((1, 2, 5, 5), np.float32))
    assert layer(images).shape == (1, 3, 5, 5)
    assert (layer(images).asnumpy() != layer(images).asnumpy()).any()
    names = {parameter.name for parameter in layer.trainable_params()}
    assert names == {
        f"{what}_posterior.{part}" for what in ("weight", "bias") for part in ("mean", "untransformed_std")
    }


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("mode")
def test_the_loss_adds_the_divergence_and_trains():
    ms.set_seed(1)
    layer = bnn_layers.DenseReparam(3, 1)
    label = Tensor(np.ones((2, 1), np.float32))
    only = bnn_layers.WithBNNLossCell(layer, nn.MSELoss(), dnn_factor=0, bnn_factor=0.5)
    expected = sum(
        float(prior("kl_loss", "Normal", *posterior("get_dist_args")).sum().asnumpy())
        for prior, posterior in ((layer.weight_prior, layer.weight_posterior), (layer.bias_prior, layer.bias_posterior))
    )
    np.testing.assert_allclose(only(X, label).asnumpy(), 0.5 * expected, rtol=1e-5)
    step = nn.TrainOneStepCell(
        bnn_layers.WithBNNLossCell(layer, nn.MSELoss(), 1, 0.01), nn.Adam(layer.trainable_params(), 0.05)
    )
    losses = [float(step(X, label).asnumpy()) for _ in range(60)]
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


def test_what_is_no_distribution_of_weights_is_named():
    with pytest.raises(TypeError, match="'weight_prior_fn' must give a Cell with a Normal"):
        bnn_layers.DenseReparam(3, 4, weight_prior_fn=nn.ReLU)
    with pytest.raises(TypeError, match="'weight_posterior_fn' must take 'name' and 'shape'"):
        bnn_layers.DenseReparam(3, 4, weight_posterior_fn=nn.ReLU)
    with pytest.raises(TypeError, match="'loc_std' must be a number, not negative, but got -1"):
        bnn_layers.NormalPosterior("w", (2,), loc_std=-1)
    with pytest.raises(ValueError, match="'bnn_factor' must not be negative, but got -1"):
        bnn_layers.WithBNNLossCell(nn.ReLU(), nn.MSELoss(), bnn_factor=-1)
