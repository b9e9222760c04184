"""Tensor methods without a function of the same name: shapes and types, and random numbers in place.

Those that end in ``_`` give the Tensor new values and return it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxIndexError, SporaxTypeError, SporaxValueError
from sporax.mindspore.common import COOTensor, CSRTensor, DType, Tensor, dtypes, seed as seeds
from sporax.mindspore.ops._core import FUNCTIONS, PRIMITIVES, Array, check, operator
from sporax.mindspore.ops.sparse.functions import dense_to_sparse_coo, dense_to_sparse_csr


def _short(self: Tensor) -> Tensor:
    """The elements as Int16."""
    return self.astype(dtypes.int16)


def _type(self: Tensor, dtype: DType | None = None) -> Any:
    """The name of the dtype, or the elements in another one."""
    return str(self.dtype) if dtype is None else self.astype(dtype)


def _stride(self: Tensor, dim: int | None = None) -> Any:
    """How many elements further the next element of each dim (or of `dim`) is, in a list."""
    # Strides are in bytes, MindSpore's in elements.
    steps = [step // self.itemsize for step in self.strides]
    return steps if dim is None else steps[check.axis("stride", dim, self.ndim, "dim")]


def _resize(self: Tensor, *new_shape: Any) -> Tensor:
    """The elements in another shape; further ones are left out, missing ones are zero."""
    sizes = new_shape[0] if len(new_shape) == 1 and isinstance(new_shape[0], tuple | list) else new_shape
    shape = check.shape("resize", tuple(sizes), "new_shape")
    flat = self.reshape((-1,)).array
    count = 1
    for size in shape:
        count *= size
    # Truncated or filled up with zeros, whichever is needed.
    filled = jnp.pad(flat[:count], (0, max(count - flat.size, 0)))
    return Tensor(filled.reshape(shape))


def _sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over the dims in which `size` has 1, or which it lacks at the left.

    Raises:
        SporaxValueError: this shape does not come of broadcasting `size`.
    """
    sizes = size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size
    shape = check.shape("sum_to_size", tuple(sizes), "size")
    lead = self.ndim - len(shape)
    if lead < 0 or any(want not in (1, have) for want, have in zip(shape, self.shape[lead:], strict=True)):
        raise SporaxValueError(f"For 'sum_to_size', a Tensor of shape {self.shape} cannot be summed to {shape}.")
    ones = tuple(lead + dim for dim, want in enumerate(shape) if want == 1 != self.shape[lead + dim])
    axes = (*range(lead), *ones)
    return FUNCTIONS["sum"](self, axes).reshape(shape) if axes else self.reshape(shape)


