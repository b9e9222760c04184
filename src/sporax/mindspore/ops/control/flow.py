"""Control flow that depends on values of tensors: conditions and loops.

Where operators simply run (outside a compiled step, also in a gradient taken there), a condition is evaluated and a loop
is Python's. While a step is being compiled they become one operator of the program each. Branches and bodies are ordinary
functions that may read Parameters. One that *writes* them is fine too: what was written becomes part of what the branch
or the loop carries.

Here are also the operators that write Parameters: a new value, a sum, a difference. JAX's arrays do not change, so the kernel
gives the new value and the Parameter's variable is set to it; a step returns the variables that were set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore.common import _integer_gradients
from sporax.mindspore.common.tensor import Tensor, is_tensor, to_array, wrap
from sporax.mindspore.ops._core import PRIMITIVES, Array, Operand, check, export, operator, promote
from sporax.runtime.state import frames, trace_constants


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any) -> Any:
    """``true_fn(*operands)`` if `pred` else ``false_fn(*operands)``, inside a compiled step too.

    Args:
        pred: bool, or a tensor with one element.
        true_fn, false_fn: functions whose results have the same structure, shapes and dtypes.
        operands: what the chosen function is called with.

    Raises:
        SporaxTypeError: a branch is not a function, `pred` has more than one element, or the results differ in structure,
            shape or dtype.

    Example:
        >>> ops.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, x)
    """
    _check_functions("cond", true_fn=true_fn, false_fn=false_fn)
    if np.size(pred) != 1:
        raise SporaxTypeError(f"For 'cond', 'pred' must have one element, but its shape is {np.shape(pred)}.")
    decided = _truth(pred)
    if decided is not None:
        # Known values take no operator: gradients outside of steps, and conditions on shapes.
        return true_fn(*operands) if decided else false_fn(*operands)
    written = _writes(lambda: true_fn(*operands), lambda: false_fn(*operands))

    values = _values(written)

    def branch(function: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: _isolated(lambda: _tensors(function(*operands)), written, values)

    try:
        result, after = _integer_gradients.chosen(_flag(pred), branch(true_fn), branch(false_fn))
    except SporaxTypeError:
        raise
    except TypeError as error:
        # JAX's first line names both types; further ones are about pytrees.
        raise SporaxTypeError(
            f"For 'cond', both functions must return the same types: {str(error).splitlines()[0]}"
        ) from None
    frames.commit(dict(zip(written, after, strict=True)))
    return result


def while_loop(cond_func: Callable[[Any], Any], loop_func: Callable[[Any], Any], init_val: Any) -> Any:
    """``while cond_func(val): val = loop_func(val)``, inside a compiled step too.

    The gradient of a loop inside a compiled step is not possible, since its number of rounds is not known; there, use
    `fori_loop` or `scan`.

    Args:
        cond_func: gives a bool, or a tensor with one element.
        loop_func: gives the next value: same structure, shapes and dtypes.
        init_val: tensor, number, or container of these.

    Raises:
        SporaxTypeError: the value changes its structure, a shape or a dtype.
    """
    _check_functions("while_loop", cond_func=cond_func, loop_func=loop_func)
    start = _tensors(init_val)
    # Evaluated once here; a known answer means that Python runs the loop.
    goes_on = _truth(cond_func(start))
    if goes_on is not None:
        value = start
        while goes_on:
            value = _next("while_loop", value, loop_func(value))
            goes_on = bool(cond_func(value))
        return value
    # Traced once more than needed, as the variables that are written are part of the loop's state.
    written = _writes(lambda: loop_func(start))

    def test(carry: Any) -> Any:
        value, values = carry
        # What a test writes is dropped.
        return _flag(_isolated(lambda: cond_func(value), written, values)[0])

    def body(carry: Any) -> Any:
        value, values = carry
        return _isolated(lambda: _next("while_loop", value, loop_func(value)), written, values)

    result, after = jax.lax.while_loop(test, body, (start, _values(written)))
    frames.commit(dict(zip(written, after, strict=True)))
    return result


def scan(
    loop_func: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None = None, unroll: bool = True
) -> Any:
    """``for x in xs: init, y = loop_func(init, x)``; returns the last `init` and all `y`, stacked.

    Args:
        loop_func: (carry, x) -> (carry, y); the carry keeps its structure, shapes and dtypes; `y` may be None.
        init: first carry: tensor, number, or container of these.
        xs: tensor (or container of tensors) whose first dimension is walked along; None with `length`.
        length: number of rounds; has to be that of `xs`, if both are given.
        unroll: accepted for compatibility; in a compiled step the loop is one operator whatever this says.

    Raises:
        SporaxValueError: neither `xs` nor `length` says how many rounds there are, or the two disagree.
        SporaxTypeError: the carry changes, or `loop_func` does not return a pair.
    """
    _check_functions("scan", loop_func=loop_func)
    rows = None if xs is None else _tensors(xs)
    rounds = _rounds(rows, length)
    start = _tensors(init)
    # JAX says whether operators are traced into a program by what its operations give: a constant is a tracer while tracing.
    if not isinstance(jnp.zeros((), np.int32), jax.core.Tracer):
        return _scanned_now(loop_func, start, rows, rounds)
    written = _writes(lambda: loop_func(start, _row(rows, 0)))

    def body(carry: Any, row: Any) -> Any:
        value, values = carry
        (following, out), after = _isolated(lambda: _step(loop_func, value, row), written, values)
        return (following, after), out

    # The number of rounds is given, as `rows` may be None.
    (last, after), outputs = jax.lax.scan(body, (start, _values(written)), rows, rounds)
    frames.commit(dict(zip(written, after, strict=True)))
    return last, outputs


def fori_loop(lower: Any, upper: Any, loop_func: Callable[[Any, Any], Any], init_val: Any, unroll: bool = True) -> Any:
    """``for i in range(lower, upper): val = loop_func(i, val)``, inside a compiled step too.

    Args:
        lower, upper: bounds: ints, or integer tensors with one element.
        loop_func: (index, value) -> next value: same structure, shapes and dtypes.
        init_val: tensor, number, or container of these.
        unroll: accepted for compatibility, as in `scan`.

    Raises:
        SporaxTypeError: the value changes its structure, a shape or a dtype.
    """
    _check_functions("fori_loop", loop_func=loop_func)
    if _is_known(lower) and _is_known(upper):
        # `max`: an empty range has no negative length.
        steps = wrap(jnp.arange(int(lower), max(int(lower), int(upper)), dtype=jnp.int64))
        # A scan of no rounds could not know the shapes of its outputs.
        if not steps.size:
            return _tensors(init_val)
        # A known number of rounds becomes a scan, which has a gradient.
        return scan(lambda value, index: (loop_func(index, value), None), init_val, steps)[0]
    # int64, so that the index keeps its dtype when one is added.
    start = (_tensors(lower).astype(np.int64), _tensors(init_val))
    return while_loop(lambda carry: carry[0] < upper, lambda carry: (carry[0] + 1, loop_func(*carry)), start)[1]


def _truth(value: Any) -> bool | None:
    """Whether `value` is true, or None when that is not known yet."""
    return bool(value) if _is_known(value) else None


def _is_known(value: object) -> bool:
    """Whether the value can be looked at now; that of a gradient's tracer outside compiled steps can."""
    return trace_constants.known(value.array if isinstance(value, Tensor) else value) is not None


