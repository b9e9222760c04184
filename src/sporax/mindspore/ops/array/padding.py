"""Padding with constants, reflections and edges.

MindSpore has three orders of padding numbers: a pair per dim, flat pairs from the last dim on, and all first numbers
before all second ones. Each is brought to pairs per dim, and one function pads.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxValueError
from sporax.ir.operator_dims import Call, Dims, Shapes, numbered
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.dims import with_constants
from sporax.mindspore.ops._core.operator import Array, operator, other_form

Pads = tuple[tuple[int, int], ...]


def _padded(x: Array, pads: Pads, mode: str, value: Any = 0) -> Array:
    """`x` with cells added at both ends of each dim; negative numbers take cells away (mode "constant")."""
    if mode == "constant":
        fill = jnp.asarray(value, x.dtype)
        # XLA's pad takes negative numbers as cropping.
        return jax.lax.pad(x, fill, [(low, high, 0) for low, high in pads])
    # Cells that are left out of the mirror: the edge itself for "reflect".
    limits = {"reflect": 1, "symmetric": 0, "circular": 0, "wrap": 0}
    for (low, high), size in zip(pads, x.shape, strict=True):
        if mode in limits and max(low, high) > size - limits[mode]:
            raise SporaxValueError(
                f"For 'pad', mode {mode!r} takes at most {size - limits[mode]} cells from a dim of size {size}, "
                f"but got {(low, high)}."
            )
        if min(low, high) < 0:
            raise SporaxValueError(
                f"For 'pad', cells can be taken away only in mode 'constant', but got {(low, high)}."
            )
    return jnp.pad(x, pads, {"replicate": "edge", "circular": "wrap"}.get(mode, mode))


def _from_last(name: str, flat: tuple[int, ...], ndim: int) -> Pads:
    """Pads given as (left, right, top, bottom, …), the last dim first, as pairs for all dims."""
    if len(flat) % 2 or len(flat) > 2 * ndim:
        raise SporaxValueError.must(name, "padding", f"have two numbers a dim, at most {2 * ndim}", flat)
    pairs = [(flat[at], flat[at + 1]) for at in range(0, len(flat), 2)]
    # MindSpore counts from the last dim.
    return tuple([(0, 0)] * (ndim - len(pairs)) + pairs[::-1])


def _ints(padding: Any) -> tuple[int, ...]:
    values = padding.asnumpy().reshape(-1).tolist() if isinstance(padding, Tensor) else padding
    # One number for both ends of the last dim.
    return (values,) * 2 if isinstance(values, int) else tuple(values)


def _pad_dims(call: Call, shapes: Shapes) -> Dims:
    """Dims to which cells are added are never sharded; the first pair of numbers is of the last dim."""
    rank, numbers = len(shapes[0]), call.get("padding", ())
    pairs = enumerate(zip(numbers[::2], numbers[1::2], strict=True)) if isinstance(numbers, tuple) else ()
    names = numbered(rank, [rank - 1 - place for place, pair in pairs if any(pair)])
    return with_constants(names, shapes[0], (len(numbers),) if isinstance(numbers, tuple) else (), ())


@operator(function="", dims=_pad_dims)
def _pad(x: Array, padding: tuple[int, ...], mode: str, value: float | None) -> Array:
    """`x` with cells added around."""
    return _padded(x, _from_last("pad", padding, x.ndim), mode, 0 if value is None else value)


@operator(function="pad", mint="nn.functional.pad(input=input_x, pad=padding)", composed=True)
def pad(input_x: Any, padding: Any, mode: str = "constant", value: float | None = None) -> Any:
    """Cells added at the ends of the last dims.

    Args:
        input_x: tensor.
        padding: (left, right, top, bottom, …), two numbers for each dim, the last dim first; negative numbers take
            cells away (``"constant"`` only).
        mode: ``"constant"``; ``"reflect"`` (mirrored without the edge); ``"replicate"`` (the edge repeated);
            ``"circular"`` (from the other end).
        value: what the cells hold in mode ``"constant"``; 0 by default.
    """
    # In front of the conversion, which needs values: a mistake should not depend on them.
    check.one_of("pad", mode, ("constant", "reflect", "replicate", "circular"), "mode")
    return _pad(input_x, _ints(padding), mode, value)


@operator("Pad(paddings)", function="")
def _pad_primitive(input_x: Array, paddings: tuple[tuple[int, int], ...]) -> Array:
    """Zeros added: ``paddings[i]`` are the numbers of cells before and after dim i."""
    if len(paddings) != input_x.ndim or any(len(pair) != 2 for pair in paddings):
        raise SporaxValueError.must("Pad", "paddings", f"hold a pair for each of the {input_x.ndim} dims", paddings)
    return _padded(input_x, paddings, "constant")


@operator("PadV3(mode, paddings_contiguous)", function="", composed=True)
def _pad_v3(
    x: Any, paddings: Any, constant_value: Any = None, mode: str = "constant", paddings_contiguous: bool = True
) -> Any:
    """Cells added around; ``"constant"``, ``"reflect"``, ``"edge"`` or ``"circular"``.

    `paddings` are two numbers a dim, the last dim first; not contiguous: all the first ones, then all the second ones.
    """
    check.one_of("PadV3", mode, ("constant", "reflect", "edge", "circular"), "mode")
    flat = _ints(paddings)
    if not paddings_contiguous:
        half = len(flat) // 2
        flat = tuple(number for both in zip(flat[:half], flat[half:], strict=True) for number in both)
    value = constant_value.item() if isinstance(constant_value, Tensor) else constant_value
    return _pad(x, flat, "replicate" if mode == "edge" else mode, value)


@operator(function="mirror_pad", composed=True)
def mirror_pad(input_x: Any, paddings: Any, mode: str) -> Any:
    """Mirror images added at the ends: ``"REFLECT"`` without the edge, ``"SYMMETRIC"`` with it.

    `paddings` has a row (before, after) for each dim.
    """
    check.one_of("MirrorPad", mode, ("REFLECT", "SYMMETRIC"), "mode")
    # Rows of a tensor must be known: they decide the shape.
    rows = paddings.asnumpy().tolist() if isinstance(paddings, Tensor) else paddings
    return _mirrored(input_x, tuple(map(tuple, rows)), mode.lower())


other_form(mirror_pad, "MirrorPad(mode)", mode="REFLECT")


@operator(function="")
def _mirrored(x: Array, pads: tuple[tuple[int, int], ...], mode: str) -> Array:
    """`x` with its mirror images around."""
    return _padded(x, pads, mode)


@operator("Padding(pad_dim_size)", function="padding")
def padding(x: Array, pad_dim_size: int = 8) -> Array:
    """Zeros added to the last dim, which must be of size 1, until it has `pad_dim_size` elements."""
    if not x.ndim or x.shape[-1] != 1:
        raise SporaxValueError(f"For 'Padding', the last dim of 'x' must be of size 1, but the shape is {x.shape}.")
    return _padded(x, (*[(0, 0)] * (x.ndim - 1), (0, pad_dim_size - 1)), "constant")
