"""Random draws: from distributions, of choices, of positions, and of channels to drop.

Every draw takes one key from a stream: that of all operators (`sporax.mindspore.common.seed`), or one of its own where the call
or the constructor names a seed. A class form with a seed draws on from its stream at every call; a function with a seed gives
the same numbers every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.ir.operator_dims import Call, Dims, OperatorDims, Shapes, StrategyEntry, numbered
from sporax.mindspore.common import DType, Tensor, dtypes, seed as seeds, wrap
from sporax.mindspore.common._random_streams import Generator
from sporax.mindspore.ops._core import PRIMITIVES, Array, Operand, Operator, Primitive, check, operator, other_form
from sporax.mindspore.ops._core.dims import Stated


def stream(seed: int | None, seed2: int = 0) -> Generator:
    """The operators' stream, or a new one for a seed."""
    # Two seeds become one number, so that (1, 2) and (2, 1) are different streams.
    return seeds.operators if seed is None else Generator((seed2 << 32) + seed)


def drawn(kernel: Operator[Any], generator: Generator, *args: Any, **kwargs: Any) -> Any:
    """Call an operator whose first parameter is a key with the next key of a stream."""
    return kernel(wrap(generator.next_key()), *args, **kwargs)


def _shape(name: str, value: Any) -> tuple[int, ...]:
    # Shapes may come as tensors, whose values decide the result's shape.
    sizes = value.asnumpy().tolist() if isinstance(value, Tensor) else value
    return check.shape(name, tuple(sizes) if isinstance(sizes, list) else sizes)


# Parts of the seed and no attributes of the operator: another seed must not compile again.
_SEED_NAMES = ("seed", "seed2", "offset")


class _Draw(Primitive):
    """Class form of a random operator: seeds at construction, values at the call."""

    shape_first = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Negative seeds mean none in MindSpore.
        first, second, offset = (max(self._attributes.pop(name, 0), 0) for name in _SEED_NAMES)
        second += offset
        self._stream = Generator((second << 32) + first) if first or second else seeds.operators
        # Left out of the key of compiled programs.
        self._constants = tuple(constant for constant in self._constants if constant[0] not in _SEED_NAMES)

    def _check(self, name: str, value: Any) -> None:
        if name not in _SEED_NAMES:
            super()._check(name, value)
        elif isinstance(value, bool) or not isinstance(value, int):
            raise SporaxTypeError(f"For '{self.name}', '{name}' must be an int, but got {type(value).__name__}.")

    def __call__(self, *args: Any) -> Any:
        """Draw."""
        # Only some primitives take the shape as their first value.
        values = (_shape(self.name, args[0]), *args[1:]) if self.shape_first and args else args
        return super().__call__(wrap(self._stream.next_key()), *values)


def draw(
    primitive: str, attributes: str, dims: Stated = None, **defaults: Any
) -> Callable[[Callable[..., Any]], Operator[Any]]:
    """Make an operator of a kernel whose first parameter is a key, and register its class form.

    Args:
        primitive: name of the class form. If the kernel has `shape` after the key, the first argument of a call is a shape.
        attributes: names of the constructor's parameters, in order.
        dims: as for `operator`.
        defaults: of these parameters, where they are not the kernel's, or 0 for seeds.
    """

    def register(kernel: Callable[..., Any]) -> Operator[Any]:
        made = operator(function="", dims=dims)(kernel)
        # The operator has no function, so it gets the name of this form.
        made.name = primitive
        parameters, names = made.parameters.signature.parameters, attributes.split()
        own = {name: part.default for name, part in parameters.items() if part.default is not part.empty}
        defaulted = {**dict.fromkeys(_SEED_NAMES, 0), **own, **defaults}
        body = {
            "operator": made,
            "attribute_names": tuple(names),
            "defaults": {name: defaulted[name] for name in names if name in defaulted},
            "shape_first": [*parameters][1] == "shape",
            "__doc__": made.__doc__,
            "__module__": "sporax.mindspore.ops",
        }
        PRIMITIVES[primitive] = type(primitive, (_Draw,), body)
        return made

    return register


@draw("StandardNormal", "seed seed2")
def _standard_normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal float32 numbers."""
    return jax.random.normal(key, shape, jnp.float32)


@draw("StandardLaplace", "seed seed2")
def _standard_laplace(key: Array, shape: tuple[int, ...]) -> Array:
    """Numbers of the Laplace distribution around 0 with scale 1 (float32)."""
    return jax.random.laplace(key, shape, jnp.float32)


@draw("UniformReal", "seed seed2")
def _uniform_real(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniform float32 numbers in [0, 1)."""
    return jax.random.uniform(key, shape, jnp.float32)


