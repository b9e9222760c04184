"""Initializers: recipes for the first values of Parameters.

An initializer drawn from the random stream takes its ticket (`KeySequence.next_ticket`) when it is bound to a shape, and
makes the values when they are needed. So a lazily created Parameter gets the same values as one created at once, and
a Parameter created in slices the same as a whole one: threefry bits depend on the position in the full array only.

Arrays of up to `ON_HOST` elements are made by numpy (`_threefry`), since a program per shape would have to
be compiled; larger ones by a program, in which every device makes its own slice. CPUs make arrays by numpy at any size: 40 ns
per element and core, where XLA's program needs 95. The two agree to the last digits; whole arrays and slices are made in the
same way, so they agree in every bit. Numpy makes the slice of each device alone where `by_position` says that an element's
value depends on nothing but its position, and large whole arrays in blocks of rows, so that nothing but the array is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore.common import _draws as fan_functions, _threefry as threefry, dtype as dtypes, seed
from sporax.mindspore.common._draws import Draw, HostDraw, ProgramDraw, by_position
from sporax.mindspore.common._host_arrays import aligned, to_device
from sporax.mindspore.common._random_streams import key_of, key_on_host
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.tensor import Tensor, to_array
from sporax.runtime.ranks import joint_arrays

Shape = tuple[int, ...]
Arrange = Callable[[jax.Array], jax.Array]
ON_HOST = 1 << 24
"""Elements up to which numpy makes the values, 16 ns each: about a quarter of a second, less than a compilation."""

_FARTHEST = 5.4
"""Deviations finite in single precision: beyond it, a draw in 2**24 would land on a bound of any distance."""


class Initializer:
    """Base class. Subclasses give `values`; MindSpore users may give ``_initialize(arr)``, which fills a numpy array."""

    random = True
    """Whether `values` draws."""

    @property
    def may_be_sharded(self) -> bool:
        """Whether `values` gives a block to who draws one."""
        return getattr(type(self).values, "by_position", False)

    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Values of the whole array, by numpy or JAX as `draw` says. Traceable, so slices can be made where they live."""
        raise NotImplementedError

    def settings(self) -> tuple[Any, ...]:
        """What distinguishes this recipe from others of its class."""
        return tuple(sorted((name, value) for name, value in vars(self).items()))

    def bound(self, shape: Shape, dtype: DType) -> BoundInitializer:
        """This recipe for one array."""
        return BoundInitializer(self, shape, dtype)

    def __call__(self, arr: np.ndarray[Any, Any]) -> None:
        """Fill a numpy array in place."""
        arr[...] = np.asarray(self.bound(arr.shape, dtypes.from_numpy(arr.dtype)).make())