def _flag(value: Any) -> jax.Array:
    array = to_array(value, None)
    For("while_loop").refuse_type(array.size != 1, f"'cond_func' must give one element, but its shape is {array.shape}")
    # MindSpore takes tensors of shape (1,) as conditions.
    return jnp.reshape(array, ()).astype(bool)


def _tensors(value: Any) -> Any:
    """`value` with its numbers and Parameters made into Tensors."""
    return jax.tree.map(lambda leaf: wrap(to_array(leaf, None)), value, is_leaf=lambda leaf: isinstance(leaf, Tensor))


def _values(variables: tuple[Any, ...]) -> list[jax.Array]:
    return [frames.read(variable) for variable in variables]


def _writes(*functions: Callable[[], Any]) -> tuple[Any, ...]:
    """Variables any of `functions` writes, found by tracing them abstractly."""
    written: dict[Any, None] = {}
    for function in functions:
        # Bound now: the loop variable changes.
        def probe(function: Callable[[], Any] = function) -> None:
            _, updates = frames.isolate(function)
            written.update(dict.fromkeys(updates))

        jax.eval_shape(probe)
    return tuple(written)


def _isolated(function: Callable[[], Any], variables: tuple[Any, ...], values: list[Any]) -> tuple[Any, list[Any]]:
    """What `function` returns when `variables` have these `values`, and their values afterwards."""
    bound = dict(zip(variables, values, strict=True))
    result, updates = frames.isolate(function, bound)
    # What is not written keeps its value, so that both ways give equally many results.
    return result, [updates.get(variable, bound[variable]) for variable in variables]


def _next(name: str, before: Any, after: Any) -> Any:
    """`after` as the next value of a loop, which must be of the kind that `before` is."""
    after = _tensors(after)
    old: Any = jax.tree.structure(before)
    # By structure first: leaves could not be compared otherwise.
    new: Any = jax.tree.structure(after)
    if old != new:
        raise For(name).type_error("the value must keep its structure", f"{new} after {old}")
    for was, now in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        if was.shape != now.shape or was.dtype != now.dtype:
            raise For(name).type_error(
                "the value must keep its shapes and dtypes", f"{check.describe(now)} after {check.describe(was)}"
            )
    return after


