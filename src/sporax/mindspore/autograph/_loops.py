"""A loop whose number of rounds depends on values, traced into one `while` of the program.

The state of the loop is what a round changes and the test or a later round reads. Numbers that rounds change become arrays;
which ones do is found by tracing rounds until nothing new becomes part of the state.

Backwards through a loop of unknown length. Problem: XLA has no arrays of unknown size, so the states of a `while` loop cannot
all be kept for its gradient, and JAX refuses. Method: checkpoints at growing distances (after Griewank & Walther, "Revolve",
2000, in its simplest form): the forward pass keeps every `stride`-th state in a buffer of fixed size; when the buffer is full
it keeps every other one and doubles the stride. The backward pass computes a state again from the last checkpoint before it.
Up to `CHECKPOINTS` rounds each round is computed again just once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from sporax.base.errors import For, SporaxTypeError, named
from sporax.mindspore.autograph import _loops
from sporax.mindspore.autograph._branches import GO_ON, Outcome, Part, Trace, as_flag, set_values, trace
from sporax.mindspore.autograph._tensor_conditions import RAISED, UnlikeError
from sporax.mindspore.autograph._values import (
    ARRAY,
    UNBOUND,
    Scope,
    Value,
    as_array,
    common,
    describe,
    is_number,
    same,
    take_apart,
)
from sporax.mindspore.common import _integer_gradients
from sporax.mindspore.common.tensor import wrap
from sporax.runtime.state import frames

# Traces; types that have not settled by then change in every round.
_MOST_TRACES = 8


@dataclass(slots=True)
class _State:
    """What rounds hand on.

    Attributes:
        parts: by variable of the function.
        variables: Parameters and other variables of the program that rounds write.
        index: number of the round, where the loop counts.
        result: what the loop returns, once it does.
        jumps: whether rounds may end the loop.
    """

    parts: dict[Any, Part]
    numbers: set[Any] = field(default_factory=set)  # variables that had numbers
    variables: list[Any] = field(default_factory=list)
    index: Any = None
    result: Part | None = None
    jumps: bool = False

    def arrays(self) -> list[Any]:
        """The first state: all arrays in order."""
        own = [array for part in self.parts.values() for array in part.arrays]
        own += [frames.read(variable) for variable in self.variables]
        # Tensors come first: `first_variable` counts them.
        own += [] if self.index is None else [self.index]
        if self.jumps:
            own.append(jnp.zeros((), jnp.int32))
        if self.result is not None:
            own += [jnp.zeros(element.shape, element.dtype) for element in self.result.arrays]
        return own

    def values(self, leaves: Sequence[Any]) -> dict[Any, Any]:
        """Values of the function's variables."""
        result, place = {}, 0
        for key, part in self.parts.items():
            result[key] = part.value.build(leaves[place : place + part.value.size])
            place += part.value.size
        return result

    @property
    def first_variable(self) -> int:
        """Where the program's variables begin among the arrays."""
        return sum(part.value.size for part in self.parts.values())

    def of_variables(self, *leaves: Any) -> dict[Any, Any]:
        """Values of the program's variables."""
        return dict(zip(self.variables, leaves[self.first_variable :], strict=False))

    @property
    def index_place(self) -> int:
        """Where the number of the round is."""
        return self.first_variable + len(self.variables)

    @property
    def code_place(self) -> int:
        """Where the code is that says whether the loop has ended."""
        return self.index_place + (self.index is not None)


def loop(
    test: Callable[[Any], Any], body: Callable[[Any], Any], scope: Scope, where: str, index: Any = None, step: Any = 1
) -> Outcome | None:
    """``while test(index): body(index); index += step``, all in the program.

    Args:
        test, body: take the index as a Tensor (None where there is none).
        scope: what the body may change.
        where: the statement, for messages.
        index: first index, an array.
        step: what an index grows by.

    Returns:
        How the loop ended; None where it cannot end by a jump.
    """
    begin = scope.values()
    try:
        carried, record = _settled(body, scope, begin, where, index)
        # The test is traced with the settled state, whose numbers are arrays by now.
        question = trace(
            lambda *leaves: wrap(as_flag(test(_index(carried, leaves)), where)),
            scope,
            lambda *leaves: {**_constant(begin, scope), **carried.values(leaves)},
            carried.arrays(),
            carried.of_variables,
        )
    finally:
        scope.put(begin)
    return _run(carried, record, question, scope, begin, where, step)