@draw("UniformInt", "seed seed2")
def _uniform_int(key: Array, shape: tuple[int, ...], minval: Operand, maxval: Operand) -> Array:
    """Uniform int32 numbers in [minval, maxval)."""
    return jax.random.randint(key, shape, minval, maxval, jnp.int32)


@draw("TruncatedNormal", "dtype seed seed2")
def _truncated_normal(key: Array, shape: tuple[int, ...], dtype: DType = dtypes.float32) -> Array:
    """Standard normal numbers within two deviations."""
    return jax.random.truncated_normal(key, -2, 2, shape, dtype.np_dtype)


def _drawn_dims(call: Call, shapes: Shapes) -> Dims | None:
    """Entries: the shape that is drawn, then the parameters of the distribution, which are never sharded. The key has none."""
    shape = call.get("shape", ())
    if not isinstance(shape, tuple):
        return None
    inputs = tuple(numbered(len(shape), range(len(shape)), f"{number}.") for number, shape in enumerate(shapes))
    parameters = tuple(StrategyEntry(names, shape) for names, shape in zip(inputs[1:], shapes[1:], strict=True))
    rest = max(map(len, shapes[1:]), default=0)
    return Dims(
        inputs,
        (StrategyEntry(numbered(len(shape)), shape), *parameters),
        (*numbered(len(shape)), *numbered(rest, range(rest), "r")),
    )


@draw("Gamma", "seed seed2", dims=_drawn_dims)
def _gamma(key: Array, shape: tuple[int, ...], alpha: Operand, beta: Operand) -> Array:
    """Numbers of the gamma distribution with shape `alpha` and rate `beta`, of shape `shape` + that of the two."""
    shapes, rates = jnp.broadcast_arrays(jnp.asarray(alpha, jnp.float32), jnp.asarray(beta, jnp.float32))
    # Rate and not scale: draws are divided by it.
    return jax.random.gamma(key, shapes, (*shape, *shapes.shape), jnp.float32) / rates


@draw("RandomGamma", "seed seed2")
def _random_gamma(key: Array, shape: tuple[int, ...], alpha: check.Float) -> Array:
    """Numbers of the gamma distribution with shape `alpha` and rate 1, of shape `shape` + that of `alpha`."""
    return jax.random.gamma(key, alpha, (*shape, *alpha.shape), alpha.dtype)


@draw("Poisson", "seed seed2")
def _poisson_draw(key: Array, shape: tuple[int, ...], mean: Operand) -> Array:
    """Numbers of the Poisson distribution (int32), of shape `shape` + that of `mean`."""
    rates = jnp.asarray(mean, jnp.float32)
    return jax.random.poisson(key, rates, (*shape, *rates.shape), jnp.int32)


@draw("RandomPoisson", "seed seed2 dtype")
def _random_poisson(key: Array, shape: tuple[int, ...], rate: Array, dtype: DType = dtypes.int64) -> Array:
    """Numbers of the Poisson distribution, of shape `shape` + that of `rate`."""
    # MindSpore's default is int64; JAX draws in int32.
    return jax.random.poisson(key, rate, (*shape, *rate.shape), jnp.int32).astype(dtype.np_dtype)


@operator(function="gamma", composed=True)
def gamma(shape: Any, alpha: Any, beta: Any, seed: int | None = None) -> Any:
    """Numbers of the gamma distribution with shape `alpha` and rate `beta`."""
    return drawn(_gamma, stream(seed), _shape("gamma", shape), alpha, beta)


@operator(function="random_gamma", composed=True)
def random_gamma(shape: Any, alpha: Any, seed: int | None = None) -> Any:
    """Numbers of the gamma distribution with shape `alpha` (a floating tensor) and rate 1."""
    return drawn(_random_gamma, stream(seed), _shape("random_gamma", shape), alpha)


@operator(function="poisson", composed=True)
def poisson(shape: Any, mean: Any, seed: int | None = None) -> Any:
    """Numbers of the Poisson distribution with this mean (int32)."""
    return drawn(_poisson_draw, stream(seed), _shape("poisson", shape), mean)


