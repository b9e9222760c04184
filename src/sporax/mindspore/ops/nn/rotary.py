"""Rotary position embedding (Su et al., "RoFormer", arXiv 2104.09864): pairs of elements turned by an angle of the position.

`RotaryPositionEmbedding` turns one tensor, `ApplyRotaryPosEmb` queries and keys. A pair is an element of the first half and
its partner in the second (GPT-NeoX), or two neighbours (GPT-J).
"""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxValueError
from sporax.ir.operator_dims import Call, Dims, Names, NumSlices, OperatorDims, Shapes
from sporax.mindspore.ops._core import LAST, Array, check, operator
from sporax.mindspore.ops._generated import GENERATED

_BY_HALVES, _BY_NEIGHBOURS = 0, 1


def _turned(x: Array, cos: Array, sin: Array, mode: int) -> Array:
    """`x` turned by the angles, which fit its shape."""
    if mode == _BY_HALVES:
        first, second = jnp.split(x, 2, -1)
        partner = jnp.concatenate([-second, first], -1)
    else:
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        partner = jnp.stack([-pairs[..., 1], pairs[..., 0]], -1).reshape(x.shape)
    return (x * cos + partner * sin).astype(x.dtype)


@operator("RotaryPositionEmbedding()", function="rotary_position_embedding", classes=GENERATED, dims=LAST)
def rotary_position_embedding(x: check.Float, cos: check.Float, sin: check.Float, mode: Literal[0, 1] = 0) -> Array:
    """``x * cos + partner * sin``, where the partner of (a, b) is (-b, a).

    Args:
        x: four dimensions, the last one of even size.
        cos, sin: of the angles, in the shape of `x` or with dimensions of size 1.
        mode: 0: pairs of an element and the one half of the dimension behind it; 1: of neighbours.

    Raises:
        SporaxValueError: shapes that do not fit, or an odd last dimension.
    """
    _check("RotaryPositionEmbedding", x, cos, sin)
    return _turned(x, cos, sin, mode)


def _check(name: str, x: Array, cos: Array, sin: Array) -> None:
    check.rank(name, 4, x=x, cos=cos, sin=sin)
    fits = (
        all(size in (1, of_x) for size, of_x in zip(cos.shape, x.shape, strict=True)) and cos.shape[-1] == x.shape[-1]
    )
    if not fits or sin.shape != cos.shape or x.shape[-1] % 2:
        raise SporaxValueError(
            f"For '{name}', 'cos' and 'sin' must have the shape of 'x', or dimensions of size 1 in front of the last, which "
            f"must be even, but got {x.shape}, {cos.shape} and {sin.shape}."
        )


@operator("RotaryPositionEmbeddingGrad()", function="", classes=GENERATED, dims=LAST)
def _rotary_position_embedding_grad(
    dy: check.Float, cos: check.Float, sin: check.Float, dx: Array | None = None, mode: Literal[0, 1] = 0
) -> tuple[Array, Array, Array]:
    """Derivatives of `RotaryPositionEmbedding` by its inputs; `dx` is its `x`, without which those of cos and sin are zeros."""
    _check("RotaryPositionEmbeddingGrad", dy, cos, sin)
    x = jnp.zeros_like(dy) if dx is None else dx

    def turned(x: Array, cos: Array, sin: Array) -> Array:
        return _turned(x, cos, sin, mode)

    gradients: tuple[Array, Array, Array] = jax.vjp(turned, x, cos, sin)[1](dy)
    return gradients


def _apply_names(shape: tuple[int, ...]) -> Names:
    return {4: ("b", "s!", "n", "d!"), 3: ("b", "s!", "h")}.get(len(shape), ("s!", "h"))


def _apply_dims(call: Call, shapes: Shapes) -> Dims:
    """Batch and heads of queries and keys are sharded equally; angles are whole."""
    query, key, cos, sin, positions = shapes
    angles = [tuple(f"{name}{dim}!" for dim in range(len(shape))) for name, shape in (("c", cos), ("c", sin))]
    of_positions: Names = tuple(f"p{dim}!" for dim in range(len(positions)))
    if len(query) == 3 and positions[:1] == query[:1]:
        of_positions = ("b", *of_positions[1:])
    return Dims((_apply_names(query), _apply_names(key), *angles, of_positions), leader=0)


def _between_heads(call: Call, shapes: Shapes, slices: NumSlices, num_devices: int) -> None:
    size = shapes[2][-1]
    for shape, counts in zip(shapes[:2], slices[:2], strict=True):
        if len(shape) < 4 and shape[-1] // size % counts[-1]:
            raise For(call.where).state_error(
                f"the last dimension must be sharded between heads of size {size}, but {shape} has {counts[-1]} slices"
            )


@operator("ApplyRotaryPosEmb(cos_format)", function="", dims=OperatorDims(_apply_dims, limits=_between_heads))
def _apply_rotary_pos_emb(
    query: check.Float,
    key: check.Float,
    cos: check.Float,
    sin: check.Float,
    position_ids: Array,
    cos_format: Literal[0, 1, 2, 3] = 0,
) -> tuple[Array, Array]:
    """Queries and keys (batch, length, heads, size), (batch, length, heads * size) or (tokens, heads * size), turned.

    Args:
        cos, sin: of 4 dimensions, which fit those of a query of 4; or (positions, size) for `cos_format` 0 and 1, where
            `position_ids`, one for each token, for each of a sequence or for each sequence, look rows up; or (batch * length,
            size) for 2 and 3.
        cos_format: with 1 and 3 angles of two dimensions are those of pairs of neighbours, else of halves.

    Raises:
        SporaxValueError: shapes that do not fit.
    """
    name = "ApplyRotaryPosEmb"
    if sin.shape != cos.shape or cos.ndim not in (2, 4) or (cos.ndim == 4 and query.ndim != 4):
        raise SporaxValueError(
            f"For '{name}', 'cos' and 'sin' must have one shape of 2 dimensions, or of 4 as the query, but got {cos.shape} and "
            f"{sin.shape} for {query.shape}."
        )
    mode = _BY_NEIGHBOURS if cos.ndim == 2 and cos_format % 2 else _BY_HALVES

    def turned(x: Array) -> Array:
        check.rank(name, (2, 3, 4), x=x)
        size = cos.shape[-1]
        For(name).refuse(x.shape[-1] % size != 0, f"the last dimension must hold heads of {size}", x.shape)
        heads = x if x.ndim == 4 else x.reshape(*x.shape[:-1], -1, size)
        own_cos, own_sin = (a if a.ndim == 4 else _of_tokens(a, heads.shape[:-2]) for a in (cos, sin))
        return _turned(heads, own_cos, own_sin, mode).reshape(x.shape)

    def _of_tokens(angles: Array, tokens: tuple[int, ...]) -> Array:
        """Angles (…, 1, size) that fit tokens and their heads."""
        rows = angles[position_ids.reshape(-1)] if cos_format < 2 else angles
        choices = {math.prod(tokens): tokens, tokens[-1]: tokens[-1:], tokens[0]: (tokens[0], *[1] * (len(tokens) - 1))}
        For(name).refuse(rows.shape[0] not in choices, f"'angles' must be for tokens {tokens}", rows.shape)
        return rows.reshape(*choices[rows.shape[0]], 1, rows.shape[-1])

    return turned(query), turned(key)