def _step(loop_func: Callable[[Any, Any], Any], value: Any, row: Any) -> tuple[Any, Any]:
    result = loop_func(value, row)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise For("scan").type_error("'loop_func' must return a pair (carry, output)", type(result).__name__)
    carry, out = result
    return _next("scan", value, carry), None if out is None else _tensors(out)


def _rounds(rows: Any, length: int | None) -> int:
    sizes = {leaf.shape[0] if leaf.shape else None for leaf in jax.tree.leaves(rows)}
    if length is not None:
        sizes.add(length)
    For("scan").refuse(not sizes, "'xs' and 'length' must not both be None")
    if len(sizes) > 1 or None in sizes:
        raise For("scan").error("'length' and the first dims of all tensors in 'xs' must be the same", sizes)
    return int(sizes.pop() or 0)


def _row(rows: Any, index: int) -> Any:
    return None if rows is None else jax.tree.map(lambda leaf: leaf[index], rows)


def _scanned_now(loop_func: Callable[[Any, Any], Any], carry: Any, rows: Any, rounds: int) -> Any:
    outputs = []
    for index in range(rounds):
        row = jax.tree.map(lambda tensor: tensor[index], rows, is_leaf=is_tensor)  # noqa: B023 - used at once
        carry, out = _step(loop_func, carry, row)
        outputs.append(out)
    if not outputs:
        return carry, None
    return carry, jax.tree.map(lambda *leaves: wrap(jnp.stack([e.array for e in leaves])), *outputs, is_leaf=is_tensor)


def _check_functions(name: str, **functions: object) -> None:
    for what, function in functions.items():
        For(name).refuse_type(not callable(function), f"'{what}' must be a function", type(function).__name__)


def _scan_elements(
    loop_func: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None = None, unroll: bool = True
) -> Any:
    """`scan`, but a list or tuple `xs` holds what rounds get, of any kind; what they give is a list then.

    Example:
        >>> ops.Scan()(lambda total, x: (total + x, total + x), 0, [1, 2, 3, 4])
        (10, [1, 3, 6, 10])
    """
    if not isinstance(xs, list | tuple):
        return scan(loop_func, init, xs, length, unroll)
    _check_functions("Scan", loop_func=loop_func)
    outputs = []
    for element in xs:
        init, output = loop_func(init, element)
        outputs.append(output)
    return init, outputs


def _class_forms() -> Iterator[tuple[str, type]]:
    # Classes whose call is the function: MindSpore's class forms have no attributes.
    for name, function in (("WhileLoop", while_loop), ("Scan", _scan_elements), ("ForiLoop", fori_loop)):
        body = {"__call__": staticmethod(function), "__doc__": function.__doc__, "__module__": "sporax.mindspore.ops"}
        yield name, type(name, (), body)


PRIMITIVES.update(_class_forms())
export(cond, while_loop, scan, fori_loop)


@operator(function="")
def _new_value(variable: Array, value: Operand, how: str) -> Array:
    """What a Parameter holds after an assignment."""
    name = {"set": "Assign", "add": "AssignAdd", "sub": "AssignSub"}[how]
    update = promote.written(name, "variable", variable, value)
    if update.shape not in ((), variable.shape):
        raise For(name).error("'variable' and 'value' must have one shape", variable.shape, update.shape)
    if how == "set":
        # A copy: the Parameter must not share a buffer with the value, since steps donate it.
        return jnp.array(jnp.broadcast_to(update, variable.shape), copy=True)
    return variable + update if how == "add" else variable - update


def _assignment(name: str, how: str, doc: str) -> Callable[..., Any]:
    def assign(variable: Any, value: Any) -> Any:
        For(name).typed("variable", variable, "a Parameter or a Tensor", Tensor)
        # Composed: the write is a new value of a variable and no part of the kernel.
        new = _new_value(variable, value, how)
        variable._assign(new.array)
        # The derivative of a sum passes the result, but not later reads of the Parameter.
        return variable if how == "set" or frames.current_frame() is None else new

    assign.__doc__ = doc
    return assign


assign = _assignment("Assign", "set", "Give a Parameter or a Tensor a new value; returns it.")
assign_add = _assignment("AssignAdd", "add", "Add to a Parameter or a Tensor in place; returns it.")
assign_sub = _assignment("AssignSub", "sub", "Subtract from a Parameter or a Tensor in place; returns it.")

for _name, _function in (("assign", assign), ("assign_add", assign_add), ("assign_sub", assign_sub)):
    _function.__name__ = _name


for _name, _function in (("Assign", assign), ("AssignAdd", assign_add), ("AssignSub", assign_sub)):
    operator(f"{_name}()", function="", composed=True)(_function)
export(assign, assign_add, assign_sub)
