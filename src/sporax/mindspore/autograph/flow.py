"""What rewritten code calls in place of statements and operators of Python.

Every function does what Python does when the value it looks at is known; what costs more happens only for tensors of a step
that is being compiled.
"""

from __future__ import annotations

import builtins
import copy
import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import SporaxTypeError
from sporax.mindspore.autograph import _branches as branches
from sporax.mindspore.autograph._loops import loop
from sporax.mindspore.autograph._tensor_conditions import RAISED, CommonPart, RaisedWords
from sporax.mindspore.autograph._values import Scope, contents, is_number, restore, take_apart
from sporax.mindspore.common.tensor import Tensor, to_array, wrap
from sporax.runtime.state import frames, trace_constants

Body = Callable[..., Any]
Operation = Callable[[], Any]

BREAK = branches.Outcome(branches.BREAK_OUT)
CONTINUE = None
# Rounds above which a counted loop is not written out because of a `break`.
_LONG = 32


def returned(value: object) -> branches.Outcome:
    """A round that returns from the function."""
    return branches.Outcome(branches.RETURN, value)


def unknown(value: object) -> bool:
    """Whether this is a tensor whose value is not known yet."""
    if not isinstance(value, Tensor) or not frames.compiling():
        # Outside of compiled steps every value is known.
        return False
    return not trace_constants.is_constant(value.array)


def is_global(name: str) -> bool:
    """Whether the calling function's module has a global of this name."""
    return name in sys._getframe(1).f_globals


def of_global(name: str) -> Any:
    """The value of a global of the calling function's module; a copy of what could be changed in place."""
    value = sys._getframe(1).f_globals[name]
    return copy.deepcopy(value) if isinstance(value, list | dict | set) else value


def _where(what: str, function: Any, line: int) -> str:
    return f"{what}, line {line} of {function.__code__.co_filename}"


def if_(test: object, body: Body, orelse: Body, *state: object) -> Any:
    """``if test: body`` and ``else: orelse``.

    Args:
        test: a value, or a tensor.
        body, orelse: both ways: the block, or all that runs to the end of the function.
        state: what `Scope` takes, and the line.

    Returns:
        What the way that is taken returns.
    """
    return _decided(test, body, orelse, state, in_round=False)


def if_jump(test: object, body: Body, orelse: Body, *state: object) -> Any:
    """As `if_`, where either way runs to the end of a loop's round; gives how the round ends."""
    return _decided(test, body, orelse, state, in_round=True)


def _decided(test: object, body: Body, orelse: Body, state: tuple[Any, ...], in_round: bool) -> Any:
    # The usual case: nothing depends on a tensor, and the branch runs as Python.
    if not unknown(test):
        return (body if test else orelse)()
    scope = Scope((body, orelse), *state[:3])
    return branches.branch(test, body, orelse, scope, _where("if", body, state[3]), in_round)


def while_(test: Body, body: Body, *start: Any) -> branches.Outcome | None:
    """``while test(): body()``; gives how it ended. `start` is as for `if_`."""
    outcome: branches.Outcome | None = None
    if not frames.compiling():
        while outcome is None and test():
            outcome = body()
        return outcome
    # Rounds are written out as long as the test is known, as tracing Python does.
    for rounds in count():
        goes_on = test()
        scope = Scope((test, body), *start[:3])
        # After many rounds a loop in the program is the smaller one.
        if unknown(goes_on) or (rounds >= _LONG and isinstance(goes_on, Tensor)):
            return _traced_while(test, body, scope, start[3])
        if not goes_on:
            break
        begin, forms = scope.values(), _forms(scope)
        before = {key: contents(value) for key, value in begin.items()}
        # A frame, so that a round that turns out to be undecided leaves no trace.
        with frames.Frame() as frame:
            outcome = body()
        if outcome is not None and not isinstance(outcome.code, int):
            # Whether this round was the last depends on values.
            if _forms(scope) != forms:
                # The first round gives variables their form, and elements that are there in any case.
                frames.commit(frame.updates())
                rest = partial(_traced_while, test, body, scope, start[3])
                return _rest(outcome, rest, scope, _where("while", body, start[3]))
            # It is undone, and traced as a loop.
            restore(before)
            scope.put(begin)
            return _traced_while(test, body, scope, start[3])
        frames.commit(frame.updates())
        if outcome is not None:
            return outcome
    return None


