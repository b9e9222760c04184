"""Control flow that depends on values of tensors, for compiled steps: conditions and loops.

Branches and bodies are ordinary functions that may read Parameters. One that *writes* them is fine too: what was written
becomes part of what the branch or the loop carries. Outside a compiled step the Python condition is simply evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sporax.common.tensor import Tensor, to_array, wrap
from sporax.ir.errors import SporaxTypeError, SporaxValueError
from sporax.ops._operator import export
from sporax.runtime import state


def _known(value: Any) -> bool:
    return not isinstance(value.array if isinstance(value, Tensor) else value, jax.core.Tracer)


def _tensors(value: Any) -> Any:
    """`value` with its numbers made into Tensors."""
    return jax.tree.map(
        lambda leaf: leaf if isinstance(leaf, Tensor) else wrap(to_array(leaf, None)),
        value,
        is_leaf=lambda leaf: isinstance(leaf, Tensor),
    )


def _writes(*functions: Callable[[], Any]) -> tuple[Any, ...]:
    """Variables any of `functions` writes, found by tracing them abstractly."""
    written: dict[Any, None] = {}
    for function in functions:

        def probe(function: Callable[[], Any] = function) -> None:
            _, updates = state.isolate(function)
            written.update(dict.fromkeys(updates))

        jax.eval_shape(probe)
    return tuple(written)


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """``true_fn(*operands)`` if `pred` else ``false_fn(*operands)``, inside a compiled step too.

    Args:
        pred: bool, or a tensor with one element.
        true_fn, false_fn: functions whose results have the same structure, shapes and dtypes.
        operands: what the chosen function is called with.

    Raises:
        SporaxTypeError: `pred` has more than one element, or the results differ in structure or type.

    Example:
        >>> ops.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, x)
    """
    if _known(pred):
        return true_fn(*operands) if bool(pred) else false_fn(*operands)
    if pred.size != 1:
        raise SporaxTypeError(f"For 'cond', 'pred' must have one element, but its shape is {pred.shape}.")
    written = _writes(lambda: true_fn(*operands), lambda: false_fn(*operands))
    before = [state.read(variable) for variable in written]

    def branch(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
        def run(values: list[Any]) -> Any:
            given = dict(zip(written, values, strict=True))
            result, updates = state.isolate(lambda: _tensors(function(*operands)), given)
            return result, [updates.get(variable, given[variable]) for variable in written]

        return run

    flag = jnp.reshape(pred.array, ()).astype(bool)
    try:
        result, after = jax.lax.cond(flag, branch(true_fn), branch(false_fn), before)
    except TypeError as error:
        raise SporaxTypeError(f"For 'cond', both functions must return the same types: {_first_line(error)}") from None
    state.commit(dict(zip(written, after, strict=True)))
    return result


def while_loop(cond_func: Callable[[Any], Any], loop_func: Callable[[Any], Any], init_val: Any) -> Any:
    """``while cond_func(val): val = loop_func(val)``, inside a compiled step too.

    Args:
        cond_func: gives a bool, or a tensor with one element.
        loop_func: gives the next value: same structure, shapes and dtypes.
        init_val: tensor, number, or container of these.

    Raises:
        SporaxTypeError: the value changes its structure, a shape or a dtype.

    Reverse-mode differentiation of a loop with an unknown number of rounds is not possible; use `fori_loop` or `scan`.
    """
    start = _tensors(init_val)
    probe = cond_func(start)
    if _known(probe) and all(_known(leaf) for leaf in jax.tree.leaves(start)):
        value = init_val
        while bool(cond_func(value)):
            value = loop_func(value)
        return value
    written = _writes(lambda: loop_func(start))
    before = [state.read(variable) for variable in written]

    def test(carry: Any) -> Any:
        value, values = carry
        result, _ = state.isolate(lambda: cond_func(value), dict(zip(written, values, strict=True)))
        return jnp.reshape(to_array(result, None), ()).astype(bool)

    def body(carry: Any) -> Any:
        value, values = carry
        given = dict(zip(written, values, strict=True))
        result, updates = state.isolate(lambda: _tensors(loop_func(value)), given)
        return result, [updates.get(variable, given[variable]) for variable in written]

    try:
        result, after = jax.lax.while_loop(test, body, (start, before))
    except TypeError as error:
        raise SporaxTypeError(f"For 'while_loop', the value must keep its types: {_first_line(error)}") from None
    state.commit(dict(zip(written, after, strict=True)))
    return result


def scan(
    loop_func: Callable[[Any, Any], Any], init: Any, xs: Any = None, length: int | None = None, unroll: bool = True
) -> Any:
    """``for x in xs: init, y = loop_func(init, x)``; returns the last `init` and all `y`, stacked.

    Args:
        loop_func: (carry, x) -> (carry, y); the carry keeps its structure, shapes and dtypes.
        init: first carry.
        xs: tensor (or container of tensors) whose first dimension is walked along; None with `length`.
        length: number of rounds when `xs` is None.
        unroll: accepted for compatibility; the loop is one operator of the compiled program.

    Raises:
        SporaxValueError: neither `xs` nor `length` says how many rounds there are.
        SporaxTypeError: the carry changes.
    """
    if xs is None and length is None:
        raise SporaxValueError("For 'scan', 'xs' and 'length' must not both be None.")
    rows = None if xs is None else _tensors(xs)
    start = _tensors(init)
    first = None if rows is None else jax.tree.map(lambda row: row[0], rows)
    written = _writes(lambda: loop_func(start, first))
    before = [state.read(variable) for variable in written]

    def body(carry: Any, row: Any) -> Any:
        value, values = carry
        given = dict(zip(written, values, strict=True))
        (following, out), updates = state.isolate(lambda: _pair(loop_func(value, row)), given)
        return (following, [updates.get(variable, given[variable]) for variable in written]), out

    try:
        (last, after), outputs = jax.lax.scan(body, (start, before), rows, length)
    except TypeError as error:
        raise SporaxTypeError(f"For 'scan', the carry must keep its types: {_first_line(error)}") from None
    state.commit(dict(zip(written, after, strict=True)))
    return last, outputs


def _pair(result: Any) -> Any:
    carry, out = result
    return _tensors(carry), None if out is None else _tensors(out)


def fori_loop(lower: Any, upper: Any, loop_func: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """``for i in range(lower, upper): val = loop_func(i, val)``, inside a compiled step too."""
    if _known(lower) and _known(upper):
        first, last = int(lower), int(upper)
        steps = wrap(jnp.arange(first, max(first, last)))
        if last <= first:
            return init_val
        return scan(lambda value, index: (loop_func(index, value), None), init_val, steps)[0]
    start = (wrap(to_array(lower, None)), _tensors(init_val))
    return while_loop(lambda carry: carry[0] < upper, lambda carry: (carry[0] + 1, loop_func(*carry)), start)[1]


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


export(cond, while_loop, scan, fori_loop)
