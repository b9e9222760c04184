"""Invertible functions with the logarithms of their derivatives: `mindspore.nn.probability.bijector`."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.nn.cell import Cell

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`
__all__ = ["Bijector", "PowerTransform", "Exp", "ScalarAffine", "Softplus", "GumbelCDF", "Invert"]

answer_missing_names(__name__)

_FUNCTIONS = ("forward", "inverse", "forward_log_jacobian", "inverse_log_jacobian")


def parameter(attribute: str, doc: str) -> Any:
    """The property that gives what an attribute of a bijector or a distribution holds, a parameter for example."""
    return property(attrgetter(attribute), doc=doc)


class Bijector(Cell):
    """Base of invertible functions. Called with a distribution, one gives the distribution of its values.

    A subclass writes `_forward`, `_inverse`, `_forward_log_jacobian` and `_inverse_log_jacobian`.

    Args:
        is_constant_jacobian: whether the function is affine.
        is_injective: whether it is one to one.
        name: its name, in messages.
        dtype: that values must have; None for any floating one.
        param: parameters by name, or a dict that has them as ``"param_dict"``.
    """

    def __init__(
        self,
        is_constant_jacobian: bool = False,
        is_injective: bool = True,
        name: str | None = None,
        dtype: DType | None = None,
        param: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        For(type(self).__name__).typed("name", name, "a str", str | None)
        self._name = type(self).__name__ if name is None else name
        self._dtype, self._is_constant_jacobian, self._is_injective = dtype, is_constant_jacobian, is_injective
        # `locals()` is a usual argument, which has `self` in it.
        self._parameters = {key: value for key, value in (param or {}).items() if key != "self"}
        parameters = (param or {}).get("param_dict", {})
        shapes = [np.shape(value.array if isinstance(value, Tensor) else value) for value in parameters.values()]
        self._batch_shape: tuple[int, ...] | None = np.broadcast_shapes(*shapes) if parameters else None
        self._is_scalar_batch = bool(parameters) and all(
            isinstance(value, int | float) for value in parameters.values()
        )

    name = parameter("_name", "Its name.")
    dtype = parameter("_dtype", "The dtype that values must have; None for any floating one.")
    parameters = parameter("_parameters", "What it was made of.")
    is_constant_jacobian = parameter("_is_constant_jacobian", "Whether the function is affine.")
    is_injective = parameter("_is_injective", "Whether it is one to one.")
    batch_shape = parameter("_batch_shape", "Shape of the parameters together; None where there are none.")
    is_scalar_batch = parameter("_is_scalar_batch", "Whether all parameters are Python numbers.")

    def _add_parameter(self, value: Any, name: str) -> Tensor:
        """A parameter as a Tensor.

        Raises:
            SporaxTypeError: it is no floating number, array or Tensor.
        """
        if isinstance(value, bool) or value is None:
            raise SporaxTypeError(f"For '{self.name}', '{name}' must be a number or Tensor, but got {value!r}.")
        # Kept in the user's dtype, which is checked.
        parameter = value if isinstance(value, Tensor) else Tensor(value)
        if parameter.dtype not in dtypes.float_type:
            raise For(self.name).type_error(f"the dtype of '{name}' must be floating", parameter.dtype)
        return parameter

    def _check_value_dtype(self, value: Any) -> Tensor:
        For(self.name).typed("the value", value, "a Tensor", Tensor)
        fits = value.dtype in dtypes.float_type if self.dtype is None else value.dtype == self.dtype
        if not fits:
            expected = "floating" if self.dtype is None else self.dtype
            raise SporaxTypeError(f"For '{self.name}', the value's dtype must be {expected}, but got {value.dtype}.")
        return value

    def _run_formula(self, function: str, value: Any, args: tuple[Any, ...]) -> Tensor:
        return getattr(self, f"_{function}")(self._check_value_dtype(value), *args)

    def forward(self, value: Any, *args: Any) -> Tensor:
        """The function."""
        return self._run_formula("forward", value, args)

    def inverse(self, value: Any, *args: Any) -> Tensor:
        """Its inverse."""
        return self._run_formula("inverse", value, args)

    def forward_log_jacobian(self, value: Any, *args: Any) -> Tensor:
        """Logarithm of the absolute derivative of the function."""
        return self._run_formula("forward_log_jacobian", value, args)

    def inverse_log_jacobian(self, value: Any, *args: Any) -> Tensor:
        """Logarithm of the absolute derivative of the inverse."""
        return self._run_formula("inverse_log_jacobian", value, args)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A function by its name: ``bijector("forward", x)``; or the distribution of the function's values."""
        # Distributions know bijectors and not the other way round, so each says itself how it is transformed.
        if args and hasattr(type(args[0]), "transformed_by"):
            return args[0].transformed_by(self)
        return super().__call__(*args, **kwargs)

    def construct(self, name: str, *args: Any, **kwargs: Any) -> Tensor:
        """A function by its name.

        Raises:
            SporaxValueError: there is none of that name.
        """
        For(self.name).refuse(name not in _FUNCTIONS, f"'name' must be one of {_FUNCTIONS}", name, show=repr)
        return getattr(self, name)(*args, **kwargs)