def _forms(scope: Scope) -> dict[Any, Any]:
    """What a loop of the program keeps of its variables."""
    forms = {}
    for key, value in scope.values().items():
        if scope.is_needed(key):
            structure, arrays = take_apart(value)
            numbers = [*map(is_number, structure.leaves)]
            forms[key] = structure.tree, numbers, [(array.shape, array.dtype) for array in arrays]
    return forms


def _traced_while(test: Body, body: Body, scope: Scope, line: int) -> branches.Outcome | None:
    return loop(lambda _: test(), lambda _: body(), scope, _where("while", body, line))


@dataclass(frozen=True, slots=True)
class TensorRange:
    """A `range` whose bounds are tensors."""

    start: Any
    stop: Any
    step: int


def range_(range_of: Any, *args: Any) -> Any:
    """``range(*args)``, of tensors too."""
    if range_of is not builtins.range or not any(map(unknown, args)):
        return range_of(*args)
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if unknown(step):
        raise SporaxTypeError("For 'range', the step must be known while the step is being compiled, but got a Tensor.")
    return TensorRange(start, stop, int(step))


def for_(items: Any, body: Body, *start: Any) -> branches.Outcome | None:
    """``for item in items: body(item)``; gives how it ended. `start` is as for `if_`."""
    if isinstance(items, TensorRange):
        return _counted(items, body, start)
    compiling = frames.compiling()
    # A `break` that depends on values would nest all rounds that follow in one another.
    if compiling and isinstance(items, range) and len(items) > _LONG and _jumps_unknown(items, body, start):
        return _counted(TensorRange(items.start, items.stop, items.step), body, start)
    remaining = iter(items)
    for item in remaining:
        outcome: branches.Outcome | None = body(item)
        if outcome is None:
            continue
        if isinstance(outcome.code, int):
            return outcome
        others = list(remaining)
        # All that follows runs under the condition that the loop has not ended.
        rest = partial(for_, others, body, *start)
        return _rest(outcome, rest, Scope((body,), *start[:3]), _where("for", body, start[3])) if others else outcome
    return None


def _jumps_unknown(items: range, body: Body, state: Any) -> bool:
    """Whether it depends on values how the first round ends."""
    scope = Scope((body,), *state[:3])
    begin = scope.values()
    try:
        record = branches.trace(lambda: body(items[0]), scope, lambda: begin, in_round=True)
    finally:
        scope.put(begin)
    return record.code_array is not None


def _rest(outcome: branches.Outcome, following: Body, scope: Scope, where: str) -> branches.Outcome:
    """How a loop ends of which one round may have been the last."""
    ended = replace(outcome, codes=outcome.codes - {branches.GO_ON})
    goes_on = wrap(outcome.code == branches.GO_ON)
    result: branches.Outcome | None = branches.branch(goes_on, following, lambda: ended, scope, where, in_round=True)
    # The loop may end either way, so the code says that it goes on.
    return branches.Outcome(branches.GO_ON) if result is None else result


def _counted(items: TensorRange, body: Body, state: Any) -> branches.Outcome | None:
    scope = Scope((body,), *state[:3])
    first, stop = _integer(items.start), _integer(items.stop)
    return loop(
        lambda index: wrap(index.array < stop if items.step > 0 else index.array > stop),
        body,
        scope,
        _where("for", body, state[3]),
        index=jnp.asarray(first),
        step=items.step,
    )


