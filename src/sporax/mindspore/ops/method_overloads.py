"""Second signatures of Tensor methods: MindSpore takes ``x.sum(axis=0, keepdims=True)`` and ``x.sum(dim=0, keepdim=True)``.

MindSpore's methods have overloads, one with its own names of parameters and one with PyTorch's. A call belongs to the second
one when it uses a name that only the second one has; for a few methods the kind of a positional argument decides
(``x.max(0)`` is a pair outside of compiled code, ``x.max((0,))`` and ``x.max(axis=0)`` are not). The table below has for each
method the names that only the second signature has, and the function behind it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from sporax.base.errors import For, SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore.common import Tensor, dtypes
from sporax.mindspore.ops._core import FUNCTIONS, MINT, Array, check, operator, with_signature
from sporax.runtime.state import frames

_Function = Callable[..., Any]

FIRST = {"index_add": Tensor.index_add}
"""Methods as they are with their first signature alone."""


def _renamed(name: str, renames: Mapping[str, str]) -> _Function:
    """The method `name`, called with other names of its parameters."""
    # Looked up once, before it is overloaded.
    method = getattr(Tensor, name)

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **{renames.get(key, key): value for key, value in kwargs.items()})

    return call


def _overload(
    name: str, names: str, function: _Function, by_place: Callable[..., bool] | None = None, same_result: bool = True
) -> None:
    """Let the method `name` go to `function` when one of `names` is used, or when `by_place` says so."""
    first, own = getattr(Tensor, name), tuple(names.split())

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        # A name decides where it can; only a few methods need a look at the kinds of arguments.
        is_second = not kwargs.keys().isdisjoint(own) or (by_place is not None and by_place(*args, **kwargs))
        return (function if is_second else first)(self, *args, **kwargs)

    functools.update_wrapper(method, first)
    signature = inspect.signature(first)
    if not same_result:
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    parameters = list(signature.parameters.values())
    # For `inspect`: either signature may lack the other's required parameters, so all have a default.
    parameters = [p.replace(default=None) if p.default is p.empty and p.name != "self" and p.kind is not p.VAR_POSITIONAL
                  and p.kind is not p.VAR_KEYWORD else p for p in parameters]  # fmt: skip
    last = [parameters.pop()] if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else []
    more = [inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any") for option in own]
    more = [] if last else more
    setattr(Tensor, name, with_signature(method, signature.replace(parameters=[*parameters, *more, *last])))


def _is_torch_reduction(*args: object, **kwargs: object) -> bool:
    # Code that is compiled has MindSpore's own signature where no name decides: there ``x.max(0)`` is no pair.
    return _is_int(*args) and not kwargs and not frames.compiling()


def _is_int(*args: object, **_: object) -> bool:
    return bool(args) and isinstance(args[0], int) and not isinstance(args[0], bool)


def _are_two_dims(*args: object, **kwargs: object) -> bool:
    # ``x.transpose(0, 1)`` exchanges two dims; in code that is compiled it is a permutation, which leaves a matrix as it is.
    return len(args) == 2 and _is_int(*args) and _is_int(*args[1:]) and not frames.compiling()


# Same function, other names.
_RENAMED = """
    all any mean prod: dim=axis keepdim=keep_dims
    argmax argmin median nansum: dim=axis keepdim=keepdims
    std var: dim=axis correction=ddof keepdim=keepdims
    chunk cumsum index_select: dim=axis
    count_nonzero unsqueeze: axis=dim
    expand_as: x=other
    floor_divide where: other=y
    isclose: x2=other
    logical_and logical_or: y=other
    matmul: tensor2=other
    remainder: divisor=other
    tile: reps=dims
