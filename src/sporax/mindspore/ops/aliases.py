"""Second names: operators that MindSpore also offers under another name, and methods that write in place.

A Tensor here holds an immutable array; a method such as ``x.add_(y)`` gives the Tensor a new one. Other Tensors that were
made from it before keep theirs, so there are no views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import check, renamed
from sporax.mindspore.ops._core.operator import FUNCTIONS, MINT, PRIMITIVES, Settings
from sporax.mindspore.ops.linalg import decompositions

_FUNCTION_ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "divide": "div", "negative": "neg", "eq": "equal", "ne": "not_equal",
    "gt": "greater", "ge": "greater_equal", "lt": "less", "le": "less_equal", "clip": "clamp", "multiply": "mul",
    "floor_divide": "floor_div", "tensor_add": "add", "tensor_sub": "sub", "tensor_mul": "mul",
    "tensor_exp": "exp", "tensor_expm1": "expm1",
    "tensor_gt": "greater", "tensor_ge": "greater_equal", "tensor_lt": "less", "tensor_le": "less_equal",
    "tensor_pow": "pow", "pows": "pow", "floormod": "floor_mod", "tensor_range": "range",
    "accumulate_n": "addn", "floordiv": "floor_div", "tensor_floordiv": "floor_div",
    "is_sequence_shape_unknown": "is_sequence_value_unknown",
}  # fmt: skip
# Where the alias calls its parameters differently: new name = old name.
_RENAMES: dict[str, dict[str, str]] = {
    "arcsin": {"x": "input"},
    "floor_divide": {"input": "x", "other": "y"},
    "floordiv": {"input": "x", "other": "y"},
    "tensor_floordiv": {"input": "x", "other": "y"},
}
_PRIMITIVE_ALIASES = {
    "TensorAdd": "Add", "Pack": "Stack", "Unpack": "Unstack", "GatherV2": "Gather", "Gelu": "GeLU", "FastGelu": "FastGeLU",
    "AccumulateNV2": "AddN",
}  # fmt: skip
_MINT_ALIASES = {
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "divide": "div", "negative": "neg", "eq": "equal", "ne": "not_equal", "gt": "greater",
    "le": "less_equal", "lt": "less", "nn.functional.tanh": "tanh",
}  # fmt: skip
_METHOD_ALIASES = {"true_divide": "div", "ndimension": "dim", "nelement": "numel"}
# Keywords that MindSpore has renamed since its first releases: function, old name = new name.
_OLDER = {
    "amax": {"keep_dims": "keepdims"}, "amin": {"keep_dims": "keepdims"}, "argmax": {"axis": "dim"},
    "dot": {"x1": "input", "x2": "other"}, "matmul": {"x1": "input", "x2": "other"},
    "norm": {"axis": "dim", "p": "ord", "keep_dims": "keepdim"},
}  # fmt: skip
# Methods that write their result to the Tensor itself.
_IN_PLACE = (
    "add", "sub", "mul", "div", "floor_divide", "remainder", "exp", "log", "floor", "sign", "sigmoid", "tanh", "erfinv",
    "clamp", "masked_fill", "masked_scatter", "scatter", "index_add", "index_fill", "index_put", "addmm",
)  # fmt: skip


def _alias(name: str, target: Callable[..., Any]) -> Callable[..., Any]:
    # A renamed form only where the names differ: most aliases are the same object.
    return renamed(target, _RENAMES.get(name, {}))


def _in_place(name: str) -> None:
    # Looked up now: the method in place computes what the plain one does, whichever module made it.
    compute = getattr(Tensor, name)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # MindSpore keeps the dtype of what is written to.
        self._replace(compute(self, *args, **kwargs).array.astype(self.array.dtype))
        return self

    method.__name__ = f"{name}_"
    method.__doc__ = f"`{name}`, with the result (in the same dtype) written to this Tensor, which is returned."
    setattr(Tensor, f"{name}_", method)


def _older_split(args: tuple[Tensor, ...], settings: Settings) -> Settings:
    """Settings for `split(x, axis, output_num)` of MindSpore 1: the number of equal parts."""
    if parts := settings.pop("output_num", None):
        size = args[0].shape[settings.setdefault("axis", 0)]
        For("split").refuse(size % parts, f"'output_num' must divide the size of the dim, {size}", parts)
        settings["split_size_or_sections"] = size // parts
    return settings


def _older_interpolate(args: tuple[Tensor, ...], settings: Settings) -> Settings:
    """Settings for `interpolate(x, roi, scales, sizes, coordinate_transformation_mode, mode)` of MindSpore 1."""
    if settings.keys().isdisjoint(("scales", "sizes")):
        return settings
    how, scales = settings.pop("coordinate_transformation_mode", "align_corners"), settings.pop("scales", None)
    check.one_of("interpolate", how, ("align_corners", "half_pixel"), "coordinate_transformation_mode")
    # Scales are of all dims.
    new = {"size": settings.pop("sizes", None), "scale_factor": scales and tuple(map(float, scales[2:]))}
    return {**new, "mode": "linear", **settings, "align_corners": how == "align_corners"}


def identity(x: Any) -> Any:
    """The argument itself, whatever it is: a Tensor, a tuple of gradients, a number."""
    return x


FUNCTIONS["identity"] = identity
for _name, _target in _FUNCTION_ALIASES.items():
    # `setdefault`: a name that a family has defined itself is not an alias.
    FUNCTIONS.setdefault(_name, _alias(_name, FUNCTIONS[_target]))
for _name, _target in _PRIMITIVE_ALIASES.items():
    PRIMITIVES.setdefault(_name, PRIMITIVES[_target])
for _name, _target in _MINT_ALIASES.items():
    MINT.setdefault(_name, _alias(_name, MINT.get(_target) or FUNCTIONS[_target]))
for _name, _target in _METHOD_ALIASES.items():
    setattr(Tensor, _name, getattr(Tensor, _target))
for _name in _IN_PLACE:
    _in_place(_name)
_older: dict[str, Any] = FUNCTIONS  # those below are all operators
for _name, _names in _OLDER.items():
    _older[_name].older = lambda _, settings, names=_names: {names.get(key, key): settings[key] for key in settings}
_older["split"].older, _older["interpolate"].older = _older_split, _older_interpolate


def _fill_(self: Tensor, value: Any) -> Tensor:
    """All elements set to one value, in place."""
    self._replace(FUNCTIONS["fills"](self, value).array)
    return self


def _zero_(self: Tensor) -> Tensor:
    """All elements set to 0, in place."""
    return _fill_(self, 0)


def _copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """The elements of `src`, broadcast and converted, in place. `non_blocking` has no meaning here."""
    self._replace(src.broadcast_to(self.shape).astype(self.dtype).array)
    return self


def _new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """A Tensor of `size` that holds one value, in this dtype unless `dtype` is given."""
    return FUNCTIONS["full"](size, fill_value, dtype=dtype or self.dtype)


def _new_zeros(self: Tensor, size: Any, dtype: Any = None) -> Tensor:
    """Zeros of `size`, in this dtype unless `dtype` is given."""
    return FUNCTIONS["full"](size, 0, dtype=dtype or self.dtype)


def _new_ones(self: Tensor, size: Any, dtype: Any = None) -> Tensor:
    """Ones of `size`, in this dtype unless `dtype` is given."""
    return FUNCTIONS["full"](size, 1, dtype=dtype or self.dtype)


def _index_copy_(self: Tensor, dim: int, index: Tensor, tensor: Tensor) -> Tensor:
    """The slices of `tensor` put at the positions `index` (a vector) along `dim`, in place."""
    where = check.axis("index_copy_", dim, self.ndim, "dim")
    check.integral("index_copy_", index=index.array)
    indices = (slice(None),) * where + (index.array,)
    self._replace(self.array.at[indices].set(tensor.array.astype(self.array.dtype)))
    return self


def _put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Elements of `source` put at, or added to, the positions `index` among all elements, in place."""
    check.integral("put_", index=index.array)
    flat = self.array.reshape(-1)
    at, values = flat.at[index.array.reshape(-1)], source.array.reshape(-1).astype(flat.dtype)
    self._replace((at.add(values) if accumulate else at.set(values)).reshape(self.shape))
    return self