@operator(function="random_poisson", composed=True)
def random_poisson(shape: Any, rate: Any, seed: int | None = None, dtype: DType = dtypes.float32) -> Any:
    """Numbers of the Poisson distribution with the mean `rate`, a tensor."""
    return drawn(_random_poisson, stream(seed), _shape("random_poisson", shape), rate, dtype)


@operator(function="standard_laplace", composed=True)
def standard_laplace(shape: Any, seed: int | None = None) -> Any:
    """Numbers of the Laplace distribution around 0 with scale 1 (float32)."""
    return drawn(_standard_laplace, stream(seed), _shape("standard_laplace", shape))


@operator(function="laplace", composed=True)
def laplace(shape: Any, mean: Any, lambda_param: Any, seed: int | None = None) -> Any:
    """Numbers of the Laplace distribution around `mean` with scale `lambda_param`."""
    # The standard distribution is scaled, so the operator needs no parameters.
    return standard_laplace(shape, seed) * lambda_param + mean


@operator(function="")
def _bernoulli(key: Array, input: Array, p: Operand) -> Array:
    """1 with probability `p`, else 0, in the shape and dtype of `input`."""
    return jax.random.bernoulli(key, jnp.asarray(p, jnp.float32), input.shape).astype(input.dtype)


@operator(function="bernoulli", composed=True)
def bernoulli(input: Any, p: Any = 0.5, seed: int | None = None) -> Any:
    """1 with probability `p` (a number in [0, 1] or a tensor), else 0, in the shape and dtype of `input`."""
    For("bernoulli").refuse(isinstance(p, int | float) and (not 0 <= p <= 1), "'p' must be in [0, 1]", p)
    return drawn(_bernoulli, stream(seed), input, p)


def _like(name: str, sample: Callable[..., Any], doc: str) -> None:
    def kernel(input: Any, seed: int | None = None, *, dtype: DType | None = None) -> Any:
        return drawn(operator_on_key, stream(seed), input.shape, dtype or input.dtype)

    @operator(function="")
    def operator_on_key(key: Array, shape: tuple[int, ...], dtype: DType) -> Array:
        return sample(key, shape, dtype.np_dtype)

    # For messages, as the operator has no name of its own.
    operator_on_key.name = name
    kernel.__name__, kernel.__doc__ = name, doc + " in the shape (and dtype) of `input`."
    operator(function=name, composed=True)(kernel)


_like("rand_like", jax.random.uniform, "Uniform numbers in [0, 1)")
_like("randn_like", jax.random.normal, "Standard normal numbers")


@operator(function="")
def _integers(key: Array, shape: tuple[int, ...], low: int, high: int, dtype: DType) -> Array:
    """Uniform integers in [low, high)."""
    For("randint_like").refuse(low >= high, "'low' must be below 'high'", f"{low} and {high}")
    # Drawn in int64 and cast, so that wide ranges work for narrow dtypes.
    return jax.random.randint(key, shape, low, high, jnp.int64).astype(dtype.np_dtype)


@operator(function="randint_like", composed=True)
def randint_like(input: Any, low: int, high: int, seed: int | None = None, *, dtype: DType | None = None) -> Any:
    """Uniform integers in [low, high) in the shape (and dtype) of `input`."""
    return drawn(_integers, stream(seed), input.shape, low, high, dtype or input.dtype)


@draw("Bernoulli", "seed offset", seed=-1)
def _bernoulli_class(key: Array, x: Array, p: Operand) -> Array:
    """1 with probability `p`, else 0, in the shape and dtype of `x`."""
    return _bernoulli.kernel(key, x, p)


@draw("Cauchy", "size median sigma")
def _cauchy(key: Array, size: tuple[int, ...], median: float = 0.0, sigma: float = 1.0) -> Array:
    """Numbers of the Cauchy distribution around `median` with the scale `sigma` (float32)."""
    For("Cauchy").refuse(sigma <= 0, "'sigma' must be > 0", sigma)
    return median + sigma * jax.random.cauchy(key, size, jnp.float32)


@draw("LogNormalReverse", "mean std")
def _log_normal(key: Array, input: check.Float, mean: float = 1.0, std: float = 2.0) -> Array:
    """Numbers whose logarithms are normally distributed, in the shape and dtype of `input`."""
    return jnp.exp(mean + std * jax.random.normal(key, input.shape, input.dtype))