def _integer(value: object) -> Any:
    if not isinstance(value, Tensor):
        # Python's ints have no limit; 64 bits are the widest that XLA has.
        return jnp.asarray(value, jnp.int64)
    if value.array.dtype.kind not in "iu" or value.size != 1:
        raise SporaxTypeError(f"For 'range', the bounds must be integers, but got {value.dtype}{list(value.shape)}.")
    return value.array.reshape(()).astype(jnp.int64)


def after(outcome: branches.Outcome | None, following: Body, *state: object) -> Any:
    """What follows a loop that may have returned from the function; gives what is returned."""
    return _followed(outcome, following, state, in_round=False)


def round_after(outcome: branches.Outcome | None, following: Body, *state: object) -> Any:
    """As `after`, within a round of a loop around; gives how that round ends."""
    return _followed(outcome, following, state, in_round=True)


def _followed(outcome: branches.Outcome | None, following: Body, state: tuple[Any, ...], in_round: bool) -> Any:
    if outcome is None or (isinstance(outcome.code, int) and outcome.code != branches.RETURN):
        return following()
    # In a round of an outer loop a return is a result of that round.
    returned = branches.Outcome(branches.RETURN, outcome.value) if in_round else outcome.value
    if isinstance(outcome.code, int):
        return returned
    scope = Scope((following,), *state[:3])
    where = _where("return", following, state[3])
    return branches.branch(wrap(outcome.code == branches.RETURN), lambda: returned, following, scope, where, in_round)


def assert_(test: Operation, message: Operation | None) -> None:
    """``assert test(), message()``."""
    value = test()
    if not unknown(value):
        if not value:
            raise AssertionError(*([] if message is None else [message()]))
        return
    words = [] if message is None else [message()]
    described, arrays = _described(words)
    trace_constants.fail_when(
        jnp.logical_not(branches.as_flag(value, "assert")),
        lambda *values: AssertionError(*(str(_single(part, values)) for part in described)),
        arrays,
    )


def raised(error: object) -> Any:
    """An error that the user raises: if that depends on a tensor, it is raised when the program has run."""
    error = error() if isinstance(error, type) else error
    if isinstance(error, BaseException) and frames.compiling():
        # Marked, so that `_branches` distinguishes it from mistakes; the tensors of its words are known after the run.
        described, arrays = _described(error.args)
        raised_error = error

        def filled(*values: object) -> BaseException:
            if values:
                raised_error.args = tuple(_single(part, values) for part in described)
            return raised_error

        setattr(error, RAISED, RaisedWords(arrays, filled, id(frames.current_frame())))
    return error


def _single(part: object, values: tuple[object, ...]) -> Any:
    """A part of an error, in which numbers are Python's."""
    value = _filled(part, values)
    return value.item() if isinstance(part, _Place) and not value.ndim else value


def _pure(function: Operation) -> Scope:
    return Scope((function,), (), (), ())


def and_(*operands: Operation) -> Any:
    """``a and b …``; a bool Tensor as soon as an operand is a tensor whose value is not known."""
    return _logical(operands, stops_at=False)


def or_(*operands: Operation) -> Any:
    """``a or b …``; see `and_`."""
    return _logical(operands, stops_at=True)


def _logical(operands: tuple[Operation, ...], stops_at: bool) -> Any:
    first, *others = operands
    value = first()
    if not others:
        return value
    if not unknown(value):
        return value if bool(value) is stops_at else _logical(tuple(others), stops_at)
    name = "or" if stops_at else "and"

    def rest() -> Any:
        return _logical(tuple(others), stops_at)

    def rest_as_flag() -> Tensor:
        other = rest()
        return wrap(branches.as_flag(other if isinstance(other, Tensor) else bool(other), name))

    def join(first: Operation, second: Operation) -> Any:
        # `branch` takes the way for True first.
        ways = (first, second) if stops_at else (second, first)
        return branches.branch(value, *ways, _pure(rest), name)

    try:
        return join(lambda: value, rest)
    except SporaxTypeError:  # of two types, or no tensor: as a condition it is good
        # In a condition only the truth of the result counts.
        constant = wrap(jnp.asarray(stops_at))
        return join(lambda: constant, rest_as_flag)


