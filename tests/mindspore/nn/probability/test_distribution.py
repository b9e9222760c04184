"""Distributions: samples and gradients; their functions' values are in `tests/mindspore/golden/cases/probability_both.cases`."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.nn.probability import bijector as msb, distribution as msd

SAMPLES = (20000,)


@pytest.mark.parametrize(
    "make",
    [
        lambda: msd.Normal(Tensor([0.5, -1.0]), Tensor([2.0, 0.3])),
        lambda: msd.Uniform(Tensor([0.5, -1.0]), Tensor([2.0, 0.3])),
        lambda: msd.Exponential(Tensor([0.5, 2.0])),
        lambda: msd.Gamma(Tensor([0.5, 2.0]), Tensor([1.5, 0.7])),
        lambda: msd.Beta(Tensor([0.5, 2.0]), Tensor([1.5, 0.7])),
        lambda: msd.Logistic(Tensor([0.5, -1.0]), Tensor([2.0, 0.3])),
        lambda: msd.Gumbel(Tensor([0.5, -1.0]), Tensor([2.0, 0.3])),
        lambda: msd.LogNormal(Tensor([0.5, -1.0]), Tensor([0.2, 0.3])),
        lambda: msd.Bernoulli(Tensor([0.2, 0.7])),
        lambda: msd.Geometric(Tensor([0.4, 0.7])),
        lambda: msd.Poisson(Tensor([0.5, 3.0])),
    ],
)
def test_samples_have_the_mean_and_the_deviation(make):
    ms.set_seed(3)
    distribution = make()
    drawn = distribution.sample(SAMPLES)
    mean, deviation = distribution.mean().asnumpy(), distribution.sd().asnumpy()
    assert drawn.shape == (*SAMPLES, 2)
    assert drawn.dtype == distribution.dtype
    np.testing.assert_allclose(drawn.asnumpy().mean(0), mean, atol=0.05 * deviation.max())
    np.testing.assert_allclose(drawn.asnumpy().std(0), deviation, rtol=0.1)


def test_categories_are_drawn_as_often_as_they_should():
    ms.set_seed(3)
    probs = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], np.float32)
    drawn = msd.Categorical(Tensor(probs)).sample(SAMPLES).asnumpy()
    shares = [[(drawn[:, row] == category).mean() for category in range(3)] for row in range(2)]
    np.testing.assert_allclose(shares, probs, atol=0.02)


def test_quartiles_of_a_distribution_without_a_mean():
    ms.set_seed(3)
    drawn = msd.Cauchy(1.0, 2.0).sample(SAMPLES).asnumpy()
    np.testing.assert_allclose(np.quantile(drawn, [0.25, 0.5, 0.75]), [-1.0, 1.0, 3.0], atol=0.15)


def test_a_seed_of_its_own_repeats_the_numbers():
    first, again = (msd.Normal(0.0, 1.0, seed=7).sample((4,)).asnumpy() for _ in range(2))
    np.testing.assert_array_equal(first, again)
    distribution = msd.Normal(0.0, 1.0, seed=7)
    assert (distribution.sample((4,)).asnumpy() != distribution.sample((4,)).asnumpy()).all()


@pytest.mark.usefixtures("mode")
def test_samples_can_be_differentiated_by_parameters():
    ms.set_seed(3)

    def total(mean, sd):
        return msd.Normal().sample((5,), mean, sd).sum()

    by_mean, by_sd = ms.grad(total, (0, 1))(Tensor([1.0]), Tensor([2.0]))
    assert by_mean.asnumpy().tolist() == [5.0]
    assert np.isfinite(by_sd.asnumpy()).all()
    assert by_sd.asnumpy() != 0


def test_parameters_of_a_network_are_trained():
    class Likelihood(nn.Cell):
        def __init__(self):
            super().__init__()
            self.place = Parameter(Tensor([0.0]), name="place")
            self.normal = msd.Normal(self.place, Tensor([1.0]))

        def construct(self, x):
            return -self.normal.log_prob(x).sum()

    net = Likelihood()
    assert net.trainable_params() == [net.place]
    gradients = ms.value_and_grad(net, None, net.trainable_params())(Tensor([2.0, 4.0]))[1]
    assert gradients[0].asnumpy().tolist() == [-6.0]


def test_subclasses_write_formulas():
    class Triangle(msd.Distribution):
        def __init__(self, width=None):
            super().__init__(0, ms.float32, "Triangle", {"param_dict": {"width": width}})
            self._add_parameter(width, "width")

        def _prob(self, value, width=None):
            width = self._check_param_type(width)
            return ops.relu(1 - value.abs() / width) / width

    np.testing.assert_allclose(Triangle(2.0)("prob", Tensor([1.0])).asnumpy(), [0.25])
    np.testing.assert_allclose(Triangle().log_prob(Tensor([1.0]), Tensor([2.0])).asnumpy(), np.log([0.25]), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="For 'Triangle', 'cdf' is not implemented"):
        Triangle(2.0).cdf(Tensor([1.0]))
    with pytest.raises(NotImplementedError, match="For 'Triangle', 'nonsense' is not implemented"):
        Triangle(2.0)("nonsense")


def test_the_most_probable_of_two():
    assert msd.Bernoulli(Tensor([0.2, 0.5, 0.9])).mode().asnumpy().tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "make", [msb.Exp, lambda: msb.PowerTransform(0.5), lambda: msb.Softplus(2.0), lambda: msb.GumbelCDF(0.2, 1.5)]
)
def test_bijectors_undo_themselves_and_know_their_slope(make):
    function, x = make(), Tensor([-0.5, 0.3, 1.2])
    y = function.forward(x)
    np.testing.assert_allclose(function.inverse(y).asnumpy(), x.asnumpy(), rtol=1e-4, atol=1e-5)
    slope = ms.grad(lambda value: function.forward(value).sum())(x)
    np.testing.assert_allclose(
        function.forward_log_jacobian(x).asnumpy(), np.log(slope.asnumpy()), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        function.inverse_log_jacobian(y).asnumpy(), -np.log(slope.asnumpy()), rtol=1e-3, atol=1e-4
    )
    with pytest.raises(ValueError, match="'name' must be one of .* but got 'backward'"):
        function("backward", x)