@draw("ParameterizedTruncatedNormal", "seed seed2")
def _truncated_between(key: Array, shape: tuple[int, ...], mean: Array, stdevs: Array, min: Array, max: Array) -> Array:
    """Numbers of normal distributions, truncated at `min` and `max`, one distribution for each row of the result."""
    rows = [jnp.reshape(setting, (-1, *[1] * (len(shape) - 1))) for setting in (mean, stdevs, min, max)]
    mean, stdevs, low, high = rows
    # In standard deviations, as JAX draws it.
    standard = jax.random.truncated_normal(key, (low - mean) / stdevs, (high - mean) / stdevs, shape, mean.dtype)
    return mean + stdevs * standard


@draw("NonDeterministicInts", "dtype")
def _any_integers(key: Array, shape: tuple[int, ...], dtype: DType = dtypes.int64) -> Array:
    """Integers of the whole range of `dtype`."""
    check.one_of("NonDeterministicInts", dtype, (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64), "dtype")
    # Bits reinterpreted, so that every number is equally likely.
    kind = jnp.uint32 if dtype.np_dtype.itemsize == 4 else jnp.uint64
    return jax.random.bits(key, shape, kind).view(dtype.np_dtype)


@operator(function="")
def _permutation(key: Array, n: int, dtype: DType) -> Array:
    """The numbers 0 to n - 1 in random order."""
    return jax.random.permutation(key, n).astype(dtype.np_dtype)


@operator("RandpermV2(seed, offset, dtype)", function="randperm", composed=True)
def randperm(n: int, seed: int = 0, offset: int = 0, dtype: DType = dtypes.int64) -> Any:
    """The numbers 0 to n - 1 in random order; seeds other than 0 name a stream."""
    size = check.shape("randperm", n, "n") if isinstance(n, Tensor | tuple) else (n,)
    if len(size) != 1 or isinstance(n, bool) or not isinstance(size[0], int) or size[0] < 0:
        raise SporaxValueError(f"For 'randperm', 'n' must be an int >= 0, but got {n!r}.")
    # Seed 0 is the operators' stream.
    return drawn(_permutation, stream(seed or None, offset), *size, dtype)


@draw("RandomShuffle", "seed seed2")
def _shuffled(key: Array, x: Array) -> Array:
    """The rows in random order."""
    return jax.random.permutation(key, x, 0) if x.ndim else x


@operator(function="shuffle", composed=True)
def shuffle(x: Any, seed: int | None = None) -> Any:
    """The rows (slices along dim 0) in random order."""
    return drawn(_shuffled, stream(seed), x)


def _chosen(key: Array, weights: Array, count: int, replacement: bool, logarithms: bool) -> Array:
    logits = weights if logarithms else jnp.log(weights)
    if replacement:
        return jnp.moveaxis(jax.random.categorical(key, logits, -1, (count, *weights.shape[:-1])), 0, -1)
    # Ranks of noisy logits are draws without replacement (Gumbel-top-k, Kool et al. 2019).
    return jax.lax.top_k(logits + jax.random.gumbel(key, logits.shape, logits.dtype), count)[1]


@operator(function="")
def _multinomial(key: Array, x: Array, num_samples: int, replacement: bool, dtype: DType) -> Array:
    """Choices among the last dim, with probabilities in proportion to `x`."""
    check.floating("Multinomial", x=x)
    check.rank("Multinomial", (1, 2), x=x)
    if num_samples < 1 or (not replacement and num_samples > x.shape[-1]):
        raise For("Multinomial").error(
            f"'num_samples' must be >= 1, and at most {x.shape[-1]} without replacement", num_samples
        )
    return _chosen(key, x, num_samples, replacement, False).astype(dtype.np_dtype)


@operator(function="multinomial", method="multinomial", composed=True)
def multinomial(input: Any, num_samples: int, replacement: bool = True, seed: int | None = None) -> Any:
    """Choices (int32) among the last dim of `input` (n,) or (rows, n), with probabilities in proportion to it."""
    return drawn(_multinomial, stream(seed), input, num_samples, replacement, dtypes.int32)


@draw("Multinomial", "seed seed2 dtype")
def _multinomial_class(key: Array, x: Array, num_samples: int, dtype: DType = dtypes.int32) -> Array:
    """Choices among the last dim of `x`, with probabilities in proportion to it, with replacement."""
    return _multinomial.kernel(key, x, num_samples, True, dtype)


@operator(function="")
def _categorical(key: Array, logits: Array, num_sample: int, dtype: DType) -> Array:
    """Choices among the last dim of logarithms of probabilities."""
    check.rank("RandomCategorical", 2, logits=logits)
    return _chosen(key, logits, num_sample, True, True).astype(dtype.np_dtype)


