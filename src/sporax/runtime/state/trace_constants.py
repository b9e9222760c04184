"""Values that are known while a step is being compiled.

Problem: to MindSpore's compiler ``Tensor([1, 2]) + 1`` in a step is a constant, and code reads its value: ``int(t)``,
``if (t > 1).any():``, ``t.asnumpy()``. JAX traces every operator, so the result is a tracer like any other. Method: whatever
makes a traced array out of nothing but constants notes in the frame how; the value is computed, outside of the trace, when
code reads it. A step in which no value is read computes none.

Texts with values that are not known: something stands in them for each value (`text_later`), whoever has the values later takes
the text apart there (`parts_of_text`).

Errors that depend on values: raised after a compiled step has run.

A program cannot raise. It hands the condition to the host (`fail_when`), which notes the error; whoever ran the program
waits for it and raises (`raise_noted`). Programs without such conditions do not wait.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from sporax.base.errors import SporaxTypeError
from sporax.base.identity import ByIdentity
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

ENDED = (
    "a tensor was kept, in a variable, an attribute or a list, from inside of a gradient, a map, a loop or a compiled step that "
    "has ended, and has no value outside of it. Return it (see 'has_aux' of value_and_grad), or keep it in a Parameter"
)
"""What to say where such a tracer is used."""


class Constant:
    """A traced array of constants.

    Args:
        make: gives the value.
    """

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    def value(self) -> np.ndarray[Any, Any]:
        """The value, computed at the first call."""
        if self._make is not None:
            # Inside of a trace this computes at once, where it would otherwise add operators to the program.
            with jax.ensure_compile_time_eval():
                self._value = np.asarray(self._make())
            # The closure keeps the operator's inputs alive.
            self._make = None
        result: np.ndarray[Any, Any] = self._value
        return result


def find(array: Any) -> Constant | None:
    """What is noted of a traced array."""
    # Loop bodies and branches have frames of their own and see the constants of those around them.
    frame = frames.current_frame()
    while frame is not None:
        if frame.constants:
            constant: Constant | None = frame.constants.get(ByIdentity(array))
            if constant is not None:
                return constant
        frame = frame.parent
    return None


def is_constant(array: Any) -> bool:
    """Whether the value of an array is known, or can be computed."""
    return not isinstance(array, jax.core.Tracer) or find(array) is not None


def known(array: Any) -> np.ndarray[Any, Any] | None:
    """The value of an array, or None if it is not known while the step is being compiled."""
    if isinstance(array, jax.core.Tracer):
        constant = find(array)
        if constant is not None:
            return constant.value()
        # Inputs of a compiled step differ from call to call.
        if frames.compiling():
            return None
        try:  # the tracer of an eager gradient knows its value, and without a tangent it is that value
            return np.asarray(jax.lax.stop_gradient(array))
        except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
            return None
        except jax.errors.UnexpectedTracerError:
            raise SporaxTypeError(f"For 'Tensor', {ENDED}.") from None
    return np.asarray(array)


def note(array: Any, make: Callable[[], Any]) -> None:
    """Say how the value of an array is computed, if it is traced."""
    frame = frames.current_frame()
    if frame is not None and isinstance(array, jax.core.Tracer):
        # By identity; the entry keeps its tracer alive, since the address of a dead one may be used again.
        frame.constants[ByIdentity(array)] = Constant(make)


def derive(array: Any, inputs: Iterable[Any], make: Callable[..., Any]) -> None:
    """Note that `array` is ``make(*inputs)``, if all inputs are constants of a step that is being compiled.

    Args:
        make: gives its value from those of the inputs.
    """
    if frames.current_frame() is None or not isinstance(array, jax.core.Tracer):
        return
    sources = list(inputs)
    if any(source is array for source in sources):  # a conversion that had nothing to do
        return
    if all(map(is_constant, sources)) and frames.compiling():
        note(array, lambda: make(*(known(source) for source in sources)))


_LATER = re.compile(r"(Tensor\([^()]*<traced \d+>\))")


def text_later(tensor: Any, write: Callable[..., str]) -> str:
    """What stands in a text for a tensor whose value is not known while the step is being compiled.

    Args:
        write: makes the text of the tensor, once its value is known.
    """
    number = len(SESSION.tracing.texts)
    text = f"Tensor(shape={list(tensor.shape)}, dtype={tensor.dtype}, value=<traced {number}>)"
    SESSION.tracing.texts[text] = tensor, write
    return text


def parts_of_text(text: str) -> list[str | tuple[Any, Callable[..., str]]]:
    """A text in parts: strings, and a tensor with how it is written, where `text_later` stands for one."""
    return [SESSION.tracing.texts.get(part, part) for part in _LATER.split(text)]


def fail_when(
    flag: jax.Array,
    error: BaseException | Callable[..., BaseException],
    arrays: Sequence[jax.Array] = (),
    number: int | None = None,
) -> None:
    """Make the program that is being traced raise `error`, or ``error(*arrays)``, when `flag`, a bool array, is true.

    Args:
        number: its place among the conditions of the program (`SESSION.check_numbers`); by default after those so far.
    """
    place = next(SESSION.check_numbers) if number is None else number

    def note(is_raised: object, *values: object) -> None:
        # A later round of a loop comes after whatever has failed; otherwise callbacks run in any order.
        if place in SESSION.checks and any(noted is not None for noted in SESSION.checks.values()):
            return
        SESSION.checks[place] = None
        if is_raised:
            SESSION.checks[place] = error if isinstance(error, BaseException) else error(*values)

    frames.note_check()
    jax.debug.callback(note, flag, *arrays)


def raise_noted(outputs: Any) -> None:
    """Wait for a program that has conditions, and raise the first error of this run.

    Args:
        outputs: arrays that the program gave.
    """
    jax.block_until_ready(outputs)
    # Outputs can be ready before the callbacks of their program have run.
    jax.effects_barrier()
    # Later conditions often fail because of the first one, and none may be left for the next run.
    noted = [error for _, error in sorted(SESSION.checks.items()) if error is not None]
    SESSION.checks.clear()
    if noted:
        # The error object is part of the compiled program; without this its traceback would grow with every run.
        raise noted[0].with_traceback(None)