def _new_empty(self: Tensor, size: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """A Tensor of `size` in this dtype, or in `dtype`; its elements are zero. There is no choice of `device`."""
    For("new_empty").refuse(device is not None, "'device' must be None", device, show=repr)
    # XLA has no uninitialised arrays.
    return FUNCTIONS["zeros"](size, dtype or self.dtype)


def _choose(self: Tensor, choices: Any, mode: str = "clip") -> Tensor:
    """For each element the number of the tensor among `choices` that gives the result there; all are broadcast.

    Args:
        choices: tensors or numbers, in a tuple or list.
        mode: must be ``"clip"``: numbers out of range stand for the first or the last tensor.
    """
    check.one_of("choose", mode, ("clip",), "mode")
    return _chosen(self, tuple(choice if isinstance(choice, Tensor) else Tensor(choice) for choice in choices))


@operator(function="")
def _chosen(numbers: Array, choices: tuple[Array, ...]) -> Array:
    """Of each place, the element of the tensor whose number is there."""
    return jnp.choose(numbers, choices, mode="clip")


def _fill_diagonal(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """This Tensor with one value on its diagonal; `wrap` goes on in tall matrices, a row below each corner."""
    return PRIMITIVES["FillDiagonal"](float(fill_value), wrap)(self)


def _fill_diagonal_(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """`fill_diagonal`, in place."""
    self._replace(_fill_diagonal(self, fill_value, wrap).array)
    return self


def _next_key(name: str, generator: Any) -> jax.Array:
    if generator is not None:
        # MindSpore's generators are streams; there is one for all operators.
        raise SporaxTypeError(f"For '{name}', 'generator' must be None: there is one stream for all operators.")
    return seeds.operators.next_key()


def _drawn(self: Tensor, values: jax.Array) -> Tensor:
    """Give the Tensor these values, in its dtype."""
    self._replace(values.astype(self.dtype.np_dtype))
    return self


def _normal_(self: Tensor, mean: float = 0, std: float = 1, *, generator: Any = None) -> Tensor:
    """Normally distributed numbers, in place."""
    # Drawn in float32 and cast: half precision has too few numbers for the tails.
    return _drawn(self, mean + std * jax.random.normal(_next_key("normal_", generator), self.shape, jnp.float32))


def _uniform_(self: Tensor, from_: float = 0, to: float = 1, *, generator: Any = None) -> Tensor:
    """Uniform numbers in [from_, to), in place."""
    key = _next_key("uniform_", generator)
    return _drawn(self, jax.random.uniform(key, self.shape, jnp.float32, from_, to))


def _uniform(self: Tensor, from_: float = 0.0, to: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform numbers in [from_, to), in the shape and dtype of this Tensor."""
    return _uniform_(self.copy(), from_, to, generator=generator)


def _random_(self: Tensor, from_: int = 0, to: int | None = None, *, generator: Any = None) -> Tensor:
    """Uniform integers in [from_, to), or in [0, from_) without `to` (up to the largest of the dtype without both)."""
    # Two arguments are bounds; one is the upper bound.
    low, high = (from_, to) if to is not None else (0, from_ or _largest(self.dtype))
    For("random_").refuse(low >= high, "'from_' must be below 'to'", f"{low} and {high}")
    return _drawn(self, jax.random.randint(_next_key("random_", generator), self.shape, low, high, jnp.int64))


def _largest(dtype: DType) -> int:
    """The largest integer up to which all integers have a number of the dtype."""
    kind = dtype.np_dtype
    # A float counts exactly up to 2 to the power of its mantissa's bits.
    return int(jnp.iinfo(kind).max) if jnp.issubdtype(kind, jnp.integer) else 2 ** (jnp.finfo(kind).nmant + 1)


def _exponential_(self: Tensor, lambd: float = 1, *, generator: Any = None) -> Tensor:
    """Exponentially distributed numbers with the rate `lambd`, in place."""
    For("exponential_").refuse(lambd <= 0, "'lambd' must be > 0", lambd)
    return _drawn(self, jax.random.exponential(_next_key("exponential_", generator), self.shape, jnp.float32) / lambd)


def _bernoulli(self: Tensor, *, generator: Any = None) -> Tensor:
    """1 with the probability that each element says, else 0."""
    draws = jax.random.bernoulli(_next_key("bernoulli", generator), self.array)
    return _drawn(self.copy(), draws)


def _bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """1 with probability `p` (a number or a Tensor), else 0, in place."""
    chance = p.array if isinstance(p, Tensor) else p
    return _drawn(self, jax.random.bernoulli(_next_key("bernoulli_", generator), chance, self.shape))


def _cauchy(self: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    """Numbers of the Cauchy distribution around `median` with the scale `sigma`, in this shape and dtype."""
    return PRIMITIVES["Cauchy"](self.shape, median, sigma)().astype(self.dtype)


def _log_normal(self: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
    """Numbers whose logarithms are normally distributed, in this shape and dtype."""
    return PRIMITIVES["LogNormalReverse"](mean, std)(self)


def _itemset(self: Tensor, *args: Any) -> Tensor:
    """A copy with one element replaced: ``itemset(value)``, or ``itemset(index, value)`` with a flat index or one per dim."""
    For("itemset").refuse(len(args) not in (1, 2), "there must be an index and a value, or a value alone", args)
    if len(args) == 1 and self.size != 1:
        raise SporaxIndexError(f"For 'itemset', the index must be given for a Tensor of shape {self.shape}.")
    where = args[0] if len(args) == 2 else 0
    if isinstance(where, int):
        if not -self.size <= where < self.size:
            raise SporaxIndexError(f"For 'itemset', the index must be below {self.size}, but got {where}.")
        where = np.unravel_index(where % self.size, self.shape)
    result = self.copy()
    result[tuple(int(place) for place in where)] = args[-1]
    return result


def _value(self: Tensor) -> Tensor:
    """A copy."""
    return self.copy()


def _storage_offset(self: Tensor) -> int:
    """0: every Tensor has memory of its own."""
    return 0


def _flush_from_cache(self: Tensor) -> None:
    """Nothing: no Tensor is cached elsewhere."""


def _move_to(self: Tensor, to: str, blocking: bool = True) -> Tensor:
    """A copy; where it is belongs to the context and to plans, so `to` is only checked."""
    For("move_to").one_of("to", to, ("CPU", "GPU", "Ascend"))
    return self.copy()


def _to_coo(self: Tensor) -> COOTensor:
    """The elements that are not 0, with their coordinates; the values must be known."""
    return dense_to_sparse_coo(self)


def _to_csr(self: Tensor) -> CSRTensor:
    """The elements that are not 0, row after row; the values must be known."""
    return dense_to_sparse_csr(self)


Tensor.data = property(lambda self: self, doc="The Tensor itself.")  # type: ignore[method-assign, assignment]  # a Parameter has its own
for _method in (
    _itemset, _value, _storage_offset, _flush_from_cache, _move_to, _to_coo, _to_csr,
    _short, _type, _stride, _resize, _sum_to_size, _new_empty, _choose, _fill_diagonal, _fill_diagonal_, _normal_,
    _uniform_, _uniform, _random_, _exponential_, _bernoulli, _bernoulli_, _cauchy, _log_normal,
):  # fmt: skip
    setattr(Tensor, _method.__name__.removeprefix("_"), _method)


def clamp_(input: Tensor, min: Any = None, max: Any = None) -> Any:
    """`Tensor.clamp_` as a function: `input` gets the values."""
    return _called("clamp_", input, min, max)


def normal_(input: Tensor, mean: float = 0, std: float = 1, *, generator: Any = None) -> Any:
    """`Tensor.normal_` as a function: `input` gets the values."""
    return _called("normal_", input, mean, std, generator=generator)


def uniform_(input: Tensor, from_: float = 0, to: float = 1, *, generator: Any = None) -> Any:
    """`Tensor.uniform_` as a function: `input` gets the values."""
    return _called("uniform_", input, from_, to, generator=generator)


def random_(input: Tensor, from_: int = 0, to: int | None = None, *, generator: Any = None) -> Any:
    """`Tensor.random_` as a function: `input` gets the values."""
    return _called("random_", input, from_, to, generator=generator)


def erfinv_(input: Tensor) -> Any:
    """`Tensor.erfinv_` as a function: `input` gets the values."""
    return _called("erfinv_", input)


def _called(name: str, input: Tensor, *args: Any, **settings: Any) -> Any:
    return getattr(input, name)(*args, **settings)


FUNCTIONS.update(clamp_=clamp_, normal_=normal_, uniform_=uniform_, random_=random_, erfinv_=erfinv_)