def chained(left: object, *steps: tuple[str, Operation]) -> Any:
    """``left < a < b …``."""
    result: Any = True
    for name, operand in steps:
        right = operand()
        one = getattr(operator, name)(left, right)
        result = one if result is True else and_(partial(_same, result), partial(_same, one))
        # As soon as one comparison is known to fail, the others are not evaluated.
        if not unknown(result) and not result:
            return result
        left = right
    return result


def _same(value: object) -> Any:
    return value


def not_(value: object) -> Any:
    """``not value``."""
    return wrap(jnp.logical_not(branches.as_flag(value, "not"))) if unknown(value) else not value


def choose(test: object, first: Operation, second: Operation, line: int) -> Any:
    """``first() if test else second()``."""
    if not unknown(test):
        return first() if test else second()
    where = f"if, line {line}" if isinstance(first, partial) else _where("if", first, line)
    return branches.branch(test, first, second, _pure(first), where)


def in_(value: Any, container: Any) -> Any:
    """``value in container``."""
    if not unknown(value) and not (isinstance(container, list | tuple) and any(map(unknown, container))):
        return value in container
    # Elements of other types are never equal to a tensor.
    equal = [
        branches.as_flag(value == item, "in") for item in container if isinstance(item, Tensor | bool | int | float)
    ]
    return wrap(jnp.any(jnp.stack(equal))) if equal else False


def not_in(value: object, container: object) -> Any:
    """``value not in container``."""
    return not_(in_(value, container))


def item(container: Any, index: Any) -> Any:
    """``container[index]``; of a list or tuple also where the index is a tensor whose value is not known.

    Of functions and Cells this gives a function: which of them is called is decided when the step runs.

    Raises:
        SporaxTypeError: its elements are not tensors or numbers of one type and shape.
    """
    if not isinstance(container, list | tuple) or not unknown(index):
        return container[index]
    if container and all(map(callable, container)):
        return partial(_one_of, tuple(container), index)
    elements = [wrap(to_array(member, None)) for member in container if isinstance(member, Tensor | bool | int | float)]
    # The elements are stacked, so they must be equal in shape and dtype.
    if len(elements) < len(container) or len({(element.shape, element.dtype) for element in elements}) != 1:
        raise SporaxTypeError(
            f"For '{type(container).__name__}', a Tensor whose value is not known while the step is being compiled can only "
            "be the index of functions, or of tensors or numbers of one type and shape."
        )
    place = jnp.reshape(index.array, ())
    # Negative indices count from the end, as in Python.
    return wrap(jnp.stack([element.array for element in elements])[jnp.where(place < 0, place + len(elements), place)])


def joined(is_list: bool, *parts: Any) -> Any:
    """``[*a, b, *c]`` or ``(*a, b, *c)`` of `parts` a, [b], c."""
    items: Any = []
    for part in parts:
        items = items + (part if type(part) is CommonPart else list(part))
    return items if is_list or type(items) is CommonPart else tuple(items)


def unpacked(value: Any, before: int, after: int) -> list[Any]:
    """What ``a, b, *rest, z = value`` assigns, with so many names before and after the list."""
    if type(value) is CommonPart:
        return value.split(before, after)
    items = list(value)
    rest = len(items) - after
    if rest < before:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    return [*items[:before], items[before:rest], *items[rest:]]


def _one_of(functions: tuple[Body, ...], index: object, /, *args: object, **kwargs: Any) -> Any:
    """Calls the function of a number; numbers beyond the last count as the last."""
    *others, call = (partial(function, *args, **kwargs) for function in functions)
    for number in reversed(range(len(others))):
        chosen = (index == number) | (index == number - len(functions))
        call = partial(choose, chosen, others[number], call, 0)
    return call()


