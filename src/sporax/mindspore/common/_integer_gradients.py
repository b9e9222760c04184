"""Derivatives of integers.

Problem: to MindSpore an integer is as differentiable as a float: the gradient of ``x * x`` is ``2 * x`` in the dtype of `x`,
and a cast to a float truncates the gradient on its way back. JAX has no tangents of integers. Method: while a function is
differentiated by integer inputs, each integer array that depends on them smoothly has a *slope*: a float64 array of the same
value, through which JAX differentiates. An operator that gets an array with a slope is computed equation by equation: the
integers as ever, and next to them the slopes. Equations that a derivative does not pass in MindSpore either (comparisons,
indices, integer division) end it, and so do loops inside of operators. Branches and loops of rewritten Python take slopes along.
Other operators do not notice anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from sporax.base import ByIdentity
from sporax.ir import with_newer

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

Array = Any
"""A jax.Array or a tracer."""

_ALL = slice(None)
#: Primitive -> which of its operands are numbers; the others are indices or choose.
_SMOOTH: dict[str, slice] = {
    **dict.fromkeys(with_newer("add sub mul neg abs integer_pow square rem max min clamp".split()), _ALL),
    **dict.fromkeys(("add_any", "pow", "dot_general", "conv_general_dilated"), _ALL),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"), _ALL),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "sort", "top_k"), _ALL),
    **dict.fromkeys(("reshape", "transpose", "broadcast_in_dim", "concatenate", "slice", "split"), _ALL),
    **dict.fromkeys(("squeeze", "rev", "pad", "stack", "unstack", "tile", "copy"), _ALL),
    **dict.fromkeys(("gather", "dynamic_slice"), slice(1)),
    "dynamic_update_slice": slice(2),
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add", "scatter_mul"), slice(0, None, 2)),
    "select_n": slice(1, None),
}
#: Parameters that hold the program of a call.
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_WITH_RULES = frozenset(("custom_jvp_call", "custom_vjp_call"))
_CALLS = _WITH_RULES | {"jit", "pjit", "closed_call", "core_call", "checkpoint"}


_smooth_forms: dict[str, Callable[..., Array]] = {}
"""Of named calls whose equations do not show the derivative: what gives their slope."""


def with_slope_of(name: str, function: Callable[..., Array], smooth_form: Callable[..., Array]) -> Callable[..., Array]:
    """`function` of integers as a call `name`; its slope is that of `smooth_form` on float64 for its first two operands."""
    _smooth_forms[name] = smooth_form

    def call(*operands: Array) -> Array:
        return function(*operands)

    call.__name__ = call.__qualname__ = name
    return jax.jit(call)


class _Slopes(threading.local):
    """Slopes by array, while a function is differentiated by integers."""

    # None while no function is differentiated by integers, which is nearly always.
    of: dict[ByIdentity, Array] | None = None


SLOPES = _Slopes()


@contextmanager
def preserved() -> Iterator[None]:
    """Context in which slopes are kept; those noted in it are forgotten at its end."""
    before = SLOPES.of
    # A copy: slopes of an outer derivative are valid inside, but not the other way round.
    SLOPES.of = {} if before is None else dict(before)
    try:
        yield
    finally:
        SLOPES.of = before


@contextmanager
def hidden() -> Iterator[None]:
    """Context in which nothing is differentiated by integers: what runs there has a derivative of its own."""
    before, SLOPES.of = SLOPES.of, None
    try:
        yield
    finally:
        SLOPES.of = before


def note(array: Array, slope: Array) -> None:
    """Give `array` a slope."""
    if SLOPES.of is not None:
        SLOPES.of[ByIdentity(array)] = slope


def find(array: Array) -> Array | None:
    """The slope of an array, or None."""
    return None if SLOPES.of is None else SLOPES.of.get(ByIdentity(array))


def follow(arrays: Sequence[Array], successors: Sequence[Array]) -> None:
    """Give arrays that stand for others (behind a mark) the slopes of these."""
    if SLOPES.of:
        for array, successor in zip(arrays, successors, strict=True):
            slope = find(array)
            if slope is not None:
                note(successor, slope)


def smooth(array: Array) -> Array:
    """A float64 array of the same value, through which `array` is differentiated."""
    # float64 holds every integer of up to 53 bits.
    return _smooth(array, find(array))


def as_integers(gradient: Array, dtype: Any) -> Array:
    """A gradient in the dtype of what it is for; like MindSpore's casts, it wraps around, and bools are what is not zero."""
    if dtype == jnp.bool_:
        return gradient != 0
    # Through int64: between integers a cast wraps around, which one from a float need not do.
    return gradient.astype(jnp.int64).astype(dtype)


