"""Family 1: every element of the results comes from the elements at the same place. All factors are mapped.

Operands of rank 0 are next to larger ones in many lax primitives and are held whole by every rank. Which primitives let
parts through is a table: `neg` of parts makes parts, `exp` does not.
"""

from __future__ import annotations

import cmath
from collections.abc import Sequence

from sporax.ir.operation import Operation, TensorSpec, with_newer
from sporax.planner.rules.language import MOVABLE, DimFactors, Draft, Rule, replicate

COSTLY_FLOPS = 10.0
"""Floating-point operations that one evaluation of a transcendental function counts for."""


def _words(text: str) -> list[str]:
    return text.split()


PLAIN = _words(
    """abs acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz cos cosh digamma eq
    eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac integer_pow is_finite le
    le_to lgamma log log1p logistic lt lt_to mulhi ne nextafter not polygamma population_count pow
    reduce_precision regularized_incomplete_beta rem round rsqrt shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square tan tanh zeta threefry2x32 threefry4x32 philox2x32
    philox4x32 random_clone random_fold_in random_seed zeros_like"""
)
"""Elementwise primitives that need complete operands."""

ALL_TOGETHER: dict[str, tuple[str, ...]] = {
    "add": ("sum",),
    "add_any": ("sum",),
    "sub": ("sum",),
    "complex": ("sum",),
    "max": ("max",),
    "min": ("min",),
    "and": ("and",),
    "or": ("or",),
    "xor": ("xor",),
}
"""Parts of all operands together make parts of the result: x + y is the sum of the parts' x + y."""

CASTS = _words("pvary preduced reduced_vary_cast reduced_vary_cast_p vary_unreduced_cast vary_unreduced_cast_p")
"""Primitives that change what JAX knows of an array along axes, and nothing else; names that end in p are older than JAX 0.12."""

ONE_OPERAND: dict[str, tuple[str, ...]] = {
    "neg": ("sum",),
    "real": ("sum",),
    "imag": ("sum",),
    "conj": ("sum",),
    "copy": MOVABLE,
    "name": MOVABLE,
    "stop_gradient": MOVABLE,
    **dict.fromkeys(CASTS, MOVABLE),
}
"""Parts of the operand make parts of the result."""

KEYS = ("random_wrap", "random_unwrap", "to_edtype", "from_edtype", "random_split", "random_gamma")
"""Primitives that hide or show trailing dimensions: raw key words, the keys that a key splits into."""

_COSTLY = with_newer(
    _words(
        """acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cos cosh digamma erf erf_inv erfc exp exp2
    expm1 igamma igamma_grad_a igammac lgamma log log1p logistic polygamma pow regularized_incomplete_beta sin
    sinh tan tanh zeta threefry2x32 threefry4x32 philox2x32 philox4x32"""
    )
)


def elementwise(operation: Operation) -> Rule:
    """All tensors have the same dimensions, or none."""
    draft = Draft(operation)
    dims = _shared(draft)
    name = operation.name
    # A scalar tensor next to a larger one may not be a part, since rules have no parts of other shapes.
    if name in ALL_TOGETHER and all(operand.shape == operation.results[0].shape for operand in operation.operands):
        draft.passes(range(len(operation.operands)), *ALL_TOGETHER[name])
    if name in ONE_OPERAND:
        draft.passes((0,), *ONE_OPERAND[name])
    return _finish(draft, dims)


def product(operation: Operation) -> Rule:
    """`mul` and `div`: linear in one operand at a time, `div` in the first only, by constants."""
    draft = Draft(operation)
    dims = _shared(draft)
    is_product = operation.name == "mul"
    # A quotient of integers is rounded, so that of a sum is not the sum of the quotients.
    for operand in (0, 1) if is_product else (0,) if operation.operands[0].is_inexact else ():
        other = operation.operands[1 - operand].constant
        # Infinity times a part of zero is NaN, and so is the sum; so is a part of zero by a divisor of zero.
        if is_product if other is None else cmath.isfinite(other) and (is_product or other != 0):
            draft.passes((operand,), "sum")
    return _finish(draft, dims)


def select_n(operation: Operation) -> Rule:
    """Parts of all cases make parts of the choice; the predicate must be complete."""
    draft = Draft(operation)
    dims = _shared(draft)
    draft.passes(range(1, len(operation.operands)), *MOVABLE)
    return _finish(draft, dims)


def convert(operation: Operation) -> Rule:
    """Parts pass when no digit is lost: summing in the narrower type afterwards would give another result."""
    draft = Draft(operation)
    dims = _shared(draft)
    source, target = operation.operands[0], operation.results[0]
    # Types of one size (bfloat16, float16) lose digits or range.
    is_wider = target.itemsize > source.itemsize or target.dtype == source.dtype
    if source.is_inexact and target.is_inexact and is_wider:
        draft.passes((0,), *MOVABLE)
    return _finish(draft, dims)


def side_by_side(operation: Operation) -> Rule:
    """Several tensors pass through side by side, each with dimensions of its own."""
    draft = Draft(operation)
    dims = [draft.maps(operand.shape) for operand in operation.operands]
    for number in range(len(dims)):
        draft.passes((number,), *MOVABLE, results=(number,))
    return draft.finish(dims, dims, flops_per_point=0.0)


def leading(operation: Operation) -> Rule:
    """The dimensions that all tensors share from the left are mapped; what follows stays whole."""
    keys = next((operand.dtype for operand in operation.operands if operand.dtype.startswith("key<")), "key<fry>")
    # Other generators draw for all keys at once.
    if keys != "key<fry>" and operation.name in ("random_split", "random_fold_in", "random_gamma"):
        return replicate(operation, f"'{operation.name}' of the generator '{keys}' depends on all keys")
    draft = Draft(operation)
    tensors = (*operation.operands, *operation.results)
    num_shared = min(tensor.num_dims for tensor in tensors)
    shared = draft.maps(tensors[0].shape[:num_shared])
    dims = [(*shared, *draft.blocks(tensor.shape[num_shared:])) for tensor in tensors]
    num_operands = len(operation.operands)
    is_split = operation.name == "random_split"
    adapt = (lambda _, operands, results: {"shape": results[0][len(operands[0]) :]}) if is_split else None
    return draft.finish(dims[:num_operands], dims[num_operands:], adapt=adapt, flops_per_point=0.0)


# The results of all these primitives have one shape.
def _shared(draft: Draft) -> DimFactors:
    return draft.maps(draft.operation.results[0].shape)


def _finish(draft: Draft, dims: DimFactors) -> Rule:
    operation = draft.operation
    operands: Sequence[DimFactors] = [
        _of_operand(operand, operation.results[0], dims) for operand in operation.operands
    ]
    flops = COSTLY_FLOPS if operation.name in _COSTLY else 0.0 if operation.name in ONE_OPERAND else 1.0
    return draft.finish(operands, [dims] * len(operation.results), flops_per_point=flops)


def _of_operand(operand: TensorSpec, result: TensorSpec, dims: DimFactors) -> DimFactors:
    """The dimensions of a scalar are none, and one of size 1 that is stretched to the result's is never sharded."""
    pairs = zip(operand.shape, result.shape, dims, strict=False)
    # `strict=False`: scalars have no dimensions.
    return tuple(() if size == 1 and stretched != 1 else dim for size, stretched, dim in pairs)
