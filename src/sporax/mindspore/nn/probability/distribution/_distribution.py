"""What all distributions share: their parameters, and how functions follow from each other.

A distribution has parameters, given when it is made or at each call. A subclass writes the formulas it has closed forms
for, as methods whose name begins with an underscore (`_log_prob`, `_mean`, `_draw`, …), or as a table of such `formula`; they
get values and parameters as Tensors of one dtype. What has no formula follows from one that has (`_DERIVED`) or is refused.

`_kl_loss` and `_cross_entropy` follow from `_divergence` and `_entropy`; `sample` from `_draw`, which is given the whole
shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes, seed as seeds, wrap
from sporax.mindspore.common._random_streams import Generator
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.probability.bijector import parameter
from sporax.mindspore.ops._core import Array, operator, with_parameters

Formula = Callable[..., Any]
# The least positive float32.
_TINY = np.finfo(np.float32).tiny


def formula(closed: Formula) -> Any:
    """A line in the table of formulas of a distribution: a function of the value, where there is one, and the parameters."""
    return staticmethod(closed)


def _without(x: Tensor) -> Tensor:
    return 1.0 - x


_DERIVED: Mapping[str, tuple[tuple[str, Formula], ...]] = {
    "prob": (("log_prob", ops.exp),),
    "log_prob": (("prob", ops.log),),
    "sd": (("var", ops.sqrt),),
    "var": (("sd", ops.square),),
    "cdf": (("log_cdf", ops.exp), ("survival_function", _without), ("log_survival", lambda x: 1.0 - ops.exp(x))),
    "survival_function": (("log_survival", ops.exp), ("cdf", _without), ("log_cdf", lambda x: 1.0 - ops.exp(x))),
    "log_cdf": (
        ("cdf", ops.log),
        ("survival_function", lambda x: ops.log(1.0 - x)),
        ("log_survival", lambda x: ops.log(1.0 - ops.exp(x))),
    ),
    "log_survival": (
        ("survival_function", ops.log),
        ("cdf", lambda x: ops.log(1.0 - x)),
        ("log_cdf", lambda x: ops.log(1.0 - ops.exp(x))),
    ),
}
"""For each function of MindSpore's what it follows from, best first."""

_OF_VALUES = ("log_prob", "prob", "cdf", "log_cdf", "survival_function", "log_survival")
_OF_PARAMETERS = ("mean", "mode", "sd", "var", "entropy")
_OTHERS = ("kl_loss", "cross_entropy", "sample", "get_dist_args", "get_dist_type")


@operator(function="")
def noise(
    key: Array,
    parameters: tuple[Array, ...],
    kind: Literal["normal", "uniform", "gamma", "poisson", "categorical"],
    shape: tuple[int, ...],
) -> Array:
    """Float32 numbers of a simple distribution; `parameters` are those that cannot be applied to the numbers afterwards."""
    if kind == "normal":
        return jax.random.normal(key, shape, jnp.float32)
    if kind == "uniform":
        return jax.random.uniform(key, shape, jnp.float32, minval=_TINY)
    (parameter,) = parameters
    if kind == "gamma":
        return jax.random.gamma(key, parameter.astype(jnp.float32), shape)
    if kind == "poisson":
        return jax.random.poisson(key, parameter.astype(jnp.float32), shape).astype(jnp.float32)
    return jax.random.categorical(key, jnp.log(parameter), shape=shape).astype(jnp.float32)


def _check_seed(name: str, seed: Any) -> None:
    if seed is None:
        return
    For(name).typed("seed", seed, "an int", int, takes_bool=False)
    For(name).refuse(seed < 0, "'seed' must be >= 0", seed)


def _of_values(name: str, doc: str) -> Callable[..., Tensor]:
    """A method that applies a formula to a value."""

    def function(self: Distribution, value: Any, *args: Any, **kwargs: Any) -> Tensor:
        formula = self._formula(name)
        # Values of discrete distributions are computed as floats.
        kind = self.dtype if self.dtype in dtypes.float_type else self.parameter_type
        value = ops.cast(self._check_value(value, "value"), kind)
        return formula(value, *self._resolved(args, kwargs))

    return _named(function, name, doc)