class BoundInitializer:
    """An initializer with shape, dtype and its place in the random stream."""

    __slots__ = ("dtype", "recipe", "shape", "ticket")

    def __init__(self, recipe: Initializer, shape: Shape, dtype: DType) -> None:
        self.recipe = recipe
        self.shape = shape
        self.dtype = dtype
        # Taken even if the values are made much later, so that the order of creation decides.
        self.ticket = seed.initializers.next_ticket() if recipe.random else (0, 0)

    def make(self, sharding: jax.sharding.Sharding | None = None, arrange: Arrange | None = None) -> jax.Array:
        """The values; with a sharding, every device makes its own slice of them (the same values).

        Args:
            sharding: where they should be.
            arrange: brings the whole array into the form that is kept; equal functions share one compilation.
        """
        # A subclass in MindSpore's style, which fills numpy arrays.
        if hasattr(self.recipe, "_initialize"):
            array = np.zeros(self.shape, self.dtype.np_dtype)
            self.recipe._initialize(array)
            return _placed(array, sharding, arrange)
        small = math.prod(self.shape) <= ON_HOST
        # A table in blocks of rows is arranged by the program that makes it.
        if small or (jax.default_backend() == "cpu" and (sharding is None or arrange is None)):
            # An array that is whole on every device is made once, and one transfer brings it to all of them.
            if sharding is None or arrange is not None or not self.may_be_sharded or sharding.is_fully_replicated:
                return _placed(self._on_host(), sharding, arrange)
            return self._in_slices(sharding)
        # The recipe's settings, not the object, so that equal recipes share a program.
        maker = _maker(
            cast("Any", type(self.recipe)), self.recipe.settings(), self.shape, self.dtype.np_dtype, sharding, arrange
        )
        return maker(self.recipe, self.ticket)

    @property
    def may_wait(self) -> bool:
        """Whether the values do not depend on when they are made."""
        return not hasattr(self.recipe, "_initialize")

    @property
    def may_be_sharded(self) -> bool:
        """Whether a slice can be made without the whole."""
        return self.recipe.may_be_sharded

    def _on_host(self) -> np.ndarray[Any, Any]:
        """The whole array; large ones in blocks of rows, since expressions of numpy need several arrays of their size."""
        key, dtype = key_on_host(self.ticket), self.dtype.np_dtype
        if math.prod(self.shape) <= _BLOCK or not self.may_be_sharded:
            return np.asarray(self.recipe.values(HostDraw(key), self.shape, dtype))
        return self._block(threefry.Region.of_array(self.shape))

    def _block(self, region: threefry.Region) -> np.ndarray[Any, Any]:
        """One block of the array."""
        key, dtype = key_on_host(self.ticket), self.dtype.np_dtype
        count = max(1, _BLOCK // math.prod(region.shape[1:])) if region.shape else 1
        if not region.shape or count >= region.shape[0]:
            return np.asarray(self.recipe.values(HostDraw(key, region), self.shape, dtype))
        out = aligned(region.shape, np.dtype(dtype))
        for first in range(0, region.shape[0], count):
            rows = out[first : first + count]
            part = threefry.Region(region.full, (region.start[0] + first, *region.start[1:]), rows.shape)
            rows[...] = self.recipe.values(HostDraw(key, part), self.shape, dtype)
        return out

    def _in_slices(self, sharding: jax.sharding.Sharding) -> jax.Array:
        """Every device of this process its slice; equal ones are made once."""
        shape = self.shape
        placed: dict[tuple[tuple[int, int], ...], jax.Array] = {}
        arrays = []
        for device, index in sharding.addressable_devices_indices_map(shape).items():
            there = jax.sharding.SingleDeviceSharding(device, memory_kind=sharding.memory_kind)
            bounds = tuple(part.indices(size)[:2] for part, size in zip(index or (), shape, strict=True))
            values: Any = placed.get(bounds)
            if values is None:
                sizes = tuple(high - low for low, high in bounds)
                values = self._block(threefry.Region(shape, tuple(low for low, _ in bounds), sizes))
            placed[bounds] = jax.device_put(values, there)
            arrays.append(placed[bounds])
        return jax.make_array_from_single_device_arrays(shape, sharding, arrays, dtype=self.dtype.np_dtype)


_BLOCK = 1 << 22
"""Elements that are made at a time: 16 MiB, which several arrays of an expression take."""


def _placed(array: np.ndarray[Any, Any], sharding: jax.sharding.Sharding | None, arrange: Arrange | None) -> jax.Array:
    # Arranging is a function of JAX arrays.
    arranged = array if arrange is None else arrange(jnp.asarray(array))
    if sharding is not None:
        return joint_arrays.place(arranged, sharding)
    return to_device(arranged) if isinstance(arranged, np.ndarray) else arranged


@lru_cache(maxsize=512)
def _maker(
    kind: Hashable,
    settings: tuple[Any, ...],
    shape: Shape,
    dtype: Any,
    sharding: jax.sharding.Sharding | None,
    arrange: Arrange | None = None,
) -> Callable[[Initializer, tuple[int, int]], jax.Array]:
    # Compiled with the first recipe of these settings; equal ones give the same program.
    compiled: dict[str, Any] = {}

    def make(recipe: Initializer, ticket: tuple[int, int]) -> jax.Array:
        if "call" not in compiled:
            arranged = arrange or (lambda array: array)
            compiled["call"] = jax.jit(
                lambda key: arranged(recipe.values(ProgramDraw(key), shape, dtype)), out_shardings=sharding
            )
        return compiled["call"](key_of(ticket))

    return make


def initializer(init: Any, shape: Any = None, dtype: DType = dtypes.float32) -> Tensor:
    """A lazy Tensor with the values of `init`.

    Args:
        init: a Tensor, an Initializer, its registered name (``"normal"``, ``"zeros"``, …), a number, or a numpy array.
        shape: sizes of the dimensions; may be left out when `init` is a Tensor.
        dtype: element type.

    Raises:
        SporaxTypeError: `init` is none of these.
        SporaxValueError: unknown name, or a shape that disagrees with the Tensor's.

    Example:
        >>> Parameter(initializer("normal", (2, 3), mindspore.float32), name="w")
    """
    if not isinstance(init, Tensor | Initializer | str | int | float | np.ndarray):
        raise SporaxTypeError(
            "For 'initializer', the type of the 'init' argument should be 'Tensor', 'number', 'string' or 'initializer', "
            f"but got {type(init).__name__}."
        )
    sizes = _checked_shape(shape)
    if isinstance(init, Tensor | np.ndarray):
        return _from_values(init, sizes, dtype)
    For("initializer").refuse(sizes is None, "'shape' must be given unless 'init' is a Tensor")
    if isinstance(init, str):
        init = by_name(init)
    elif isinstance(init, int | float):
        init = Constant(init)
    return Tensor(shape=sizes, dtype=dtype, init=init)


def _from_values(init: Any, shape: Shape | None, dtype: DType) -> Tensor:
    array = to_array(init, dtype)
    # `init` wins, so a shape that disagrees is a mistake.
    if shape is not None and tuple(array.shape) != shape:
        raise For("initializer").error("the shape of 'init' must equal 'shape'", tuple(array.shape), shape)
    return Tensor(array, dtype)


def _checked_shape(shape: Any) -> Shape | None:
    if shape is None:
        return None
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise For("initializer").type_error("'shape' must hold ints", f"{type(size).__name__} in {sizes}")
        For("initializer").refuse(size < 1, "the sizes in 'shape' must be positive", sizes)
    return tuple(int(size) for size in sizes)


_NAMES: dict[str, type[Initializer]] = {}


def _register(*aliases: str) -> Callable[[type[Initializer]], type[Initializer]]:
    """Decorator that gives a class of initializers names by which `initializer` finds it: its own in lower case, `aliases`."""

    def register(cls: type[Initializer]) -> type[Initializer]:
        for name in (cls.__name__.lower(), *aliases):
            # `setdefault`: our own classes keep their names.
            _NAMES.setdefault(name, cls)
        return cls

    return register


def by_name(name: str) -> Initializer:
    """The Initializer registered under a name."""
    kind = _NAMES.get(name.lower())
    if kind is None:
        raise For("initializer").error(f"no initializer is called '{name}'; known: {sorted(_NAMES)}")
    return kind()


@_register("zeros")
class Zero(Initializer):
    """All zeros."""

    random = False

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Zeros."""
        return draw.full(shape, 0, dtype)


@_register("ones")
class One(Initializer):
    """All ones."""

    random = False

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Ones."""
        return draw.full(shape, 1, dtype)


class Constant(Initializer):
    """All `value`."""

    random = False

    def __init__(self, value: float) -> None:
        self.value = value

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """The constant."""
        return draw.full(shape, self.value, dtype)


@_register()
class Identity(Initializer):
    """The identity matrix; 2-D only."""

    random = False

    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Ones on the diagonal."""
        For("Identity").refuse(len(shape) != 2, "the shape must have 2 dimensions", shape)
        return draw.xp.eye(*shape, dtype=dtype)


class Dirac(Initializer):
    """Kernel that passes its input through: 3-D, 4-D or 5-D, first dim divisible by `groups`."""

    random = False

    def __init__(self, groups: int = 1) -> None:
        if not isinstance(groups, int) or groups <= 0:
            raise SporaxTypeError(f"For 'Dirac', 'groups' must be a positive int, but got {groups!r}.")
        self.groups = groups

    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Ones in the middle of the kernel, channel by channel."""
        For("Dirac").refuse(len(shape) not in (3, 4, 5), "the shape must have 3, 4 or 5 dimensions", shape)
        For("Dirac").refuse(shape[0] % self.groups, f"dim 0 ({shape[0]}) must be divisible by 'groups' ({self.groups})")
        # Each group passes its own channels through.
        per_group = shape[0] // self.groups
        # As many channels as there are on the smaller side.
        out, channel = np.divmod(np.arange(self.groups * min(per_group, shape[1])), min(per_group, shape[1]))
        centre = tuple(size // 2 for size in shape[2:])
        kernel: Any = np.zeros(shape, dtype)
        kernel[(out * per_group + channel, channel, *centre)] = 1
        return kernel


@_register()
class Normal(Initializer):
    """Normal distribution with deviation `sigma` around `mean`."""

    def __init__(self, sigma: float = 0.01, mean: float = 0.0) -> None:
        self.sigma = sigma
        self.mean = mean

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        return (self.mean + self.sigma * draw.normal(shape)).astype(dtype)


@_register()
class Uniform(Initializer):
    """Uniform distribution on [-scale, scale]."""

    def __init__(self, scale: float = 0.07) -> None:
        self.scale = scale

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        return draw.uniform(shape, self.scale).astype(dtype)


@_register()
class TruncatedNormal(Initializer):
    """Normal distribution with deviation `sigma` around `mean`, redrawn outside [a, b]."""

    def __init__(self, sigma: float = 0.01, mean: float = 0.0, a: float = -2.0, b: float = 2.0) -> None:
        For("TruncatedNormal").refuse(not a < b, "'a' must be smaller than 'b'", f"{a} and {b}")
        self.sigma = sigma
        self.mean = mean
        self.a = a
        self.b = b

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        # The bounds are of the result, the draw of the unit normal.
        bounds = ((bound - self.mean) / self.sigma for bound in (self.a, self.b))
        low, high = (min(max(bound, -_FARTHEST), _FARTHEST) for bound in bounds)
        unit = draw.truncated_normal(shape, low, high)
        return (self.mean + self.sigma * unit).astype(dtype)


class _ByFan(Initializer):
    """Deviation or bound worked out from how many inputs and outputs the array connects."""


@_register("xavier_uniform")
class XavierUniform(_ByFan):
    """Uniform on ``gain * sqrt(6 / (fan_in + fan_out))`` (Glorot & Bengio 2010)."""

    def __init__(self, gain: float = 1) -> None:
        self.gain = gain

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        return draw.uniform(shape, self.gain * math.sqrt(6.0 / sum(fan_functions.fans(shape)))).astype(dtype)


@_register("xavier_normal")
class XavierNormal(_ByFan):
    """Normal with deviation ``gain * sqrt(2 / (fan_in + fan_out))`` (Glorot & Bengio 2010)."""

    def __init__(self, gain: float = 1) -> None:
        self.gain = gain

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        return (self.gain * math.sqrt(2.0 / sum(fan_functions.fans(shape))) * draw.normal(shape)).astype(dtype)


class _He(_ByFan):
    def __init__(self, negative_slope: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> None:
        if mode not in ("fan_in", "fan_out"):
            raise For(type(self).__name__).error("'mode' must be 'fan_in' or 'fan_out'", f"'{mode}'")
        self.negative_slope = negative_slope
        self.mode = mode
        self.nonlinearity = nonlinearity

    def deviation(self, shape: Shape) -> float:
        """Standard deviation that keeps the variance of activations (He et al. 2015)."""
        fan_in, fan_out = fan_functions.fans(shape)
        # Fan in keeps the size of activations, fan out that of gradients.
        return fan_functions.gain(self.nonlinearity, self.negative_slope) / math.sqrt(
            fan_in if self.mode == "fan_in" else fan_out
        )


@_register("he_uniform")
class HeUniform(_He):
    """Uniform with the deviation of He et al. 2015."""

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        # A uniform distribution on [-b, b] has the deviation b / sqrt(3).
        return draw.uniform(shape, math.sqrt(3.0) * self.deviation(shape)).astype(dtype)


@_register("he_normal")
class HeNormal(_He):
    """Normal with the deviation of He et al. 2015."""

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        return (self.deviation(shape) * draw.normal(shape)).astype(dtype)


class VarianceScaling(_ByFan):
    """Variance ``scale / n`` with n the fan chosen by `mode`; `distribution` truncated_normal, untruncated_normal, uniform."""

    def __init__(self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal") -> None:
        For("VarianceScaling").refuse(scale <= 0, "'scale' must be positive", scale)
        For("VarianceScaling").one_of("mode", mode, ("fan_in", "fan_out", "fan_avg"))
        if distribution not in ("truncated_normal", "untruncated_normal", "uniform"):
            raise For("VarianceScaling").error(
                f"'distribution' must be 'truncated_normal', 'untruncated_normal' or 'uniform', but got '{distribution}'"
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution

    @by_position
    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        fan_in, fan_out = fan_functions.fans(shape)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        # A fan of less than 1 would make the variance grow without bound.
        variance = self.scale / max(1.0, fan)
        if self.distribution == "uniform":
            return draw.uniform(shape, math.sqrt(3.0 * variance)).astype(dtype)
        if self.distribution == "untruncated_normal":
            return (math.sqrt(variance) * draw.normal(shape)).astype(dtype)
        # 0.8796… is the deviation of a unit normal truncated at two deviations.
        deviation = math.sqrt(variance) / 0.87962566103423978
        return (deviation * draw.truncated_normal(shape, -2.0, 2.0)).astype(dtype)


class Orthogonal(Initializer):
    """Orthonormal rows or columns, scaled by `gain` (Saxe et al. 2013)."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        For("Orthogonal").refuse(len(shape) < 2, "the shape must have at least 2 dimensions", shape)
        rows, columns = shape[0], math.prod(shape[1:])
        xp = draw.xp
        # A tall matrix has orthonormal columns; a wide one is its transpose.
        tall = draw.normal((max(rows, columns), min(rows, columns)))
        q, r = xp.linalg.qr(tall)
        # The signs make the distribution uniform: QR itself prefers a sign.
        q = q * xp.sign(xp.diagonal(r))
        return (self.gain * (q if rows >= columns else q.T)).reshape(shape).astype(dtype)


class Sparse(Initializer):
    """Normal with deviation `sigma`, and a share `sparsity` of each column set to zero; 2-D only."""

    def __init__(self, sparsity: float, sigma: float = 0.01) -> None:
        For("Sparse").refuse(not 0 <= sparsity <= 1, "'sparsity' must be in [0, 1]", sparsity)
        self.sparsity = sparsity
        self.sigma = sigma

    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """Draw."""
        For("Sparse").refuse(len(shape) != 2, "the shape must have 2 dimensions", shape)
        values, order = draw.split()
        # Rounded up, so that a small share still gives a zero in each column.
        num_zeros = math.ceil(self.sparsity * shape[0])
        xp = draw.xp
        # Sorting twice gives each element its rank within the column.
        ranks = xp.argsort(xp.argsort(order.uniform(shape, 1.0), axis=0), axis=0)
        return xp.where(ranks < num_zeros, 0.0, self.sigma * values.normal(shape)).astype(dtype)


# What scripts import from this module in MindSpore, with its names.
_calculate_fan_in_and_fan_out = fan_functions.fan_in_and_fan_out
_calculate_correct_fan = fan_functions.fan_of_mode
_calculate_gain = fan_functions.gain_of
_assignment = fan_functions.filled_with
_calculate_in_and_out = fan_functions.fans_of_array
_init_random_normal = fan_functions.normal_numbers
_init_random_uniform = fan_functions.uniform_numbers
