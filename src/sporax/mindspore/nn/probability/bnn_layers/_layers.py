"""Dense and convolutional layers that draw their weights at every call, and the loss that trains them.

Training minimizes the loss of the network plus the divergence of the weights' distributions from what was believed before
(Blundell et al., "Weight Uncertainty in Neural Networks", 2015). `DenseLocalReparam` draws the results in place of the
weights (Kingma et al., "Variational Dropout and the Local Reparameterization Trick", 2015).

Distributions of weights: what is believed before training, and what training adjusts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxTypeError, named
from sporax.mindspore import ops
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes
from sporax.mindspore.nn.activation import get_activation
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.convolution import Conv2d
from sporax.mindspore.nn.probability.distribution import Normal
from sporax.mindspore.ops._core.parameters import taking

# Keeps the logarithm of the deviation finite.
_LEAST_DEVIATION = 1e-6


class NormalPrior(Cell):
    """A normal distribution that stays.

    Args:
        dtype: of its parameters.
        mean, std: mean and standard deviation.
    """

    def __init__(self, dtype: DType = dtypes.float32, mean: float = 0, std: float = 0.1) -> None:
        super().__init__()
        self.normal = Normal(mean, std, dtype=dtype)

    def construct(self, *inputs: Any) -> Any:
        """A function of the distribution, by its name."""
        return self.normal(*inputs)


class NormalPosterior(Cell):
    """A normal distribution of every element of a weight, with Parameters.

    Args:
        name: prefix of the Parameters' names.
        shape: of the weight.
        dtype: of the Parameters.
        loc_mean, loc_std: mean and deviation that the first means are drawn with.
        untransformed_scale_mean, untransformed_scale_std: the same of the first deviations, before softplus.

    Raises:
        SporaxTypeError: an argument is of another type, or a deviation is negative.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType = dtypes.float32,
        loc_mean: float = 0,
        loc_std: float = 0.1,
        untransformed_scale_mean: float = -5,
        untransformed_scale_std: float = 0.1,
    ) -> None:
        super().__init__()
        if not isinstance(name, str) or not isinstance(shape, tuple | list):
            raise For("NormalPosterior").type_error(
                "'name' must be a string and 'shape' a tuple or list", type(name).__name__, type(shape).__name__
            )
        numbers = {"loc_mean": loc_mean, "untransformed_scale_mean": untransformed_scale_mean}
        deviations = {"loc_std": loc_std, "untransformed_scale_std": untransformed_scale_std}
        for what, value in {**numbers, **deviations}.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or (what in deviations and value < 0):
                raise For("NormalPosterior").type_error(
                    f"{named(what)} must be a number{', not negative' if what in deviations else ''}", repr(value)
                )
        # By numpy's stream, as in MindSpore.
        means = np.random.normal(loc_mean, loc_std, shape)
        scales = np.random.normal(untransformed_scale_mean, untransformed_scale_std, shape)
        self.mean = Parameter(Tensor(means, dtype=dtype), name=f"{name}_mean")
        self.untransformed_std = Parameter(Tensor(scales, dtype=dtype), name=f"{name}_untransformed_std")
        self.normal = Normal()

    def construct(self, *inputs: Any) -> Any:
        """A function of the distribution, by its name."""
        # Softplus, so that the deviation is positive whatever training does.
        deviation = _LEAST_DEVIATION - ops.logsigmoid(-self.untransformed_std)
        return self.normal(*inputs, mean=self.mean, sd=deviation)


def normal_post_fn(name: str, shape: Sequence[int]) -> NormalPosterior:
    """A `NormalPosterior` as it is by default."""
    return NormalPosterior(name=name, shape=shape)


Maker = Callable[..., Any]


class _Variational(Cell):
    """A layer whose weight, and bias if it has one, are random."""

    has_bias: bool

    def _make_distributions(
        self, weight_shape: list[int], num_outputs: int, weight_fns: tuple[Any, Any], bias_fns: tuple[Any, Any]
    ) -> None:
        self.weight_prior = _prior("weight_prior_fn", weight_fns[0])
        self.weight_posterior = _posterior("weight_posterior_fn", weight_fns[1], weight_shape, "bnn_weight")
        if self.has_bias:
            self.bias_prior = _prior("bias_prior_fn", bias_fns[0])
            self.bias_posterior = _posterior("bias_posterior_fn", bias_fns[1], [num_outputs], "bnn_bias")

    def compute_kl_loss(self) -> Tensor:
        """How far the distributions of weight and bias are from what was believed before."""
        pairs = [(self.weight_prior, self.weight_posterior)]
        pairs += [(self.bias_prior, self.bias_posterior)] if self.has_bias else []
        # The divergence of independent weights adds up.
        parts = [
            prior("kl_loss", posterior("get_dist_type"), *posterior("get_dist_args")).sum()
            for prior, posterior in pairs
        ]
        return sum(parts[1:], parts[0])


