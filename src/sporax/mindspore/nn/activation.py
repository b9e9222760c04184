"""Activation layers, each a Cell around a function of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxKeyError, SporaxTypeError, check_type
from sporax.mindspore import ops
from sporax.mindspore._declared import fields_of, setting
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell, Layer, PlainLayer, applied


def _layer(
    name: str, function: Callable[[Tensor], Tensor], doc: str, primitive: str = "", attribute: str = ""
) -> type[Cell]:
    """A layer without settings; with a primitive ``"ReLU"`` that can have a strategy, it has an attribute ``relu``."""
    # Only classes whose primitive can have a strategy hold one.
    attribute = attribute or primitive.lower()

    def __init__(self: PlainLayer) -> None:  # noqa: N807 - it becomes the class's own
        PlainLayer.__init__(self)
        setattr(self, attribute, getattr(ops, primitive)())

    def construct(self: Cell, x: Tensor) -> Tensor:
        # Without a strategy the plain function runs.
        own = self.__dict__.get(attribute)
        return own(x) if own is not None and argument.configured(own) else function(x)

    construct.__doc__ = "`x` of any shape."
    body = {
        "construct": construct,
        "__doc__": doc,
        "__module__": __name__,
        **({"__init__": __init__} if primitive else {}),
    }
    return type(name, (PlainLayer,), body)


ReLU = _layer("ReLU", ops.relu, "The input where it is positive, zero elsewhere.", "ReLU")
ReLU6 = _layer("ReLU6", ops.relu6, "The input limited to [0, 6].", "ReLU6")
Sigmoid = _layer("Sigmoid", ops.sigmoid, "1 / (1 + exp(-x)).", "Sigmoid")
Tanh = _layer("Tanh", ops.tanh, "Hyperbolic tangent.", "Tanh")
SiLU = _layer("SiLU", ops.silu, "x · sigmoid(x).")
SeLU = _layer("SeLU", ops.selu, "Scaled exponential linear unit (Klambauer et al. 2017).", "SeLU")
Mish = _layer("Mish", ops.mish, "x · tanh(softplus(x)) (Misra 2019).", "Mish")
HSwish = _layer("HSwish", ops.hardswish, "x · relu6(x + 3) / 6.", "HSwish")
HSigmoid = _layer("HSigmoid", ops.hardsigmoid, "(x + 3) / 6 limited to [0, 1].", "HSigmoid")
LogSigmoid = _layer("LogSigmoid", ops.logsigmoid, "Logarithm of sigmoid, without overflow.")
Softsign = _layer("Softsign", ops.softsign, "x / (1 + |x|).", "Softsign")
Tanhshrink = _layer("Tanhshrink", ops.tanhshrink, "x - tanh(x).")
FastGelu = _layer("FastGelu", ops.fast_gelu, "x · sigmoid(1.702 x), near to GELU.", "FastGeLU", "fast_gelu")


class GELU(Layer):
    """Gaussian error linear unit."""

    approximate: Any = setting(
        check_type, "by tanh (True) or by the error function.", default=True, expected="a bool", types=bool
    )

    def _prepare(self) -> None:
        self.approximate = "tanh" if self.approximate else "none"

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        return ops.gelu(x, self.approximate)


class LeakyReLU(Layer):
    """The input where it is positive, `alpha` times the input elsewhere."""

    alpha: float = setting(argument.number, default=0.2)

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        # As maximum (minimum), so that the derivative at 0 is the mean of both slopes, as in MindSpore.
        scaled = x * (self.alpha if x.is_floating_point() else int(self.alpha))  # in the dtype of `x`
        return ops.maximum(x, scaled) if self.alpha <= 1 else ops.minimum(x, scaled)


class _OfPrimitive(Layer):
    """A layer around a primitive, which takes the layer's arguments, and can have a strategy.

    Attributes:
        _of: class of the primitive, and the attribute that holds it.
    """

    _of = ("", "")

    def _prepare(self) -> None:
        kind, attribute = self._of
        setattr(self, attribute, getattr(ops, kind)(*(getattr(self, field.name) for field in fields_of(type(self)))))

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        result: Tensor = getattr(self, self._of[1])(x)
        return result


class ELU(_OfPrimitive):
    """The input where it is positive, ``alpha * (exp(x) - 1)`` elsewhere."""

    alpha: float = setting(argument.number, default=1.0)
    _of = ("Elu", "elu")


class CELU(_OfPrimitive):
    """The input where it is positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere (Barron 2017).

    Raises:
        SporaxValueError: `alpha` is 0.
    """

    alpha: float = setting(argument.number, default=1.0)
    _of = ("CeLU", "celu")

    def _prepare(self) -> None:
        For("CELU").refuse(self.alpha == 0, "'alpha' must not be 0")
        super()._prepare()


class Hardtanh(Cell):
    """The input limited to [min_val, max_val].

    Raises:
        SporaxValueError: `min_val` is not below `max_val`.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        super().__init__()
        self.min_val = argument.number("Hardtanh", "min_val", min_val)
        self.max_val = argument.number("Hardtanh", "max_val", max_val)
        For("Hardtanh").refuse(self.min_val >= self.max_val, f"'min_val' {min_val} must be below 'max_val' {max_val}")

    construct = applied(ops.hardtanh, "x", "`x` of any shape.", "min_val max_val")


class HShrink(_OfPrimitive):
    """Zero on [-lambd, lambd], the input elsewhere."""

    lambd: float = setting(argument.number, default=0.5)
    _of = ("HShrink", "hshrink")


class SoftShrink(_OfPrimitive):
    """The input moved by `lambd` towards zero, and zero on [-lambd, lambd]."""

    lambd: float = setting(argument.number, default=0.5)
    _of = ("SoftShrink", "softshrink")