def _of_parameters(name: str, doc: str) -> Callable[..., Tensor]:
    """A method that applies a formula to the parameters alone."""

    def function(self: Distribution, *args: Any, **kwargs: Any) -> Tensor:
        formula = self._formula(name)
        return formula(*self._resolved(args, kwargs))

    return _named(function, name, doc)


def _named(function: Callable[..., Tensor], name: str, doc: str) -> Callable[..., Tensor]:
    function.__name__, function.__qualname__ = name, f"Distribution.{name}"
    function.__doc__ = f"{doc} Parameters may be given."
    return function


class Distribution(Cell):
    """Base of distributions.

    Args:
        seed: of a stream of its own; None or 0: the one of all random operators.
        dtype: of samples and, where it is floating, of values.
        name: of the distribution, in messages.
        param: parameters by name, or a dict that has them as ``"param_dict"``.

    Raises:
        SporaxTypeError, SporaxValueError: `seed` is no whole number, or negative; parameters of different dtypes.
    """

    is_discrete = False

    def __init__(self, seed: int | None, dtype: DType, name: str, param: Mapping[str, Any]) -> None:
        super().__init__()
        For(type(self).__name__).typed("name", name, "a string", str)
        _check_seed(name, seed)
        allowed = dtypes.float_type if not self.is_discrete else dtypes.number_type
        For(name).one_of("dtype", dtype, allowed, kind=SporaxTypeError)
        self._name, self._seed, self._dtype = name, seed or 0, dtype
        # Seed 0 is MindSpore's word for no seed.
        self._stream = Generator(seed) if seed else seeds.operators
        # `locals()` is a usual argument.
        self._parameters = {key: value for key, value in param.items() if key != "self" and not key.startswith("_")}
        parameters = param.get("param_dict", param)
        self.parameter_type = parameter_type(parameters, dtype)
        self.parameter_names: tuple[str, ...] = ()
        complete = all(value is not None for value in parameters.values())
        self._batch_shape = (
            np.broadcast_shapes(*(np.shape(value) for value in parameters.values())) if complete else None
        )
        # Python numbers alone count as a scalar batch.
        self._is_scalar_batch = all(value is None or isinstance(value, int | float) for value in parameters.values())
        self._broadcast_shape = self._batch_shape

    name = parameter("_name", "Its name.")
    dtype = parameter("_dtype", "Dtype of samples.")
    seed = parameter("_seed", "Seed of its stream; 0 for the one of all random operators.")
    parameters = parameter("_parameters", "What it was made of.")
    is_scalar_batch = parameter("_is_scalar_batch", "Whether all parameters that are given are Python numbers.")
    batch_shape = parameter("_batch_shape", "Shape of the parameters together; None if one is not given.")
    broadcast_shape = parameter("_broadcast_shape", "As `batch_shape`; of categories, without their number.")

    def _add_parameter(self, value: Any, name: str) -> Tensor | None:
        """Keep a parameter as a Tensor, or as what is to be given at every call."""
        self.parameter_names = (*self.parameter_names, name)
        parameter = None if value is None else as_parameter(value, self.parameter_type)
        # The attribute of the subclass is the one that a Cell names.
        object.__setattr__(self, f"_default_{name}", parameter)
        return parameter

    def _check_parameters(self, param: Mapping[str, Any]) -> None:
        """Raise where the parameters that it was made of do not fit; that they are positive is checked elsewhere."""

    def _default(self, name: str) -> Tensor | None:
        return getattr(self, f"_default_{name}")

    def _check_param_type(self, *args: Any) -> Any:
        """The parameters: those given, else those kept, all in one dtype and shape.

        Raises:
            SporaxTypeError: one is neither given nor kept, or is no Tensor.
        """
        chosen = []
        for name, argument in zip(self.parameter_names, args, strict=True):
            value: Any = self._default(name) if argument is None else argument
            For(self.name).typed(name, value, "a Tensor, given here or when the distribution was made", Tensor)
            # All in one dtype, so that formulas need no casts.
            chosen.append(ops.cast(value, self.parameter_type))
        if len(chosen) == 1:
            return chosen[0]
        shape = np.broadcast_shapes(*(value.shape for value in chosen))
        return tuple(ops.broadcast_to(value, shape) for value in chosen)

    def _check_value(self, value: Any, name: str) -> Tensor:
        """`value`, a Tensor, else SporaxTypeError."""
        return For(self.name).typed(name, value, "a Tensor", Tensor)

    def _resolved(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
        """Parameters of a call, by place or by name."""
        arguments = self._by_place(args, kwargs)
        resolved = self._check_param_type(*arguments)
        return resolved if isinstance(resolved, tuple) else (resolved,)

    def _by_place(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        names = self.parameter_names
        # MindSpore's further names for the same parameters.
        positions = {alias: place for place, name in enumerate(names) for alias in (name, f"{name}1", f"{name}_a")}
        unknown = [name for name in kwargs if name not in positions]
        if len(args) > len(names) or unknown:
            raise SporaxTypeError(
                f"For '{self.name}', the parameters must be {names}, but got {len(args)} by place and {list(kwargs)}."
            )
        values = [*args, *[None] * (len(names) - len(args))]
        for name, value in kwargs.items():
            values[positions[name]] = value
        return values

    def _formula(self, name: str) -> Formula:
        own = getattr(self, f"_{name}", None)
        if own is not None:
            return own
        for source, change in _DERIVED.get(name, ()):
            formula = getattr(self, f"_{source}", None)
            if formula is not None:
                return lambda *inputs: change(formula(*inputs))
        raise SporaxNotImplementedError(f"For '{self.name}', '{name}' is not implemented.")

    log_prob = _of_values("log_prob", "Logarithm of the density, or of the probability of discrete values.")
    prob = _of_values("prob", "Density, or probability of discrete values.")
    cdf = _of_values("cdf", "Probability of values up to this one.")
    log_cdf = _of_values("log_cdf", "Logarithm of `cdf`.")
    survival_function = _of_values("survival_function", "Probability of larger values.")
    log_survival = _of_values("log_survival", "Logarithm of `survival_function`.")
    mean = _of_parameters("mean", "The mean.")
    mode = _of_parameters("mode", "The most probable value.")
    sd = _of_parameters("sd", "The standard deviation.")
    var = _of_parameters("var", "The variance.")
    entropy = _of_parameters("entropy", "The entropy, in nats.")

    def kl_loss(self, dist: str, *args: Any, **kwargs: Any) -> Tensor:
        """Kullback-Leibler divergence from this distribution to another of the same kind.

        Args:
            dist: kind of the other distribution, e.g. ``"Normal"``.
            args, kwargs: its parameters (``mean_b``), then those of this one.

        Raises:
            SporaxValueError: another kind.
        """
        divergence = self._formula("divergence")
        own, other = self._pair(dist, args, kwargs)
        return divergence(own, other)

    def cross_entropy(self, dist: str, *args: Any, **kwargs: Any) -> Tensor:
        """Entropy of this distribution plus `kl_loss`, with its arguments."""
        entropy, divergence = self._formula("entropy"), self._formula("divergence")
        own, other = self._pair(dist, args, kwargs)
        return entropy(*own) + divergence(own, other)

    def _pair(self, dist: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Parameters of this distribution, and of the other one."""
        kind = self.get_dist_type()
        For(self.name).refuse(dist != kind, f"'dist' must be '{kind}'", dist, show=repr)
        names = self.parameter_names
        others = list(args[: len(names)])
        # Parameters of the other distribution come first.
        others += [kwargs.pop(f"{name}_b", kwargs.pop(f"{name}1_b", None)) for name in names[len(others) :]]
        checked = [
            ops.cast(self._check_value(value, f"{name}_b"), self.parameter_type)
            for name, value in zip(names, others, strict=True)
        ]
        return self._resolved(args[len(names) :], kwargs), tuple(checked)

    def sample(self, shape: tuple[int, ...] = (), *args: Any, **kwargs: Any) -> Tensor:
        """Random values of shape ``shape + batch_shape``. Parameters may be given.

        Raises:
            SporaxTypeError: `shape` is no tuple.
        """
        draw = self._formula("draw")
        For(self.name).typed("shape", shape, "a tuple", tuple)
        parameters = self._resolved(args, kwargs)
        return ops.cast(draw(shape + self._event_batch(parameters), *parameters), self.dtype)

    def _event_batch(self, parameters: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Shape of what one draw gives."""
        return np.broadcast_shapes(*(value.shape for value in parameters))

    def _noise(self, kind: str, shape: tuple[int, ...], *parameters: Tensor) -> Tensor:
        """Numbers of this distribution's stream; see `noise`."""
        return noise(wrap(self._stream.next_key()), parameters, kind, shape)

    def get_dist_args(self, *args: Any, **kwargs: Any) -> tuple[Tensor | None, ...]:
        """The parameters: those given, else those kept."""
        arguments = self._by_place(args, kwargs)
        for name, value in zip(self.parameter_names, arguments, strict=True):
            if value is not None:
                self._check_value(value, name)
        return tuple(
            self._default(name) if value is None else value
            for name, value in zip(self.parameter_names, arguments, strict=True)
        )

    def get_dist_type(self) -> str:
        """The kind of distribution, for `kl_loss`."""
        return type(self).__name__

    def construct(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A function by its name: ``normal("log_prob", value)``.

        Raises:
            SporaxNotImplementedError: there is none of that name.
        """
        if name not in (*_OF_VALUES, *_OF_PARAMETERS, *_OTHERS):
            raise SporaxNotImplementedError(f"For '{self.name}', '{name}' is not implemented.")
        if name == "get_dist_type":
            return self.get_dist_type()  # the same whatever the parameters
        return getattr(self, name)(*args, **kwargs)


def parameter_type(parameters: Mapping[str, Any], hint: DType) -> DType:
    """Floating dtype of the parameters: of those that have one, which must agree, else `hint`.

    Raises:
        SporaxTypeError: they do not agree.
    """
    kinds = {name: dtypes.to_dtype(value.dtype) for name, value in parameters.items() if hasattr(value, "dtype")}
    For("Distribution").refuse_type(len(set(kinds.values())) > 1, "the parameters must have the same dtype", kinds)
    kind = next(iter(kinds.values()), hint)
    # MindSpore computes in float32 at most.
    return kind if kind in dtypes.float_type and kind != dtypes.float64 else dtypes.float32


def as_parameter(value: Any, kind: DType) -> Tensor:
    """A parameter as a Tensor; a `Parameter` stays what it is.

    Raises:
        SporaxTypeError: no number, array or Tensor.
    """
    # Kept by identity, so that training changes it.
    if isinstance(value, Parameter):
        return value
    if isinstance(value, bool) or not isinstance(value, Tensor | np.ndarray | list | int | float):
        raise SporaxTypeError(f"For 'Distribution', a parameter must be a number or Tensor, but got {value!r}.")
    return Tensor(value, dtype=kind)


def constructor(
    names: str, positive: str = "", name: str | None = None, attribute: str = "_{}", dtype: DType = dtypes.float32
) -> Any:
    """`__init__` of a distribution: its parameters, each None by default, then `seed`, `dtype` and `name`.

    Args:
        names: of the parameters, separated by spaces.
        positive: those that must be above 0, with what messages call them: ``"sd=Standard deviation, rate"``.
        name: of the distribution; that of the class by default.
        attribute: where each is kept.
        dtype: of samples, by default.
    """
    defaults = {**dict.fromkeys(names.split()), "seed": None, "dtype": dtype, "name": name}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(each, kind, default=default) for each, default in defaults.items()]
    signature = inspect.Signature(parameters)

    def init(self: Distribution, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        *values, seed, dtype, name = bound.arguments.values()
        param = dict(zip(names.split(), values, strict=True))
        Distribution.__init__(self, seed, dtype, type(self).__name__ if name is None else name, param)
        for each, value in param.items():
            setattr(self, attribute.format(each), self._add_parameter(value, each))
        self._check_parameters(param)
        for each in filter(None, positive.split(", ")):
            own, _, called = each.partition("=")
            check_positive(self._default(own), called or own)

    return with_parameters(init, parameters)


def check_positive(value: Tensor | None, name: str) -> None:
    """Raise SporaxValueError unless every element is above zero; values of a Parameter may change, so they are not tested."""
    if value is not None and not isinstance(value, Parameter) and not (value.asnumpy() > 0).all():
        raise SporaxValueError(f"{name} must be greater than zero.")


def check_probabilities(value: Tensor | None) -> None:
    """Raise SporaxValueError unless every element is between zero and one, exclusively."""
    if value is not None and not isinstance(value, Parameter):
        values = value.asnumpy()
        if not ((values > 0) & (values < 1)).all():
            raise SporaxValueError("Probabilities must be greater than zero and less than one.")