def number(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """``int(x)``, ``float(x)``, ``bool(x)``: of a tensor whose value is not known, a tensor of that kind."""
    dtypes = {builtins.int: jnp.int64, builtins.float: jnp.float32, builtins.bool: jnp.bool_}
    if kind in dtypes and len(args) == 1 and unknown(args[0]):
        return wrap(jnp.reshape(args[0].array, ()).astype(dtypes[kind]))
    return kind(*args, **kwargs)


def largest(function: Any, *args: Any, **kwargs: Any) -> Any:
    """``max`` and ``min``, of tensors too."""
    if function in (max, min) and len(args) == 1 and not kwargs and unknown(args[0]) and args[0].ndim == 1:
        return args[0].max() if function is max else args[0].min()
    items = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    if kwargs or function not in (max, min) or len(items) < 2 or not any(map(unknown, items)):
        return function(*args, **kwargs)
    result = items[0]
    # In the order of Python's own max, which keeps the first of equal items.
    for item in items[1:]:
        pair = (item, result) if function is max else (result, item)
        result = choose(pair[0] > pair[1], partial(_same, item), partial(_same, result), 0)
    return result


def truth(function: Any, *args: Any) -> Any:
    """``any`` and ``all``, of tensors too."""
    if function not in (any, all) or len(args) != 1:
        return function(*args)
    items = list(args[0])
    if not any(map(unknown, items)):
        return function(items)
    flags = jnp.stack([branches.as_flag(item, function.__name__) for item in items])
    return wrap(flags.any() if function is any else flags.all())


def print_(function: Any, *args: Any, **kwargs: Any) -> Any:
    """``print``: of tensors whose values are not known, when the program runs."""
    if function is not builtins.print or not any(_prints_later(arg) for arg in args):
        return function(*args, **kwargs)
    described, arrays = _described(args)

    def show(*values: object) -> None:
        function(*(_filled(part, values) for part in described), **kwargs)

    # Not ordered: waiting for the output would slow the program down.
    jax.debug.callback(show, *arrays, ordered=False)
    return None


def _described(args: Sequence[object]) -> tuple[list[object], list[jax.Array]]:
    """Values with places where tensors are that are not known, and their arrays; see `_filled`."""
    arrays: list[jax.Array] = []

    def collect(value: Any) -> object:
        if isinstance(value, str):
            parts = trace_constants.parts_of_text(value)
            return _Text([part if isinstance(part, str) else (collect(part[0]), part[1]) for part in parts])
        if unknown(value):
            arrays.append(value.array)
            return _Place(len(arrays) - 1)
        if isinstance(value, list | tuple):
            return type(value)(map(collect, value))
        return str(value) if isinstance(value, Tensor) else value

    return [collect(arg) for arg in args], arrays


@dataclass(frozen=True, slots=True)
class _Place:
    number: int


@dataclass(frozen=True, slots=True)
class _Text:
    parts: list[Any]


def _prints_later(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_prints_later, value))
    return unknown(value) or (isinstance(value, str) and len(trace_constants.parts_of_text(value)) > 1)


def _filled(value: object, values: tuple[object, ...]) -> Any:
    if isinstance(value, _Place):
        return Tensor(np.asarray(values[value.number]))
    if isinstance(value, _Text):
        return "".join(part if isinstance(part, str) else part[1](_filled(part[0], values)) for part in value.parts)
    return type(value)(_filled(item, values) for item in value) if isinstance(value, list | tuple) else value


__all__: Sequence[str] = """
    BREAK CONTINUE after and_ assert_ choose for_ if_ if_jump in_ item joined largest not_ not_in number or_ print_ raised range_
    returned round_after truth unpacked while_
""".split()