class _Dense(_Variational):
    """See `DenseReparam`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        activation: Any = None,
        has_bias: bool = True,
        weight_prior_fn: Maker = NormalPrior,
        weight_posterior_fn: Maker = normal_post_fn,
        bias_prior_fn: Maker = NormalPrior,
        bias_posterior_fn: Maker = normal_post_fn,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.has_bias = in_channels, out_channels, has_bias
        shape, weight_fns, bias_fns = (
            [out_channels, in_channels],
            (weight_prior_fn, weight_posterior_fn),
            (bias_prior_fn, bias_posterior_fn),
        )
        self._make_distributions(shape, out_channels, weight_fns, bias_fns)
        if activation and not isinstance(activation, str | Cell):
            raise For(type(self).__name__).error("'activation' must be a string or a Cell", repr(activation))
        self.activation = get_activation(activation) if isinstance(activation, str) else activation

    def construct(self, x: Tensor) -> Tensor:
        """Outputs with weights that are drawn again."""
        outputs = self._apply_variational_weight(x)
        if self.has_bias:
            outputs = outputs + self.bias_posterior("sample")
        return outputs if self.activation is None else self.activation(outputs)

    def _apply_variational_weight(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError


class DenseReparam(_Dense):
    """A dense layer that draws its weight and bias at every call.

    Args:
        in_channels, out_channels: sizes.
        activation: name or Cell, applied to the outputs.
        has_bias: whether there is a bias.
        weight_prior_fn, bias_prior_fn: make (or are) the distributions believed before training.
        weight_posterior_fn, bias_posterior_fn: make the distributions that are trained, from ``name`` and ``shape``.

    Raises:
        SporaxTypeError: a function gives another kind of distribution.
    """

    def _apply_variational_weight(self, inputs: Tensor) -> Tensor:
        return ops.matmul(inputs, self.weight_posterior("sample").T)


class DenseLocalReparam(_Dense):
    """`DenseReparam` that draws the outputs, not the weight: the same distribution with less variance of gradients."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.normal = Normal()

    def _apply_variational_weight(self, inputs: Tensor) -> Tensor:
        mean = ops.matmul(inputs, self.weight_posterior("mean").T)
        variance = ops.matmul(ops.square(inputs), ops.square(self.weight_posterior("sd")).T)
        # The variance of a sum of independent products.
        return self.normal("sample", mean=mean, sd=ops.sqrt(variance))


class ConvReparam(_Variational):
    """A convolution that draws its kernel and bias at every call.

    Args:
        in_channels, out_channels, kernel_size, stride, pad_mode, padding, dilation, group, has_bias: as of `nn.Conv2d`.
        weight_prior_fn, weight_posterior_fn, bias_prior_fn, bias_posterior_fn: as of `DenseReparam`.
    """

    @taking(Conv2d.__init__, "weight_init bias_init data_format dtype")
    def __init__(
        self,
        *,
        weight_prior_fn: Maker = NormalPrior,
        weight_posterior_fn: Maker = normal_post_fn,
        bias_prior_fn: Maker = NormalPrior,
        bias_posterior_fn: Maker = normal_post_fn,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.has_bias = settings.pop("has_bias")
        # Checks the settings, and keeps a weight of its own, as MindSpore does, that nothing reads.
        layer = Conv2d(**settings)
        shape, out_channels = list(layer.weight.shape), settings["out_channels"]
        window = (shape[2], shape[3]), 1, settings["pad_mode"], settings["padding"]
        self.conv2d = ops.Conv2D(out_channels, *window, layer.stride, layer.dilation, settings["group"])
        weight_fns, bias_fns = (weight_prior_fn, weight_posterior_fn), (bias_prior_fn, bias_posterior_fn)
        self._make_distributions(shape, out_channels, weight_fns, bias_fns)

    def construct(self, inputs: Tensor) -> Tensor:
        """Outputs with a kernel that is drawn again."""
        outputs = self.conv2d(inputs, self.weight_posterior("sample"))
        return ops.bias_add(outputs, self.bias_posterior("sample")) if self.has_bias else outputs


class WithBNNLossCell(Cell):
    """Network and loss, plus how far the distributions of its weights are from what was believed before.

    Args:
        backbone: the network.
        loss_fn: the loss.
        dnn_factor, bnn_factor: factors of the loss and of the divergence, not negative.

    Raises:
        SporaxTypeError, SporaxValueError: a factor is no number, or negative.
    """

    def __init__(self, backbone: Cell, loss_fn: Any, dnn_factor: float = 1, bnn_factor: float = 1) -> None:
        super().__init__(auto_prefix=False)
        for name, factor in (("dnn_factor", dnn_factor), ("bnn_factor", bnn_factor)):
            if isinstance(factor, bool) or not isinstance(factor, int | float):
                raise SporaxTypeError(f"For 'WithBNNLossCell', '{name}' must be a number, but got {factor!r}.")
            For("WithBNNLossCell").refuse(factor < 0, f"'{name}' must not be negative", factor)
        self._backbone, self._loss_fn = backbone, loss_fn
        self.dnn_factor, self.bnn_factor = dnn_factor, bnn_factor

    @property
    def backbone_network(self) -> Cell:
        """The network."""
        return self._backbone

    def construct(self, x: Any, label: Any) -> Tensor:
        """The weighted sum."""
        loss: Tensor = self._loss_fn(self._backbone(x), label) * self.dnn_factor
        for _, layer in self._backbone.cells_and_names():
            if isinstance(layer, _Variational):
                loss = loss + layer.compute_kl_loss() * self.bnn_factor
        return loss


def _prior(argument: str, make: Any) -> Cell:
    prior: Cell = make if isinstance(make, Cell) else make()
    normal = getattr(prior, "normal", None)
    # Training needs the prior's numbers; a distribution without them gives no divergence.
    if not isinstance(normal, Normal) or normal._mean_value is None or normal._sd_value is None:
        raise For("bnn_layers").type_error(
            f"{named(argument)} must give a Cell with a Normal that has a mean and a deviation", type(prior).__name__
        )
    return prior


def _posterior(argument: str, make: Maker, shape: list[int], name: str) -> Cell:
    try:
        posterior: Cell = make(shape=shape, name=name)
    except TypeError as error:
        raise SporaxTypeError(f"For 'bnn_layers', '{argument}' must take 'name' and 'shape', but: {error}.") from error
    if not isinstance(getattr(posterior, "normal", None), Normal):
        raise For("bnn_layers").type_error(
            f"{named(argument)} must give a Cell with a Normal", type(posterior).__name__
        )
    return posterior
