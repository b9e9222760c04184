"""How a function becomes a layer: its settings are set once, its tensors come at every call. Activation layers and losses.

Layers of `sporax.mindspore.mint.nn` that rearrange, resize, drop or pass on.

Padding layers of `sporax.mindspore.mint.nn`: cells around the last dimensions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sporax.base.errors import For, SporaxTypeError
from sporax.base.lazy_members import LazyMembers
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.mint.nn import functional as F
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell, Layer
from sporax.mindspore.nn.image import _Around
from sporax.mindspore.ops._core import Operator, with_parameters


class FunctionLayer(Cell):
    """Base of layers around one function. Subclasses are made by `layer`, or state `function` and `construct`."""

    function: Callable[..., Any]
    parameters: inspect.Signature = inspect.Signature()
    """Settings of the function that the constructor takes, in order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as mismatch:
            raise SporaxTypeError(f"For '{type(self).__name__}', {mismatch}; it takes {self.parameters}.") from None
        bound.apply_defaults()
        self.settings = tuple(bound.arguments)
        for name, value in bound.arguments.items():
            checked = _frozen(value)
            # An Operator checks a setting once, and not at every call.
            if isinstance(self.function, Operator) and name in self.function.parameters.attributes:
                self.function.parameters.check(name, checked)
            setattr(self, name, checked)

    def construct(self, input: Any) -> Any:
        """The function of `input`."""
        return self.compute(input)

    def compute(self, *inputs: Any) -> Any:
        """The function of these inputs with the settings of this layer."""
        return self.function(*inputs, **{name: getattr(self, name) for name in self.settings})

    def extend_repr(self) -> str:
        """Settings."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.settings)


class PairLayer(FunctionLayer):
    """A layer of two inputs: most often a loss of predictions and targets."""

    def construct(self, input: Any, target: Any) -> Any:
        """The function of `input` and `target`."""
        return self.compute(input, target)


def layer(
    name: str,
    function: Callable[..., Any],
    doc: str,
    base: type[FunctionLayer] = FunctionLayer,
    takes: str | None = None,
    **defaults: Any,
) -> type[Cell]:
    """A layer around `function`.

    Args:
        name: of the class.
        function: takes the tensors by position and the settings by name.
        doc: what the layer does.
        base: its `construct` says which tensors there are.
        takes: names of the settings that the constructor takes, in order; by default all that are behind the tensors.
        defaults: of settings, where the layer has others than the function.
    """

    def made() -> dict[str, Any]:
        settings = dict(inspect.signature(function).parameters)
        names = (
            list(settings)[len(inspect.signature(base.construct).parameters) - 1 :] if takes is None else takes.split()
        )
        parameters = [
            inspect.Parameter(each, _KIND, default=defaults.get(each, settings[each].default)) for each in names
        ]
        return {"parameters": inspect.Signature(parameters), "__init__": with_parameters(base.__init__, parameters)}

    body = {
        # A plain function must not be bound to the layer.
        "function": function if isinstance(function, Operator) else staticmethod(function),
        **{member: LazyMembers(made) for member in ("parameters", "__init__")},
        "__doc__": doc,
        "__module__": "sporax.mindspore.mint.nn",
    }
    return type(name, (base,), body)


_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _frozen(value: Any) -> Any:
    # Lists cannot be part of a compiled step's key.
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


ReLU = layer("ReLU", F.relu, "The input where it is positive, zero elsewhere.", takes="")
ReLU6 = layer("ReLU6", F.relu6, "The input limited to [0, 6].")
ELU = layer("ELU", F.elu, "The input where positive, ``alpha * (exp(x) - 1)`` elsewhere.")
SELU = layer("SELU", ops.selu, "Scaled exponential linear unit (Klambauer et al. 2017).")
GELU = layer("GELU", F.gelu, 'Gaussian error linear unit, exact or (``"tanh"``) approximate.')
GLU = layer("GLU", F.glu, "The first half along `dim` times the sigmoid of the second.")
SiLU = layer("SiLU", F.silu, "x · sigmoid(x).")
Mish = layer("Mish", F.mish, "x · tanh(softplus(x)) (Misra 2019).")
Sigmoid = layer("Sigmoid", F.sigmoid, "1 / (1 + exp(-x)).")
LogSigmoid = layer("LogSigmoid", F.logsigmoid, "Logarithm of sigmoid, without overflow.")
Tanh = layer("Tanh", F.tanh, "Hyperbolic tangent.")
Hardtanh = layer("Hardtanh", F.hardtanh, "The input limited to a range.")
Hardsigmoid = layer("Hardsigmoid", F.hardsigmoid, "(x + 3) / 6 limited to [0, 1].")
Hardswish = layer("Hardswish", F.hardswish, "x · relu6(x + 3) / 6.")
Hardshrink = layer("Hardshrink", F.hardshrink, "Zero where \\|x\\| <= lambd, the input elsewhere.")
Softshrink = layer("Softshrink", F.softshrink, "The input moved by lambd towards zero.")
Softmax = layer("Softmax", F.softmax, "Exponentials divided by their sum along `dim`.", takes="dim")
LogSoftmax = layer("LogSoftmax", F.log_softmax, "Logarithm of softmax along `dim`, without overflow.", takes="dim")
Threshold = layer("Threshold", F.threshold, "The input where it exceeds `threshold`, `value` elsewhere.")


class PReLU(Layer):
    """The input where positive, `weight` times the input elsewhere (He et al. 2015)."""

    num_parameters: int = setting(
        argument.positive_int, "1, or the number of channels (dim 1 of the input).", default=1
    )
    init: float = setting(None, "first value of `weight`.", default=0.25, attribute=False)
    dtype: DType | None = setting(None, "its element type; float32 by default.", default=None, attribute=False)

    _in_repr = "num_parameters"

    def _prepare(self, init: float, dtype: DType | None) -> None:
        start = initializer(argument.number("PReLU", "init", init), (self.num_parameters,), dtype or dtypes.float32)
        self.weight = Parameter(start, name="weight")

    def construct(self, input: Tensor) -> Tensor:
        """`input` of any shape; (n, num_parameters, …) when there are several."""
        return F.prelu(input, *argument.cast_like(self, input, self.weight))


L1Loss = layer("L1Loss", F.l1_loss, "Mean (or sum) of absolute differences.", PairLayer)
MSELoss = layer("MSELoss", F.mse_loss, "Mean (or sum) of squared differences.", PairLayer)
SmoothL1Loss = layer(
    "SmoothL1Loss",
    F.smooth_l1_loss,
    "Squared differences below `beta`, absolute ones above (Girshick 2015).",
    PairLayer,
)
CrossEntropyLoss = layer(
    "CrossEntropyLoss",
    F.cross_entropy,
    "Negative log-likelihood of classes under softmax of the logits; settings as `nn.functional.cross_entropy`.",
    PairLayer,
)
NLLLoss = layer(
    "NLLLoss",
    F.nll_loss,
    "Negative log-likelihood of classes, given log-probabilities; settings as `nn.functional.nll_loss`.",
    PairLayer,
    takes="weight ignore_index reduction",
)
BCELoss = layer(
    "BCELoss",
    F.binary_cross_entropy,
    "Cross entropy of probabilities with probabilities, each element times `weight`.",
    PairLayer,
)
BCEWithLogitsLoss = layer(
    "BCEWithLogitsLoss",
    F.binary_cross_entropy_with_logits,
    "Cross entropy of sigmoid of the logits with probabilities; `pos_weight` counts for the positive part.",
    PairLayer,
)
KLDivLoss = layer(
    "KLDivLoss",
    F.kl_div,
    "Divergence of the target from the distribution whose logarithm is the input (Kullback & Leibler 1951).",
    PairLayer,
)
SoftMarginLoss = layer(
    "SoftMarginLoss", F.soft_margin_loss, "log(1 + exp(-target · input)) for targets 1 and -1.", PairLayer
)


class _Embeddings(FunctionLayer):
    def construct(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """`input1`, `input2`: (n, size) or (size,). `target`: 1 or -1 for each pair."""
        return self.compute(input1, input2, target)


CosineEmbeddingLoss = layer(
    "CosineEmbeddingLoss",
    F.cosine_embedding_loss,
    "1 - cosine of pairs with target 1; what the cosine of the others exceeds `margin` by.",
    _Embeddings,
)


Flatten = layer("Flatten", F.flatten, "Dimensions `start_dim` to `end_dim` made into one.", start_dim=1)
PixelShuffle = layer("PixelShuffle", F.pixel_shuffle, "Channels laid out as finer pixels (Shi et al. 2016).")
Unfold = layer("Unfold", F.unfold, "Patches of images as columns: (n, c, h, w) gives (n, c · kernel cells, places).")
Fold = layer("Fold", F.fold, "Patches added up to images of `output_size`: the transpose of `Unfold`.")
Upsample = layer(
    "Upsample",
    F.interpolate,
    "Tensors (n, c, …) resized in their spatial dims; settings as `nn.functional.interpolate`.",
)


def _nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    return F.interpolate(input, size, scale_factor, "nearest")


def _bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    return F.interpolate(input, size, scale_factor, "bilinear", True)


UpsamplingNearest2d = layer("UpsamplingNearest2d", _nearest, "Images resized by taking the nearest pixel.")
UpsamplingBilinear2d = layer(
    "UpsamplingBilinear2d",
    _bilinear,
    "Images resized by bilinear interpolation; the centres of the corner pixels coincide.",
)


class Identity(Cell):
    """Gives its input back. Any settings are taken, so that it can stand in for another layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def construct(self, input: Any) -> Any:
        """Anything."""
        return input