def _index(carried: _State, leaves: Sequence[Any]) -> Any:
    return None if carried.index is None else wrap(leaves[carried.index_place])


def _constant(begin: dict[Any, Any], scope: Scope) -> dict[Any, Any]:
    # What rounds do not change is read from outside and is no part of the state.
    return {key: value for key, value in begin.items() if scope.is_needed(key)}


def _settled(
    body: Callable[[Any], Any], scope: Scope, begin: dict[Any, Any], where: str, index: Any
) -> tuple[_State, Trace]:
    """The state of the loop, and one round of it."""
    parts = {}
    for key, value in begin.items():
        if value is not UNBOUND and scope.is_needed(key) and key not in scope.found:
            structure, arrays = take_apart(value)
            parts[key] = Part(structure, list(arrays))
    carried = _State(parts, index=index)
    for _ in range(_MOST_TRACES):
        record = trace(
            lambda *leaves: body(_index(carried, leaves)),
            scope,
            lambda *leaves: {**_constant(begin, scope), **carried.values(leaves)},
            carried.arrays(),
            carried.of_variables,
            in_round=True,
        )
        # An error in every round does not depend on values.
        if record.raised is not None:
            # The body's tensors have no values outside of it.
            getattr(record.raised, RAISED).arrays.clear()
            raise record.raised
        if not _grown(carried, record, begin, where):
            return carried, record
    raise SporaxTypeError(f"For '{where}', the variables of the loop change their types in every round.")


def _grown(carried: _State, record: Trace, begin: dict[Any, Any], where: str) -> bool:
    """Make the state fit what a round gave; whether it had to change."""
    new = [variable for variable in record.written if variable not in carried.variables]
    carried.variables += new
    grown = bool(new)
    # A jump makes a code part of the state.
    if record.code_array is not None or record.code != GO_ON:
        grown = grown or not carried.jumps
        carried.jumps = True
    if record.result is not None and carried.result is None:
        value = record.result.value
        carried.result = Part(value, [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in record.result.arrays])
        grown = True
    for key, after in record.parts.items():
        if key in record.in_place and key not in carried.parts:
            structure, arrays = take_apart(begin[key])
            carried.parts[key], grown = Part(structure, list(arrays)), True
        # Names that are bound in the round alone start without a value in each.
        if key in carried.parts and after is not UNBOUND:
            grown = _grown_part(carried, key, after, where) or grown
    return grown


def _grown_part(carried: _State, key: Any, after: Part, where: str) -> bool:
    before, what = carried.parts[key], key if isinstance(key, str) else key[0]
    try:
        tree, pairs = common(what, where, before.value, after.value)
    except UnlikeError:
        got = f"{after.value.tree} after {before.value.tree}"
        raise For(where).type_error(f"{named(what)} must keep its structure from round to round", got) from None
    old, new = before.value.spread(before.arrays), after.value.spread(after.arrays)
    leaves: list[Any] = []
    arrays: list[Any] = []
    grown = tree != before.value.tree
    for one, two in pairs:
        (a, _, was), (b, _, now) = old[one], new[two]
        if a is not ARRAY and b is not ARRAY and same(a, b):
            leaves.append(a)
            continue
        array = _grown_leaf(carried, key, a, was, now)
        grown = grown or array is not was
        like = now if now is not None else as_array(b, array) if is_number(b) else None
        # XLA's loops keep types and shapes.
        if not _same_type(array, like):
            got = f"{describe(b, now)} after {describe(a if array is None else ARRAY, array)}"
            raise For(where).type_error(f"{named(what)} must keep its type and shape from round to round", got)
        leaves.append(ARRAY)
        arrays.append(array)
    carried.parts[key] = Part(Value(tree, tuple(leaves)), arrays)
    return bool(grown)


