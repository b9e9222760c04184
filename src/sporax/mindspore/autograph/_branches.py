"""Both ways of a decision, traced and joined into one `lax.cond`.

Each way is traced once, from the same values of the variables and in a frame of its own; what it changed becomes results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from sporax.base.errors import SporaxValueError
from sporax.mindspore.autograph._tensor_conditions import RAISED, RaisedWords
from sporax.mindspore.autograph._values import (
    ARRAY,
    UNBOUND,
    Contents,
    Scope,
    Value,
    changed,
    contents,
    merge,
    pick,
    restore,
    take_apart,
    take_over,
)
from sporax.mindspore.common import _integer_gradients
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames, trace_constants

GO_ON, BREAK_OUT, RETURN = 0, 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """How a round of a loop ended: `BREAK_OUT` or `RETURN` with a value; a code may be an array. None: it goes on.

    `codes` are those that an array may hold.
    """

    code: Any
    value: Any = None
    codes: frozenset[int] = frozenset((GO_ON, BREAK_OUT, RETURN))


@dataclass(slots=True)
class Part:
    """One value that a trace gave: its structure, and where its arrays are among the results."""

    value: Value
    arrays: list[Any] = field(default_factory=list)
    first: int = 0

    @property
    def both(self) -> tuple[Value, list[Any]]:
        """What `merge` takes."""
        return self.value, self.arrays


@dataclass(slots=True)
class Trace:
    """One way, traced.

    Attributes:
        program: from nothing (or a loop's state) to all arrays.
        parts: what changed, by variable; `UNBOUND` where a variable has no value.
        in_place: variables that still hold the object they held, with new contents.
        written: Parameters and other variables of the program that were written, and where their values are.
        code: how a round ended: a number, or the position of an array, which holds one of `codes`.
        result: what was returned.
        raised: the user's `raise`, if the way ends there.
    """

    program: ClosedJaxpr | None = None
    parts: dict[Any, Any] = field(default_factory=dict)
    in_place: set[object] = field(default_factory=set)
    written: dict[Any, int] = field(default_factory=dict)
    code: Any = GO_ON
    code_array: int | None = None
    codes: frozenset[int] = frozenset((GO_ON,))
    result: Part | None = None
    raised: BaseException | None = None

    @property
    def leaves_function(self) -> bool:
        """Whether this way returns, so that no variable is read after it."""
        return self.codes == {RETURN}

    def run(self, *args: object) -> list[Any]:
        """The arrays."""
        assert self.program is not None
        return list(jaxpr_as_fun(self.program)(*args))


def trace(
    function: Callable[..., Any],
    scope: Scope,
    start: Callable[..., dict[Any, Any]],
    arrays: Sequence[Any] = (),
    variables: Callable[..., dict[Any, Any]] | None = None,
    in_round: bool = False,
) -> Trace:
    """Run `function` abstractly.

    Args:
        function: takes `arrays`; its result is the way's.
        scope: what it may change.
        start: gives the values of the scope, from `arrays`.
        arrays: what the traced program takes.
        variables: gives the values of the program's variables, from `arrays`.
        in_round: the result says how a round of a loop ended.
    """
    record = Trace()
    outputs: list[Any] = []

    # Arrays of all parts go into one list, since a traced program gives a flat one.
    def keep(value: object) -> Part:
        structure, own = take_apart(value)
        part = Part(structure, list(own), len(outputs))
        outputs.extend(own)
        return part

    def note_changes(begin: dict[Any, Any], before: dict[Any, Contents]) -> None:
        for key, value in scope.values().items():
            was = begin.get(key, UNBOUND)
            # Identity shows what has changed; equal tensors cannot be compared now.
            if value is was and not changed(before.get(key, [])):
                continue
            # Names that are never read are as if they were not bound; what they held may have other names.
            unread = value is UNBOUND or (value is not was and not scope.is_needed(key))
            record.parts[key] = UNBOUND if unread else keep(value)
            # The same object with new contents, such as a list that was appended to.
            if value is was:
                record.in_place.add(key)

    def program(*leaves: object) -> list[Any]:
        begin = start(*leaves)
        scope.put(begin)
        before = {key: contents(value) for key, value in begin.items()}
        frame = frames.Frame(dict(variables(*leaves)) if variables else {})
        try:
            with frame:
                result = function(*leaves)
                note_changes(begin, before)
                if in_round:
                    _note_outcome(record, result, outputs, keep)
                else:
                    record.result = keep(result)
        except Exception as error:
            # A `raise` of the user's is a way of the decision; other errors are mistakes.
            words: RaisedWords | None = getattr(error, RAISED, None)
            if words is None:
                raise
            record.raised = error
            return words.arrays
        finally:
            # A list that one way appends to must be as before for the other.
            restore(before)
        # Read last: the values of Parameters after all that the way does.
        for variable, value in frame.updates().items():
            record.written[variable] = len(outputs)
            outputs.append(value)
        return outputs

    record.program = jax.make_jaxpr(program)(*arrays)
    for part in (*record.parts.values(), record.result):
        if isinstance(part, Part):
            # Tracers of a finished trace are not valid any more; shapes and dtypes of them are enough.
            shapes = record.program.out_avals[part.first : part.first + len(part.arrays)]
            part.arrays = [jax.ShapeDtypeStruct(shape.shape, shape.dtype) for shape in shapes]
    return record


def _note_outcome(record: Trace, outcome: Any, outputs: list[Any], keep: Callable[[Any], Part]) -> None:
    if outcome is None:
        return
    record.code = outcome.code if isinstance(outcome.code, int) else None
    record.codes = outcome.codes if record.code is None else frozenset((record.code,))
    if record.code is None:
        record.code_array = len(outputs)
        outputs.append(outcome.code)
    if not (isinstance(outcome.code, int) and outcome.code == BREAK_OUT):
        record.result = keep(outcome.value)


def as_flag(test: object, where: str) -> jax.Array:
    """A test as one bool.

    Raises:
        SporaxValueError: it has more elements.
    """
    array = test.array if isinstance(test, Tensor) else jnp.asarray(test)
    if array.size != 1:
        raise SporaxValueError(
            f"For '{where}', only a tensor whose shape is () or (1,) can be converted to bool, but got shape {array.shape}."
        )
    return jnp.reshape(array, ()).astype(bool)


def branch(
    test: object, first: Callable[[], Any], second: Callable[[], Any], scope: Scope, where: str, in_round: bool = False
) -> Any:
    """``first() if test else second()`` for a test whose value is not known, with everything that either changes."""
    flag = as_flag(test, where)
    begin = scope.values()
    try:
        one = trace(first, scope, lambda: begin, in_round=in_round)
        # The second way is often all that follows, with conditions of its own.
        number = next(SESSION.check_numbers)
        two = trace(second, scope, lambda: begin, in_round=in_round)
        if two.raised is not None and one.program is not None and one.program.effects:
            # The first way goes on, so its conditions come last.
            number = next(SESSION.check_numbers)
            one = trace(first, scope, lambda: begin, in_round=in_round)
    finally:
        # The second way, and the code after, start from the same values.
        scope.put(begin)
    if one.raised is not None or two.raised is not None:
        return _checked(flag, one, two, scope, begin, in_round, number)
    return _joined(flag, one, two, scope, begin, where, in_round)


def _checked(
    flag: jax.Array, one: Trace, two: Trace, scope: Scope, begin: dict[Any, Any], in_round: bool, number: int
) -> Any:
    """The way that does not raise; the other's error is raised when the program runs."""
    # Both ways raise: there is an error whatever the test says, and the test says which.
    if one.raised is not None and two.raised is not None:
        first, second = getattr(one.raised, RAISED).error, getattr(two.raised, RAISED).error
        (_, arrays), (_, others) = _ending(one, flag), _ending(two, jnp.logical_not(flag))

        def error(holds: object, *values: object) -> BaseException:
            found: BaseException = first(*values[: len(arrays)]) if holds else second(*values[len(arrays) :])
            return found

        setattr(one.raised, RAISED, RaisedWords([flag, *arrays, *others], error, id(frames.current_frame())))
        raise one.raised
    ended, way, condition = (one, two, flag) if one.raised is not None else (two, one, jnp.logical_not(flag))
    assert ended.raised is not None
    # An error cannot be raised by a compiled program, so it is checked after the run.
    is_raised, words = _ending(ended, condition)
    trace_constants.fail_when(is_raised, getattr(ended.raised, RAISED).error, words, number)
    # The other way has no results, so no `cond` is needed.
    arrays = way.run()
    values = {
        key: UNBOUND if part is UNBOUND else _built(part.value, arrays[part.first :]) for key, part in way.parts.items()
    }
    set_values(scope, begin, values, way.in_place)
    frames.commit({variable: arrays[place] for variable, place in way.written.items()})
    result = None if way.result is None else _built(way.result.value, arrays[way.result.first :])
    return _ended(way.code if way.code_array is None else arrays[way.code_array], result, way.codes, in_round)


def _ending(way: Trace, condition: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
    """The condition of a way that raises, behind the checks in it, and the tensors in the words of its error."""
    assert way.program is not None
    shapes = way.program.out_avals
    if not shapes and not way.program.effects:
        return condition, []
    # Only where it is chosen, since there may be checks on the way.
    is_chosen, *arrays = jax.lax.cond(
        condition,
        lambda: [jnp.array(True), *way.run()],
        lambda: [jnp.array(False), *(jnp.zeros(shape.shape, shape.dtype) for shape in shapes)],
    )
    return is_chosen, arrays


def _built(value: Value, arrays: Sequence[Any]) -> Any:
    return value.build(arrays[: value.size])


def set_values(scope: Scope, begin: dict[Any, Any], values: dict[Any, Any], in_place: set[object]) -> None:
    """Give the scope new values; what was changed in place stays the object it was."""
    after = {**begin, **values}
    for key in in_place:
        # Names elsewhere may refer to the same object.
        if key in values and values[key] is not UNBOUND:
            after[key] = take_over(begin[key], values[key])
    scope.put(after)


def _joined(
    flag: object, one: Trace, two: Trace, scope: Scope, begin: dict[Any, Any], where: str, in_round: bool
) -> Any:
    outputs: tuple[list[Callable[[list[Any]], Any]], list[Callable[[list[Any]], Any]]] = ([], [])
    built: list[tuple[Any, Value, int]] = []

    def join(key: object, what: str, left: Part, right: Part) -> None:
        value, sources = merge(what, where, left.both, right.both)
        built.append((key, value, len(outputs[0])))
        for side, part in enumerate((left, right)):
            for number in range(len(sources)):
                outputs[side].append(_taken(sources[number], side, part))

    gone = {}
    # What only one way changed keeps its old value in the other.
    for key in {**one.parts, **two.parts}:
        parts = _parts_of(key, one, two, begin)
        # A name that one way leaves unbound must not be read afterwards; Python would say so only then.
        if any(part is UNBOUND for part in parts):
            gone[key] = UNBOUND
        else:
            join(key, key if isinstance(key, str) else key[0], *parts)
    code: Any = GO_ON
    if in_round:
        code = _join_codes(one, two, outputs)
    result = _join_results(one, two, join)
    start = len(outputs[0])
    written = list({**one.written, **two.written})
    for way, own in zip((one, two), outputs, strict=True):
        own += [_written(way.written.get(variable), frames.read(variable)) for variable in written]

    def run(way: Trace, side: int) -> Callable[[], list[Any]]:
        def call() -> list[Any]:
            arrays = way.run()
            return [output(arrays) for output in outputs[side]]

        return call

    arrays = _integer_gradients.chosen(flag, run(one, 0), run(two, 1))
    values = {key: _built(value, arrays[place:]) for key, value, place in built}
    returned = values.pop(_RESULT, None) if result else None
    live = [way.in_place for way in (one, two) if not way.leaves_function]
    set_values(scope, begin, {**values, **gone}, set.intersection(*live) if live else set())
    frames.commit(dict(zip(written, arrays[start:], strict=True)))
    return _ended(arrays[code[0]] if isinstance(code, tuple) else code, returned, one.codes | two.codes, in_round)


def _ended(code: object, value: object, codes: frozenset[int], in_round: bool) -> Any:
    """What a joined way gives: its value, or how the round ends."""
    if not in_round:
        return value
    return None if isinstance(code, int) and code == GO_ON else Outcome(code, value, codes)


_RESULT = ("return value",)


def _taken(source: tuple[Any, Any], side: int, part: Part) -> Callable[[list[Any]], Any]:
    # A negative place marks arrays from outside of the trace.
    return lambda arrays: (
        pick([source], side, arrays[part.first :])[0] if part.first >= 0 else pick([source], side, part.arrays)[0]
    )


def _parts_of(key: object, one: Trace, two: Trace, begin: dict[Any, Any]) -> list[Any]:
    """What a variable is after either way; after one that returns no variable is read, so there it is like the other."""
    parts = [way.parts.get(key) or _unchanged(begin, key) for way in (one, two)]
    for side, way in enumerate((one, two)):
        if way.leaves_function and isinstance(key, str) and parts[1 - side] is not UNBOUND:
            parts[side] = zeros_like(parts[1 - side])
    return parts


def _unchanged(begin: dict[Any, Any], key: object) -> Any:
    value = begin.get(key, UNBOUND)
    if value is UNBOUND:
        return UNBOUND
    structure, arrays = take_apart(value)
    return Part(structure, list(arrays), -1)


def _written(place: int | None, before: Any) -> Callable[[list[Any]], Any]:
    return lambda arrays: before if place is None else arrays[place].astype(before.dtype)


def _join_codes(one: Trace, two: Trace, outputs: Any) -> Any:
    """The code both rounds end with, or a tuple with the place of the array that says it."""
    # Both rounds end in the same way, so nothing has to be decided when the program runs.
    if one.code_array is None and two.code_array is None and one.code == two.code:
        return one.code
    place = len(outputs[0])
    for side, way in enumerate((one, two)):
        outputs[side].append(
            lambda arrays, way=way: (
                jnp.asarray(way.code, jnp.int32) if way.code_array is None else arrays[way.code_array].astype(jnp.int32)
            )
        )
    return (place,)


def _join_results(one: Trace, two: Trace, join: Callable[..., None]) -> bool:
    if one.result is None and two.result is None:
        return False
    first = one.result or zeros_like(two.result)
    second = two.result or zeros_like(one.result)
    join(_RESULT, _RESULT[0], first, second)
    return True


def zeros_like(part: Part | None) -> Part:
    """Zeros in the form of a value: what stands for it where there is none."""
    assert part is not None
    return Part(part.value, [jnp.zeros(array.shape, array.dtype) for array in part.arrays], -1)


__all__ = ["ARRAY", "BREAK_OUT", "GO_ON", "RETURN", "Outcome", "Part", "Trace", "branch", "trace", "wrap"]