def _scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Elements of `src` added at the positions `index` along `dim`, in place."""
    where = check.axis("scatter_add_", dim, self.ndim, "dim")
    check.integral("scatter_add_", index=index.array)
    indices = list(jnp.indices(index.shape, sparse=True))
    indices[where] = index.array
    values = src.array[tuple(map(slice, index.shape))].astype(self.array.dtype)
    self._replace(self.array.at[tuple(indices)].add(values))
    return self


def _get_bytes(self: Tensor) -> bytes:
    """The elements as they are in memory, in the order of rows."""
    return self.asnumpy().tobytes()


def _data_sync(self: Tensor, no_exception: bool = True) -> None:
    """Wait until the elements are computed. MindSpore's argument changes nothing here: errors are always raised."""
    jax.block_until_ready(self.array)


def _data_ptr(self: Tensor) -> int:
    """Address of the first element on its device."""
    return int(self.array.unsafe_buffer_pointer())


def _is_signed(self: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    # "V" is bfloat16 to numpy.
    return self.array.dtype.kind in "ifcV"


for _name, _answer in (("contiguous", identity), ("is_contiguous", lambda _: True)):  # there are no views
    setattr(Tensor, _name, _answer)
for _method in (
    _fill_, _zero_, _copy_, _new_full, _new_zeros, _new_ones, _is_signed,
    _index_copy_, _put_, _scatter_add_, _get_bytes, _data_sync, _data_ptr,
):  # fmt: skip
    setattr(Tensor, _method.__name__.removeprefix("_"), _method)
for _name, _operator in zip(("mT", "mH", "H"), (decompositions.transposed, *[decompositions.adjoint] * 2), strict=True):
    setattr(Tensor, _name, property(_operator, doc=_operator.__doc__))