@operator(function="random_categorical", method="random_categorical", composed=True)
def random_categorical(logits: Any, num_sample: int, seed: int = 0, dtype: DType = dtypes.int64) -> Any:
    """`num_sample` choices a row of `logits` (rows, n), logarithms of probabilities; a seed other than 0 is a stream."""
    return drawn(_categorical, stream(seed or None), logits, num_sample, dtype)


other_form(random_categorical, "RandomCategorical(dtype)")


def _chosen_dims(call: Call, shapes: Shapes) -> Dims:
    """A random key, which has no entry, and an input that is never sharded."""
    key, names = (numbered(len(shape), range(len(shape)), letter) for shape, letter in zip(shapes, "kd", strict=False))
    return Dims((key, names), (StrategyEntry(names, shapes[1]),))


@draw("RandomChoiceWithMask", "count seed seed2", dims=OperatorDims(_chosen_dims, unsharded=True))
def _true_positions(key: Array, input_x: Array, count: int = 256) -> tuple[Array, Array]:
    """Random positions of true elements."""
    if input_x.dtype != np.bool_ or not 1 <= input_x.ndim <= 5:
        raise SporaxTypeError(
            f"For 'RandomChoiceWithMask', 'input_x' must be Tensor[Bool] of 1 to 5 dims, but got {check.describe(input_x)}."
        )
    flat = input_x.reshape(-1)
    # 2 is above all uniform numbers, so the false ones come last.
    order = jnp.argsort(jnp.where(flat, jax.random.uniform(key, flat.shape), 2.0))  # the true ones first, shuffled
    chosen = order[:count] if count <= flat.size else jnp.pad(order, (0, count - flat.size))
    valid = jnp.arange(count) < jnp.sum(flat)
    positions = jnp.stack(jnp.unravel_index(chosen, input_x.shape), -1)
    return jnp.where(valid[:, None], positions, 0).astype(jnp.int32), valid


@operator(function="choice_with_mask", composed=True)
def choice_with_mask(input_x: Any, count: int = 256, seed: int | None = None) -> Any:
    """`count` random positions (int32) of true elements, no two the same, and which of them are real.

    Where there are too few true elements the rest of the rows is zero and marked as false.
    """
    return drawn(_true_positions, stream(seed), input_x, count)


@operator(function="")
def _channel_dropout(key: Array, x: Array, keep_prob: float, spatial: int) -> tuple[Array, Array]:
    """Whole channels zeroed, the others divided by `keep_prob`; and the mask."""
    check.tensor("Dropout", x=x)
    mask = jax.random.bernoulli(key, keep_prob, (*x.shape[: x.ndim - spatial], *[1] * spatial))
    # A probability of 0 would divide by zero, though nothing is kept.
    result = jnp.where(mask, x / jnp.asarray(keep_prob or 1, x.dtype), jnp.zeros((), x.dtype))
    return result, jnp.broadcast_to(mask, x.shape)


def _dropout_forms(dims: int) -> None:
    name = f"dropout{dims}d"

    def kernel(input: Any, p: float = 0.5, training: bool = True) -> Any:
        For(name).typed("p", p, "a number", int | float, takes_bool=False)
        For(name).refuse(not 0 <= p <= 1, "'p' must be in [0, 1]", p)
        check.rank(name, (dims + 1, dims + 2), input=input)
        if not training or p == 0:
            return input
        return drawn(_channel_dropout, stream(None), input, 1.0 - p, dims)[0]

    kernel.__name__ = name
    kernel.__doc__ = (
        f"Whole channels of {dims} dims zeroed with probability `p`, the others divided by ``1 - p`` "
        "(Tompson et al. 2015)."
    )
    operator(function=name, composed=True)(kernel)


for _dims in (1, 2, 3):
    _dropout_forms(_dims)


def _dropout_class(dims: int) -> None:
    name = f"Dropout{dims}D"

    @draw(name, "keep_prob")
    def kernel(key: Array, x: Array, keep_prob: float = 0.5) -> tuple[Array, Array]:
        """Whole channels zeroed with probability ``1 - keep_prob``, the others divided by `keep_prob`; and the mask."""
        check.rank(name, dims + 2, x=x)
        return _channel_dropout.kernel(key, x, keep_prob, dims)


_dropout_class(2)
_dropout_class(3)