def run(function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    """``function(*arrays)``, and the slopes of its results."""
    # The usual case costs one comparison.
    if not SLOPES.of:
        return function(*arrays)
    leaves = jax.tree.leaves(tuple(arrays))
    slopes = [find(leaf) for leaf in leaves]
    if all(slope is None for slope in slopes):
        return function(*arrays)
    # The program shows which equations lie between the inputs and the results.
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
    # Python numbers are arrays to the program, of the dtypes that it was traced with.
    values = [
        leaf if hasattr(leaf, "aval") else jnp.asarray(leaf, abstract.dtype)
        for leaf, abstract in zip(leaves, program.in_avals, strict=True)
    ]
    results, result_slopes = _evaluate(program.jaxpr, program.consts, values, slopes)
    for result, slope in zip(results, result_slopes, strict=True):
        if slope is not None:
            note(result, slope)
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def chosen(flag: Array, first: Callable[[], object], second: Callable[[], object]) -> Any:
    """`jax.lax.cond` of functions without operands, and the slopes of its results."""
    if not SLOPES.of:
        return jax.lax.cond(flag, first, second)
    ways = [jax.make_jaxpr(way, return_shape=True)() for way in (second, first)]
    structures = [jax.tree.structure(shapes) for _, shapes in ways]
    if len(set(structures)) > 1 or all(find(const) is None for program, _ in ways for const in program.consts):
        return jax.lax.cond(flag, first, second)
    results, slopes = _switched(flag.astype(jnp.int32), [program for program, _ in ways], [], [])
    for result, slope in zip(results, slopes, strict=True):
        if slope is not None:
            note(result, slope)
    return jax.tree.unflatten(structures[0], results)


def loop(run: Callable[..., list[Array]], test: ClosedJaxpr, body: ClosedJaxpr, start: list[Array]) -> list[Array]:
    """``run(test, body, start)``, which repeats the program `body` while `test` is true, and the slopes of the last state."""
    if not SLOPES.of or all(find(array) is None for array in (*body.consts, *start)):
        return run(test, body, start)
    size, integers = len(start), [place for place, array in enumerate(start) if _is_integer(array)]

    def following(*state: Array) -> list[Array]:
        slopes = dict(zip(integers, state[size:], strict=True))
        results, after = _evaluate(body.jaxpr, body.consts, state[:size], list(map(slopes.get, range(size))))
        return [*results, *(_smooth(results[place], after[place]) for place in integers)]

    def goes_on(*state: Array) -> list[Array]:
        return _evaluate(test.jaxpr, test.consts, state[:size], [None] * size)[0]

    first = [*start, *(smooth(start[place]) for place in integers)]
    last = run(jax.make_jaxpr(goes_on)(*first), jax.make_jaxpr(following)(*first), first)
    for place, slope in zip(integers, last[size:], strict=True):
        note(last[place], slope)
    return last[:size]


def _switched(
    index: Array, programs: Sequence[ClosedJaxpr], operands: Sequence[Array], slopes: Sequence[Array | None]
) -> tuple[list[Array], list[Array | None]]:
    """Results of one of several programs, and their slopes: those of all integers, since any program may give them one."""

    def way(program: ClosedJaxpr) -> Callable[[], object]:
        def call() -> tuple[list[Array], list[Array | None]]:
            results, after = _evaluate(program.jaxpr, program.consts, operands, slopes)
            pairs = zip(results, after, strict=True)
            return results, [_smooth(result, slope) if _is_integer(result) else None for result, slope in pairs]

        return call

    return jax.lax.switch(index, list(map(way, programs)))


def _by_branches(
    equation: JaxprEqn, operands: list[Array], slopes: list[Array | None]
) -> tuple[list[Array], list[Array | None]]:
    return _switched(operands[0], equation.params["branches"], operands[1:], slopes[1:])


def _is_integer(array: Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.integer)


def _smooth(array: Array, slope: Array | None) -> Array:
    return array.astype(jnp.float64) if slope is None else slope


def _evaluate(
    program: Jaxpr, constants: Sequence[Array], values: Sequence[Array], slopes: Sequence[Array | None]
) -> tuple[list[Array], list[Array | None]]:
    """Results of a program, and their slopes."""
    from jax.extend.core import Literal  # takes long to load, and few programs are differentiated by integers

    value_of = dict(zip([*program.constvars, *program.invars], [*constants, *values], strict=True))
    # A variable without an entry has no slope. Constants are what a branch or a round reads from outside.
    pairs = zip([*program.constvars, *program.invars], [*map(find, constants), *slopes], strict=True)
    slope_of = {var: slope for var, slope in pairs if slope is not None}

    def value(atom: Any) -> Array:
        return atom.val if isinstance(atom, Literal) else value_of[atom]

    def slope(atom: Any) -> Array | None:
        return None if isinstance(atom, Literal) else slope_of.get(atom)

    for equation in program.eqns:
        operands, operand_slopes = list(map(value, equation.invars)), list(map(slope, equation.invars))
        # Nothing that depends on an integer input: as ever.
        if all(entry is None for entry in operand_slopes):
            results, result_slopes = _bind(equation, operands), [None] * len(equation.outvars)
        else:
            own = {"cond": _by_branches, "dot_general": _product}
            differentiate = own.get(equation.primitive.name, _with_slopes)
            if equation.params.get("name") in _smooth_forms:
                differentiate = _by_smooth_form
            results, result_slopes = differentiate(equation, operands, operand_slopes)
        value_of.update(zip(equation.outvars, results, strict=True))
        slope_of |= {var: new for var, new in zip(equation.outvars, result_slopes, strict=True) if new is not None}
    return list(map(value, program.outvars)), list(map(slope, program.outvars))


def _bind(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
    primitive = equation.primitive
    results = primitive.bind(*operands, **primitive.get_bind_params(equation.params))
    return list(results) if primitive.multiple_results else [results]


def _with_slopes(
    equation: JaxprEqn, operands: list[Array], slopes: list[Array | None]
) -> tuple[list[Array], list[Array | None]]:
    """Results of an equation with slopes among its operands."""
    name = equation.primitive.name
    # Calls are entered, so that slopes reach the equations inside; but a derivative that floats have by a rule of their own
    # would be lost there, and what is inside may have no other.
    if name in _CALLS and not (name in _WITH_RULES and _of_floats(equation)):
        body = next(equation.params[key] for key in _BODIES if key in equation.params)
        from jax.extend.core import ClosedJaxpr  # as above

        program, constants = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
        return _evaluate(program, constants, operands, slopes)
    # A cast is where integers and floats meet.
    if name == "convert_element_type":
        return _converted(operands[0], slopes[0], equation.params["new_dtype"])
    results = _bind(equation, operands)
    numbers = _SMOOTH.get(name)
    # Floats that integers only choose (rows of a table) have their derivative by JAX: a slope would count it twice.
    if numbers is None or any(jnp.issubdtype(result.dtype, jnp.inexact) for result in results):
        return results, [None] * len(results)
    # Indices among the operands stay integers.
    smooth_operands = list(operands)
    smooth_operands[numbers] = [
        operand.astype(jnp.float64) if slope is None else slope
        for operand, slope in zip(operands[numbers], slopes[numbers], strict=True)
    ]
    smooth_results = _bind_smooth(equation, smooth_operands)
    return results, [
        # A slope must be a float; comparisons give none.
        _carried(result, slope) if jnp.issubdtype(slope.dtype, jnp.floating) else None
        for result, slope in zip(results, smooth_results, strict=True)
    ]


def _product(
    equation: JaxprEqn, operands: list[Array], slopes: list[Array | None]
) -> tuple[list[Array], list[Array | None]]:
    """A matrix product: one of integers by floats casts them itself."""
    dtype = equation.params["preferred_element_type"]
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        return _with_slopes(equation, operands, slopes)
    pairs = zip(operands, slopes, strict=True)
    results = _bind(equation, [pair[0] if pair[1] is None else _converted(*pair, dtype)[0][0] for pair in pairs])
    return results, [None] * len(results)


def _by_smooth_form(
    equation: JaxprEqn, operands: list[Array], slopes: list[Array | None]
) -> tuple[list[Array], list[Array | None]]:
    (result,) = _bind(equation, operands)
    floats = [
        value.astype(jnp.float64) if slope is None else slope for value, slope in zip(operands, slopes, strict=True)
    ]
    return [result], [_carried(result, _smooth_forms[equation.params["name"]](*floats[:2], *operands[2:]))]


def _of_floats(equation: Any) -> bool:
    """Whether a call makes floats of floats, and of integers that only choose."""
    some, every = (
        (jnp.issubdtype(atom.aval.dtype, jnp.inexact) for atom in atoms)
        for atoms in (equation.invars, equation.outvars)
    )
    return any(some) and all(every)


def _bind_smooth(equation: JaxprEqn, operands: Sequence[Array]) -> list[Array]:
    """The equation on float64 operands."""
    primitive = equation.primitive
    parameters = dict(equation.params)
    if parameters.get("preferred_element_type") is not None:
        # A matrix product may request an integer result, which a slope is not.
        parameters["preferred_element_type"] = jnp.dtype(jnp.float64)
    if parameters.get("update_jaxpr") is not None:
        # How a scatter combines two numbers was traced with the integers' dtype.
        combine = jax.lax.mul if primitive.name == "scatter_mul" else jax.lax.add
        parameters["update_jaxpr"] = jax.make_jaxpr(combine)(0.0, 0.0).jaxpr
    results = primitive.bind(*operands, **parameters)
    return list(results) if primitive.multiple_results else [results]


def _carried(value: Array, slope: Array) -> Array:
    """The derivative of `slope` with the value of `value`: float64 does not overflow where the integer did."""
    # The value in the first term, the derivative in the second.
    return jax.lax.stop_gradient(value.astype(jnp.float64) - slope) + slope


def _converted(value: Array, slope: Array | None, dtype: Any) -> tuple[list[Array], list[Array | None]]:
    """A cast of integers. To floats, the gradient is truncated to an integer on its way back."""
    assert slope is not None, "the only operand has one"
    result = jax.lax.convert_element_type(value, dtype)
    if not jnp.issubdtype(dtype, jnp.inexact):
        # Between integers nothing is truncated: the slope goes on with the new value.
        return [result], [_carried(result, slope)]
    origin = value.dtype

    @jax.custom_vjp
    def cast(slope: Array, result: Array) -> Array:
        return result

    def forward(slope: Array, result: Array) -> tuple[Array, None]:
        return result, None

    def backward(_: None, gradient: Array) -> tuple[Array, None]:
        # Truncated to an integer, as MindSpore's cast does on its way back; a derivative of this passes as through any cast.
        return _carried(as_integers(gradient.real, origin), gradient.real.astype(jnp.float64)), None

    cast.defvjp(forward, backward)
    return [cast(slope, result)], [None]