def _same_type(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one.shape == other.shape and one.dtype == other.dtype


def _grown_leaf(carried: _State, key: Any, leaf: Any, was: Any, now: Any) -> Any:
    """The array of a leaf in the state, `was` itself unless it has to change; None for what cannot be one."""
    # A number that rounds change becomes an array.
    if leaf is not ARRAY and is_number(leaf):
        carried.numbers.add(key)
        return as_array(leaf, now)
    # A Python int that becomes a float, as in ``total = 0; total += x``.
    if leaf is ARRAY and now is not None and was.dtype != now.dtype and key in carried.numbers:
        return was.astype(now.dtype)
    return was


def _run(
    carried: _State, record: Trace, question: Trace, scope: Scope, begin: dict[Any, Any], where: str, step: Any
) -> Outcome | None:
    def next_state(*leaves: Any) -> list[Any]:
        results = record.run(*leaves)
        following: list[Any] = []
        place = 0
        for key, part in carried.parts.items():
            size = part.value.size
            after = record.parts.get(key)
            if isinstance(after, Part):
                following += _leaves(part, after, results)
            else:
                following += list(leaves[place : place + size])
            place += size
        for variable in carried.variables:
            at = record.written.get(variable)
            following.append(leaves[len(following)] if at is None else results[at].astype(leaves[len(following)].dtype))
        if carried.index is not None:
            index = leaves[carried.index_place]
            following.append(index + jnp.asarray(step, index.dtype))
        if carried.jumps:
            code = record.code if record.code_array is None else results[record.code_array]
            following.append(jnp.asarray(code, jnp.int32))
        if carried.result is not None and record.result is not None:
            following += results[record.result.first : record.result.first + record.result.value.size]
        return following

    def goes_on(*leaves: Any) -> list[Any]:
        assert question.result is not None
        flag = question.run(*leaves)[question.result.first]
        # A loop that has jumped must not evaluate anything else.
        return [jnp.logical_and(flag, leaves[carried.code_place] == GO_ON) if carried.jumps else flag]

    start = [jnp.asarray(array) for array in carried.arrays()]
    # Traced once more, since both run on the whole state.
    programs = jax.make_jaxpr(goes_on)(*start), jax.make_jaxpr(next_state)(*start)
    last = _integer_gradients.loop(_loops.while_loop, *programs, start)
    values = dict(carried.values(last))
    # Names that only rounds bind are not bound if there is no round.
    unbound = {key: UNBOUND for key, part in record.parts.items() if part is UNBOUND or key not in values}
    set_values(scope, begin, {**values, **unbound}, record.in_place)
    frames.commit(carried.of_variables(*last))
    if not carried.jumps:
        return None
    result = None
    if carried.result is not None:
        result = carried.result.value.build(last[carried.code_place + 1 :])
    return Outcome(last[carried.code_place], result, record.codes | {GO_ON})


def _leaves(part: Part, after: Part, results: Sequence[Any]) -> list[Any]:
    """The arrays of a variable after a round, numbers among them made into arrays."""
    _, pairs = common("", "", part.value, after.value)
    own, new = part.value.spread(part.arrays), after.value.spread(results[after.first : after.first + after.value.size])
    carried = [(was, new[two]) for (leaf, _, was), (_, two) in zip(own, pairs, strict=True) if leaf is ARRAY]
    return [as_array(leaf, was) if now is None else now for was, (leaf, _, now) in carried]


CHECKPOINTS = 64
"""States that a backward pass may keep: memory against computing rounds again."""

Arrays = list[jax.Array]


def while_loop(test: ClosedJaxpr, body: ClosedJaxpr, start: Sequence[jax.Array]) -> Arrays:
    """The last state of ``while test(*state): state = body(*state)``.

    Args:
        test: gives one bool.
        body: gives the next state; same shapes and dtypes.
        start: first state.
    """
    return list(_differentiable(test, body)(list(start), list(test.consts), list(body.consts)))


def _bind(program: ClosedJaxpr, consts: Arrays) -> Any:
    # Constants are arguments here, so that gradients can flow to what the loop closes over.
    return jaxpr_as_fun(ClosedJaxpr(program.jaxpr, consts))


def _with_checkpoints(goes_on: Any, step: Any, start: Arrays) -> tuple[Arrays, tuple[jax.Array, jax.Array, Arrays]]:
    """The last state; and the number of rounds, the stride of the checkpoints, and the checkpoints of each value.

    Which checkpoint is in which row follows from the stride: row k holds the state before round k * stride.
    """
    stored = [jnp.zeros((CHECKPOINTS, *value.shape), value.dtype) for value in start]

    def advance(carry: Any) -> Any:
        state, number, stride, stored = carry
        stored = jax.lax.cond(
            number % stride == 0,
            lambda stored: [
                jax.lax.dynamic_update_index_in_dim(k, s, number // stride, 0)
                for k, s in zip(stored, state, strict=True)
            ],
            lambda stored: stored,
            stored,
        )
        number += 1
        stored, stride = jax.lax.cond(
            number >= CHECKPOINTS * stride,
            # Every other checkpoint stays. The second half is filled with copies, which the next rounds overwrite.
            lambda stored, stride: ([jnp.concatenate([k[::2], k[::2]]) for k in stored], stride * 2),
            lambda stored, stride: (stored, stride),
            stored,
            stride,
        )
        return list(step(*state)), number, stride, stored

    zero, one = jnp.zeros((), jnp.int32), jnp.ones((), jnp.int32)
    first = (list(start), zero, one, stored)
    state, number, stride, stored = jax.lax.while_loop(lambda carry: goes_on(*carry[0])[0], advance, first)
    return state, (number, stride, stored)


def _differentiable(test: ClosedJaxpr, body: ClosedJaxpr) -> Any:
    def forward(start: Arrays, test_consts: Arrays, body_consts: Arrays) -> Arrays:
        goes_on, step = _bind(test, test_consts), _bind(body, body_consts)
        result: Arrays = jax.lax.while_loop(
            lambda state: goes_on(*state)[0], lambda state: list(step(*state)), list(start)
        )
        return result

    def keeping(start: Arrays, test_consts: Arrays, body_consts: Arrays) -> tuple[Arrays, Any]:
        state, checkpoints = _with_checkpoints(_bind(test, test_consts), _bind(body, body_consts), start)
        return state, (*checkpoints, test_consts, body_consts)

    def backward(saved: Any, cotangents: Arrays) -> Any:
        number, stride, stored, test_consts, body_consts = saved
        # Integers in the state (counters, indices) have no cotangents.
        real = [jnp.issubdtype(k.dtype, jnp.inexact) for k in stored]
        real_const = [jnp.issubdtype(jnp.result_type(c), jnp.inexact) for c in body_consts]

        def state_at(index: jax.Array) -> Arrays:
            """The state before round `index`, from the last checkpoint."""
            slot = index // stride
            state = [jax.lax.dynamic_index_in_dim(k, slot, 0, keepdims=False) for k in stored]
            step = _bind(body, body_consts)
            result: Arrays = jax.lax.fori_loop(slot * stride, index, lambda _, state: list(step(*state)), state)
            return result

        def back(carry: Any) -> Any:
            index, by_state, by_const = carry
            # Rounds are differentiated last to first.
            index -= 1
            state = state_at(index)

            def moving(floats: Arrays, consts: Arrays) -> Arrays:
                """Floating results of one round, as a function of the floating parts of its arguments."""
                results = _bind(body, _mixed(real_const, consts, body_consts))(*_mixed(real, floats, state))
                return [result for result, is_real in zip(results, real, strict=True) if is_real]

            _, pull = jax.vjp(moving, _chosen(real, state), _chosen(real_const, body_consts))
            by_state, more = pull(by_state)
            return index, by_state, [a + b for a, b in zip(by_const, more, strict=True)]

        # The body reads its constants in every round, so their cotangents add up.
        zeros = [jnp.zeros_like(const) for const in _chosen(real_const, body_consts)]
        first = (number, _chosen(real, cotangents), zeros)
        _, by_state, by_const = jax.lax.while_loop(lambda carry: carry[0] > 0, back, first)
        return (
            _mixed(real, by_state, [None] * len(real)),
            [None] * len(test_consts),
            _mixed(real_const, by_const, [None] * len(real_const)),
        )

    run = jax.custom_vjp(forward)
    run.defvjp(keeping, backward)
    return run


def _chosen(which: list[bool], values: Sequence[Any]) -> list[Any]:
    return [value for value, is_chosen in zip(values, which, strict=True) if is_chosen]


def _mixed(which: list[bool], chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """`others` with `chosen` in the places that `which` marks."""
    remaining = iter(chosen)
    return [next(remaining) if is_ours else other for is_ours, other in zip(which, others, strict=True)]
