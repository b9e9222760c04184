"""Precision chosen operator by operator: what level ``"auto"`` of `sporax.mindspore.amp` does.

While a `Precision` rules, operators of one list compute in half precision, those of a second in float32, those of a third
in the widest floating dtype among their inputs; all others in whatever dtype their inputs have. The lists are
MindSpore's (`mindspore.amp.auto_mixed_precision`), with the operators that stand for the same thing here.

Nothing of this costs anything before it is first requested: only then do the operators on the lists get a `run` of their
own, which looks whether a precision rules in this thread.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

from sporax.base.lazy_members import dataclass
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.ops._core.operator import FUNCTIONS, MINT, OPERATORS, PRIMITIVES, Composition, Operator, Primitive
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

_LISTS = {
    "half": """
        Conv2D Conv3D conv1d conv2d conv3d conv_tbc Conv2DTranspose Conv3DTranspose conv_transpose2d conv3d_transpose MatMul
        matmul mm BatchMatMul bmm PReLU Einsum einsum dense addmm addbmm addmv baddbmm mv dot
    """,
    "full": """
        Pow ACos Asin Cosh Erfinv Exp Expm1 Log log10 Log1p log2 Reciprocal Rsqrt Sinh Tan Softplus softplus LayerNorm
        layer_norm batch_norm_train batch_norm_eval batch_moments batch_norm_shared group_norm normalize_groups KLDivLoss
        _mint_kl_div SmoothL1Loss smooth_l1_loss _mint_smooth_l1_loss MultilabelMarginLoss multilabel_margin_loss
        SoftMarginLoss TripletMarginLoss triplet_margin_loss MultiMarginLoss multi_margin_loss BCEWithLogitsLoss
        binary_cross_entropy_with_logits _mint_binary_cross_entropy_with_logits Pdist Cdist _mint_cdist Renorm renorm
        ReduceProd prod Softmax softmax _softmax_method _mint_softmax _mint_softmax_along LogSoftmax _mint_log_softmax
        CumProd cumprod CumSum cumsum sum _mint_norm _mint_l1_loss _mint_mse_loss NLLLoss nll_loss cross_entropy
        var var_mean logsumexp cosine_similarity softmin gaussian_nll_loss exp2 logaddexp logaddexp2
    """,
    "widest": """
        Addcdiv addcdiv Addcmul addcmul Cross cross GridSampler2D GridSampler3D grid_sample BiasAdd AddN Concat cat
    """,
}
"""Names of operators by the precision they compute in."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Operators choose their precision.

    Attributes:
        half: float16 or bfloat16.
    """

    half: DType


class _Current(threading.local):
    precision: Precision | None = None


_current = _Current()


class _Guard:
    """What a compiled program with operators of the lists depends on: the precision that ruled."""

    def fingerprint(self) -> Mapping[str, Hashable]:
        # Read at the comparison, not kept: it is a fact of the thread, and compared with its value at compile time.
        return {"precision": _current.precision}

    def describe(self) -> str:
        return "automatic mixed precision"


_GUARD = _Guard()


@contextmanager
def ruled_by(precision: Precision | DType | None) -> Iterator[None]:
    """Let operators choose their precision. A dtype: they do not, for whoever requests one has chosen. None: as before."""
    half = precision.half if isinstance(precision, Precision) else precision
    if not SESSION.reported_float16 and half == dtypes.float16:
        _report_float16()
    before = _current.precision
    _switch(before if precision is None else precision if isinstance(precision, Precision) else None)
    try:
        yield
    finally:
        _switch(before)


def _report_float16() -> None:
    """Warn, once, where float16 takes longer than float32."""
    SESSION.reported_float16 = True
    if jax.default_backend() == "cpu":
        warnings.warn(
            "For 'Cell.to_float', float16 makes steps slower on a CPU, which computes in float32 and converts: a step takes 1.1 "
            "(dense layers) to 1.2 times (convolutions) as long as in float32. Leave 'to_float' and 'amp_level' out here; "
            "bfloat16, at 1.2 to 1.3 times, needs no loss scale.",
            stacklevel=2,
        )


def _switch(precision: Precision | None) -> None:
    # Usual case, also of nested Cells with one precision.
    if precision == _current.precision:
        return
    if precision is not None:
        # Operators outside of mixed precision keep their plain `run`.
        _install()
    _current.precision = precision
    if frames.current_frame() is None:
        # Compiled programs must be tested again whether they still fit; within a frame they are being made.
        frames.touch()


@functools.cache
def _install() -> None:
    """Give the operators on the lists a `run` that looks at the ruling precision."""
    offered = (*OPERATORS.values(), *FUNCTIONS.values(), *MINT.values(), *(class_.operator for class_ in _classes()))
    # By identity, as one operator has several names; compositions call operators that are listed themselves.
    operators = {
        id(entry): entry for entry in offered if isinstance(entry, Operator) and not isinstance(entry, Composition)
    }
    rule_of = {name: rule for rule, names in _LISTS.items() for name in names.split()}
    for operator in operators.values():
        if operator.name in rule_of:
            # On the instance, so that the class's `run` stays the plain one.
            operator.run = functools.partial(_run, operator, rule_of[operator.name])  # type: ignore[method-assign]  # wraps each operator once


def _classes() -> list[Any]:
    return [primitive for primitive in PRIMITIVES.values() if hasattr(primitive, "operator")]


def _run(
    operator: Operator[Any],
    rule: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    constants: tuple[Any, ...] = (),
    primitive: Primitive | None = None,
) -> Any:
    # Also where nothing rules now: a later precision must compile again.
    frames.depend_on(_GUARD)
    precision = _current.precision
    if precision is not None:
        dtype = precision.half if rule == "half" else dtypes.float32 if rule == "full" else _widest((args, kwargs))
        args, kwargs = _cast(args, dtype), _cast(kwargs, dtype)
    # Past the instance's `run`, which is this function.
    return type(operator).run(operator, args, kwargs, constants, primitive)


def _cast(value: Any, dtype: DType | None) -> Any:
    """Floating Tensors in `value` cast to `dtype`."""
    if isinstance(value, Tensor):
        return value.astype(dtype) if value.dtype in dtypes.float_type and value.dtype != dtype else value
    if isinstance(value, tuple | list):
        return type(value)(_cast(item, dtype) for item in value)
    if isinstance(value, dict):
        return {name: _cast(item, dtype) for name, item in value.items()}
    return value


def _widest(value: Any) -> DType | None:
    """The floating dtype that all floating Tensors in `value` fit into."""
    kinds = set(_floats(value))
    if len(kinds) < 2:
        return next(iter(kinds), None)
    # float16 and bfloat16 meet in float32, as in MindSpore's promotion.
    return dtypes.float64 if dtypes.float64 in kinds else dtypes.float32


def _floats(value: Any) -> Iterator[DType]:
    if isinstance(value, Tensor):
        if value.dtype in dtypes.float_type:
            yield value.dtype
    elif isinstance(value, tuple | list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _floats(item)