"""
for _names, _, _pairs in (line.partition(":") for line in _RENAMED.strip().splitlines()):
    _renames = dict(pair.split("=") for pair in _pairs.split())
    for _name in _names.split():
        _overload(_name, " ".join(_renames), _renamed(_name, _renames))


def _pair(values_and_positions: str) -> _Function:
    """`max` or `min` along one dim: values and positions (int64)."""

    def method(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        values, positions = getattr(self, values_and_positions)(dim, keepdim)
        return values, positions.astype(dtypes.int64)

    return method


def _scaled(name: str) -> _Function:
    """`add` or `sub` with ``alpha * other``."""

    def method(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
        return FUNCTIONS[name](self, other * alpha)

    return method


def _sort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return FUNCTIONS["sort"](self, dim, descending)  # which is stable in any case


def _argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return FUNCTIONS["argsort"](self, dim, descending)  # which is stable in any case


def _flattened(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    return MINT["flatten"](self, start_dim, end_dim)


def _tiled(self: Tensor, *dims: int) -> Any:
    return MINT["tile"](self, dims)


def _index_add(
    self: Tensor, indices: Tensor, y: Tensor, axis: int, use_lock: bool = True, check_index_bound: bool = True
) -> Any:
    return FIRST["index_add"](self, axis, indices, y)


def _split(self: Tensor, split_size: Any, dim: int = 0) -> Any:
    return MINT["split"](self, split_size, dim)


def _repeat_interleave(self: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Any:
    result = MINT["repeat_interleave"](self, repeats, dim)
    length = result.shape[0 if dim is None else dim]
    if output_size is not None and output_size != length:
        raise SporaxValueError(
            f"For 'repeat_interleave', 'output_size' must be the length of the result, {length}, but got {output_size}."
            # MindSpore checks the length instead of using it.
        )
    return result


@operator(function="")
def _taken(input: Array, indices: Array, axis: int | None, mode: str) -> Array:
    check.integral("take", indices=indices)
    return jnp.take(input, indices, axis, mode=mode)


def _take(self: Tensor, indices: Any, axis: int | None = None, mode: str = "clip") -> Any:
    # Raising needs values, which a compiled step does not have.
    For("take").refuse(mode == "raise", "'mode' must be 'clip' or 'wrap'", "'raise'", kind=SporaxNotImplementedError)
    check.one_of("take", mode, ("clip", "wrap"), "mode")
    return _taken(self, indices, axis, mode)


def _permute(self: Tensor, dims: Any) -> Any:
    return FUNCTIONS["permute"](self, dims)


def _converted(
    self: Tensor,
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    other: Any = None,
    copy: bool = False,
    **settings: Any,
) -> Tensor:
    """The second signatures of `to`: `device` and `non_blocking` are accepted, since plans place tensors."""
    # `to` takes many forms; a wrong name would be ignored silently otherwise.
    unknown = set(settings) - {"non_blocking"}
    if unknown:
        raise SporaxTypeError(f"For 'to', got an unexpected keyword argument {min(unknown)!r}.")
    for value in args:
        if isinstance(value, Tensor):
            other = value
        elif isinstance(value, str) and value in ("CPU", "GPU", "Ascend"):
            device = value
        elif value is not None and not isinstance(value, bool):
            dtype = value
    if device is not None and device not in ("CPU", "GPU", "Ascend"):
        raise SporaxValueError(f"For 'to', 'device' must be 'CPU', 'GPU' or 'Ascend', but got {device!r}.")
    target = other.dtype if isinstance(other, Tensor) else dtype
    # Devices are places of a plan here, so only a dtype changes anything.
    return self if target is None else self.astype(target)


def _is_target(*args: object, **_: object) -> bool:
    return bool(args) and (isinstance(args[0], Tensor) or args[0] in ("CPU", "GPU", "Ascend"))


_overload("sum", "dim keepdim", MINT["sum"], lambda *args, **_: len(args) == 2 and isinstance(args[1], bool))
_overload("max", "dim keepdim", _pair("argmax_with_value"), _is_torch_reduction, same_result=False)
_overload("min", "dim keepdim", _pair("argmin_with_value"), _is_torch_reduction, same_result=False)
_overload("sort", "dim stable", _sort, lambda *args, **_: len(args) == 3)
_overload("argsort", "dim stable", _argsort, lambda *args, **_: len(args) == 3)
_overload("flatten", "", _flattened, _is_int)
_overload("tile", "", _tiled, _is_int)
_overload("gather", "dim index", MINT["gather"], _is_int)
_overload("select", "dim index", _renamed("select", {"dim": "condition", "index": "y"}))
_overload("split", "split_size dim", _split)
_overload("take", "indices axis mode", _take, lambda *args, **_: len(args) > 1)
_overload("permute", "dims", _permute)
_overload("transpose", "dim0 dim1", MINT["transpose"], _are_two_dims)
_overload("add", "alpha", _scaled("add"))
_overload("sub", "alpha", _scaled("sub"))
_overload("subtract", "alpha", _scaled("sub"))
_overload("repeat_interleave", "output_size", _repeat_interleave)
_overload("scatter_add", "indices updates", FUNCTIONS["tensor_scatter_add"])
_overload("index_add", "indices y axis", _index_add, lambda *args, **_: bool(args) and isinstance(args[0], Tensor))
_overload("to", "device other non_blocking", _converted, _is_target)


def _in_place(name: str) -> _Function:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self._replace(getattr(self, name)(*args, **kwargs).array.astype(self.array.dtype))
        return self

    return method


for _name in ("add", "sub"):
    _overload(f"{_name}_", "alpha", _in_place(_name))