class Dropout(Layer):
    """Zeroes elements at random while training, and scales the others so that the mean stays.

    Raises:
        SporaxTypeError, SporaxValueError: no such probability or switch.
    """

    p: float = setting(
        argument.within, "probability of an element to be zeroed, in [0, 1].", default=0.5, low=0.0, high=1.0
    )
    inplace: bool = setting(argument.boolean, "write the result to the input.", default=False)

    _in_repr = "p inplace"
    _drop = staticmethod(F.dropout)

    def construct(self, input: Tensor) -> Tensor:
        """`input` of any shape."""
        return self._drop(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """Zeroes whole channels of (n, c, h, w) or (c, h, w) at random while training; settings as `Dropout`."""

    _drop = staticmethod(F.dropout2d)


class _Padding(_Around):
    """Base of the padding layers.

    Args:
        padding: cells on every side, or (left, right, top, bottom, …), the last dimension first.

    Raises:
        SporaxTypeError: no ints.
        SporaxValueError: another number of them; or negative ones, unless the cells are constant.
    """

    def _sides(self, padding: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
        name, count = type(self).__name__, 2 * self.spatial
        sides = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * count
        if any(isinstance(side, bool) or not isinstance(side, int) for side in sides):
            raise SporaxTypeError(f"For '{name}', 'padding' must be an int or {count} ints, but got {padding!r}.")
        For(name).refuse(len(sides) != count, f"'padding' must be one int or {count}", padding)
        For(name).refuse(self.mode != "constant" and min(sides) < 0, "'padding' must be >= 0", padding)
        return sides

    def construct(self, input: Tensor) -> Tensor:
        """`input` with as many trailing dimensions as the layer pads."""
        return F.pad(input, self.padding, mode=self.mode)


class _ConstantPadding(_Padding):
    """Base of the layers that pad with one number.

    Args:
        padding: cells on every side, or (left, right, top, bottom, …); negative ones take cells away.
        value: what they hold.
    """

    _in_repr = "padding value"

    def __init__(self, padding: int | tuple[int, ...] | list[int], value: float) -> None:
        super().__init__(padding)
        self.value = For(type(self).__name__).typed("value", value, "a number", int | float, takes_bool=False)

    def construct(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, mode=self.mode, value=self.value)


def _layer(name: str, base: type[_Padding], dims: int, what: str, mode: str = "constant") -> Any:
    doc = f"The last {dims} dims with {what} around." if dims > 1 else f"The last dim with {what} at both ends."
    return type(
        name, (base,), {"spatial": dims, "mode": mode, "__doc__": doc, "__module__": "sporax.mindspore.mint.nn"}
    )


ConstantPad1d = _layer("ConstantPad1d", _ConstantPadding, 1, "cells of one value")
ConstantPad2d = _layer("ConstantPad2d", _ConstantPadding, 2, "cells of one value")
ConstantPad3d = _layer("ConstantPad3d", _ConstantPadding, 3, "cells of one value")
ZeroPad1d = _layer("ZeroPad1d", _Padding, 1, "zeros")
ZeroPad2d = _layer("ZeroPad2d", _Padding, 2, "zeros")
ZeroPad3d = _layer("ZeroPad3d", _Padding, 3, "zeros")
ReflectionPad1d = _layer("ReflectionPad1d", _Padding, 1, "the cells mirrored at the edge", "reflect")
ReflectionPad2d = _layer("ReflectionPad2d", _Padding, 2, "the cells mirrored at the edge", "reflect")
ReflectionPad3d = _layer("ReflectionPad3d", _Padding, 3, "the cells mirrored at the edge", "reflect")
ReplicationPad1d = _layer("ReplicationPad1d", _Padding, 1, "the edge repeated", "replicate")
ReplicationPad2d = _layer("ReplicationPad2d", _Padding, 2, "the edge repeated", "replicate")
ReplicationPad3d = _layer("ReplicationPad3d", _Padding, 3, "the edge repeated", "replicate")