class Threshold(Layer):
    """The input where it is above `threshold`, `value` elsewhere."""

    threshold: float = setting(argument.number)
    value: float = setting(argument.number)
    construct = applied(ops.threshold, "x", "`x` of any shape.", "threshold value")


class RReLU(Cell):
    """The input where it is positive; elsewhere the input times a number drawn uniformly from [lower, upper].

    Numbers are drawn whether the Cell is training or not, as in MindSpore.

    Raises:
        SporaxValueError: `lower` is above `upper`.
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3) -> None:
        super().__init__()
        self.lower = argument.number("RReLU", "lower", lower)
        self.upper = argument.number("RReLU", "upper", upper)
        For("RReLU").refuse(self.lower > self.upper, f"'lower' {lower} must not be above 'upper' {upper}")

    construct = applied(ops.rrelu, "x", "`x` of any shape.", "lower upper")


class PReLU(Cell):
    """The input where it is positive, `w` times the input elsewhere, with learned `w`.

    Args:
        channel: 1 for a single slope, or the size of dimension 1 for one per channel.
        w: first value: a float, a list of floats, or a Tensor (channel,).

    Raises:
        SporaxTypeError, SporaxValueError: `w` is something else.
    """

    def __init__(self, channel: int = 1, w: Any = 0.25) -> None:
        super().__init__()
        argument.positive_int("PReLU", "channel", channel)
        if isinstance(w, float):
            w = Tensor(np.full((channel,), w, np.float32))
        elif isinstance(w, list):
            w = Tensor(w, dtypes.float32)
        elif not isinstance(w, Tensor):
            raise SporaxTypeError(f"For 'PReLU', 'w' must be a float, list or Tensor, but got {type(w).__name__}.")
        argument.initial_shape("PReLU", "w", w, (channel,))
        # "a" is the name in MindSpore's checkpoints.
        self.w = Parameter(w, name="a")
        self.prelu = ops.PReLU()

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, …)."""
        return self.prelu(x, self.w.astype(x.dtype))


class Softmax(_OfPrimitive):
    """Exponentials divided by their sum along `axis`."""

    axis: int | tuple[int, ...] = setting(default=-1)
    _of = ("Softmax", "softmax")


class Softmin(Softmax):
    """Softmax of the negative input along `axis`."""

    axis: Any  # the operator refuses tuples
    construct = applied(ops.softmin, "x", "`x` of any shape.", "axis")


class Softmax2d(Cell):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = ops.Softmax(-3)

    def construct(self, x: Tensor) -> Tensor:
        """Raises SporaxValueError for another number of dimensions."""
        For("Softmax2d").refuse(x.ndim not in (3, 4), f"the input must have 3 or 4 dimensions, but got shape {x.shape}")
        return self.softmax(x)


class LogSoftmax(_OfPrimitive):
    """Logarithm of softmax along `axis`."""

    axis: int = setting(default=-1)
    _of = ("LogSoftmax", "log_softmax")


class GLU(Layer):
    """One half of the input along `axis` times sigmoid of the other (Dauphin et al. 2016)."""

    axis: int = setting(default=-1)
    construct = applied(ops.glu, "x", "`x` with an even size along `axis`.", "axis")


class LRN(Layer):
    """Local response normalisation across channels (Krizhevsky et al. 2012).

    x / (bias + alpha · sum of x² over the 2 · depth_radius + 1 nearest channels) ** beta.

    Args:
        depth_radius: see above.
        bias, alpha, beta: see above.
        norm_region: ``"ACROSS_CHANNELS"``; there is no other.
    """

    depth_radius: int = setting(default=5, attribute=False)
    bias: float = setting(default=1.0, attribute=False)
    alpha: float = setting(default=1.0, attribute=False)
    beta: float = setting(default=0.5, attribute=False)
    norm_region: str = setting(argument.word, default="ACROSS_CHANNELS", allowed=("ACROSS_CHANNELS",))

    def _prepare(self, depth_radius: int, bias: float, alpha: float, beta: float) -> None:
        self.depth_radius = argument.ints("LRN", "depth_radius", depth_radius, 1, 0)[0]
        self.bias, self.alpha, self.beta = (
            For("LRN").typed(name, value, "float", float)
            for name, value in (("bias", bias), ("alpha", alpha), ("beta", beta))
        )

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, C, H, W)."""
        For("LRN").refuse(x.ndim != 4, "the input must have 4 dimensions", f"shape {x.shape}")
        return ops.lrn(x, self.depth_radius, self.bias, self.alpha, self.beta)


_BY_NAME: dict[str, Callable[[], Cell]] = {
    "fast_gelu" if kind is FastGelu else kind.__name__.lower(): kind
    for kind in (
        *(Softmin, Softmax, Softmax2d, LogSoftmax, ReLU, ReLU6, RReLU, SiLU, Tanh, Tanhshrink, Hardtanh, GELU),
        *(FastGelu, ELU, Sigmoid, Softsign, PReLU, LeakyReLU, HSwish, HSigmoid, LogSigmoid, SoftShrink, HShrink),
        *(Mish, GLU, SeLU, CELU),
    )
}


def get_activation(name: Any, prim_name: str | None = None) -> Cell | None:
    """The activation layer called `name`; None for None.

    Raises:
        SporaxTypeError: `name` is not a string.
        SporaxKeyError: no layer has this name.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise For(prim_name or "get_activation").type_error("the name must be a string", type(name).__name__)
    if name not in _BY_NAME:
        raise SporaxKeyError(
            f"For '{prim_name or 'get_activation'}', the activation must be in {list(_BY_NAME)}, got '{name}'."
        )
    return _BY_NAME[name]()