class PowerTransform(Bijector):
    """``(1 + power · x) ^ (1 / power)``, and ``exp(x)`` where `power` is 0.

    Args:
        power: not negative.
        name: see `Bijector`.

    Raises:
        SporaxValueError: `power` is negative.
    """

    def __init__(self, power: Any = 0.0, name: str = "PowerTransform") -> None:
        super().__init__(name=name, param={"param_dict": {"power": power}})
        self._power = self._add_parameter(power, "power")
        if (self._power.asnumpy() < 0).any():
            raise SporaxValueError("Power must be greater than or equal to zero.")

    power = parameter("_power", "The power.")

    def _powers(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where the power is 0; the power, and 1 in its place there."""
        power = ops.cast(self._power, value.dtype)
        is_zero = ops.equal(power, ops.zeros_like(power))
        # `where` computes both ways, so a power of 0 must not divide.
        return is_zero, power, ops.where(is_zero, ops.ones_like(power), power)

    def _forward(self, x: Tensor) -> Tensor:
        is_zero, _, power = self._powers(x)
        # log1p and expm1 keep digits for small arguments.
        return ops.where(is_zero, ops.exp(x), ops.exp(ops.log1p(x * power) / power))

    def _inverse(self, y: Tensor) -> Tensor:
        is_zero, _, power = self._powers(y)
        return ops.where(is_zero, ops.log(y), ops.expm1(ops.log(y) * power) / power)

    def _forward_log_jacobian(self, x: Tensor) -> Tensor:
        is_zero, _, power = self._powers(x)
        return ops.where(is_zero, x, (1.0 / power - 1.0) * ops.log1p(x * power))

    def _inverse_log_jacobian(self, y: Tensor) -> Tensor:
        return (self._powers(y)[1] - 1.0) * ops.log(y)


class Exp(PowerTransform):
    """``exp(x)``."""

    def __init__(self, name: str = "Exp") -> None:
        super().__init__(0.0, name)


class ScalarAffine(Bijector):
    """``scale · x + shift``.

    Args:
        scale, shift: floating.
        name: see `Bijector`.
    """

    def __init__(self, scale: Any = 1.0, shift: Any = 0.0, name: str = "ScalarAffine") -> None:
        super().__init__(True, name=name, param={"param_dict": {"scale": scale, "shift": shift}})
        self._scale, self._shift = self._add_parameter(scale, "scale"), self._add_parameter(shift, "shift")

    scale = parameter("_scale", "The slope.")
    shift = parameter("_shift", "The value at 0.")

    def _forward(self, x: Tensor) -> Tensor:
        return ops.cast(self._scale, x.dtype) * x + ops.cast(self._shift, x.dtype)

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - ops.cast(self._shift, y.dtype)) / ops.cast(self._scale, y.dtype)

    def _forward_log_jacobian(self, x: Tensor) -> Tensor:
        return ops.log(ops.abs(ops.cast(self._scale, x.dtype)))

    def _inverse_log_jacobian(self, y: Tensor) -> Tensor:
        return -self._forward_log_jacobian(y)


class Softplus(Bijector):
    """``log(1 + exp(sharpness · x)) / sharpness``.

    Args:
        sharpness: floating.
        name: see `Bijector`.
    """

    def __init__(self, sharpness: Any = 1.0, name: str = "Softplus") -> None:
        super().__init__(name=name, param={"param_dict": {"sharpness": sharpness}})
        self._sharpness = self._add_parameter(sharpness, "sharpness")

    sharpness = parameter("_sharpness", "How closely it follows the larger of x and 0.")

    def _scaled(self, value: Tensor) -> tuple[Tensor, Tensor]:
        sharpness = ops.cast(self._sharpness, value.dtype)
        return sharpness * value, sharpness

    def _forward(self, x: Tensor) -> Tensor:
        scaled, sharpness = self._scaled(x)
        # -log(sigmoid(-x)) is log(1 + exp(x)) without overflow.
        return -ops.logsigmoid(-scaled) / sharpness

    def _inverse(self, y: Tensor) -> Tensor:
        scaled, sharpness = self._scaled(y)
        return (scaled + ops.log(-ops.expm1(-scaled))) / sharpness

    def _forward_log_jacobian(self, x: Tensor) -> Tensor:
        return ops.logsigmoid(self._scaled(x)[0])

    def _inverse_log_jacobian(self, y: Tensor) -> Tensor:
        return -ops.log(-ops.expm1(-self._scaled(y)[0]))


class GumbelCDF(Bijector):
    """The distribution function of the Gumbel distribution: ``exp(-exp(-(x - loc) / scale))``.

    Args:
        loc, scale: place and width, which must be positive.
        name: see `Bijector`.

    Raises:
        SporaxValueError: `scale` is not positive.
    """

    def __init__(self, loc: Any = 0.0, scale: Any = 1.0, name: str = "GumbelCDF") -> None:
        super().__init__(name=name, param={"param_dict": {"loc": loc, "scale": scale}})
        self._loc, self._scale = self._add_parameter(loc, "loc"), self._add_parameter(scale, "scale")
        if not (self._scale.asnumpy() > 0).all():
            raise SporaxValueError("scale must be greater than zero.")

    loc = parameter("_loc", "The place.")
    scale = parameter("_scale", "The width.")

    def _standard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scale = ops.cast(self._scale, x.dtype)
        return (x - ops.cast(self._loc, x.dtype)) / scale, scale

    def _forward(self, x: Tensor) -> Tensor:
        return ops.exp(-ops.exp(-self._standard(x)[0]))

    def _inverse(self, y: Tensor) -> Tensor:
        scale = ops.cast(self._scale, y.dtype)
        return ops.cast(self._loc, y.dtype) - scale * ops.log(-ops.log(y))

    def _forward_log_jacobian(self, x: Tensor) -> Tensor:
        z, scale = self._standard(x)
        return -z - ops.exp(-z) - ops.log(scale)

    def _inverse_log_jacobian(self, y: Tensor) -> Tensor:
        return ops.log(ops.cast(self._scale, y.dtype) / (-y * ops.log(y)))


class Invert(Bijector):
    """The inverse of another function.

    Args:
        bijector: the other one.
        name: "Invert" and its name by default.

    Raises:
        SporaxTypeError: it is no Bijector.
    """

    def __init__(self, bijector: Bijector, name: str = "") -> None:
        For("Invert").typed("bijector", bijector, "a Bijector", Bijector)
        constant, injective = bijector.is_constant_jacobian, bijector.is_injective
        super().__init__(constant, injective, name or f"Invert{bijector.name}", bijector.dtype, {})
        self._bijector = bijector
        self._batch_shape, self._is_scalar_batch = bijector.batch_shape, bijector.is_scalar_batch

    bijector = parameter("_bijector", "The other one.")

    def _forward(self, x: Tensor) -> Tensor:
        return self._bijector.inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._bijector.forward(y)

    def _forward_log_jacobian(self, x: Tensor) -> Tensor:
        return self._bijector.inverse_log_jacobian(x)

    def _inverse_log_jacobian(self, y: Tensor) -> Tensor:
        return self._bijector.forward_log_jacobian(y)
