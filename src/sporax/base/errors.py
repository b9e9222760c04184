"""Every error a user of Sporax can meet.

One root class, so that a program can catch all of them; each subclass is also the builtin that MindSpore raises in
the same situation, so that a script written for MindSpore catches what it always caught. A message opens with the
form MindSpore users know, ``For 'MatMul', …``, and states the two values that disagree and what to do.

Arguments are checked by `For`, which holds the name of the API that speaks. Its methods take what is wrong, the rest of the
sentence and the value that was found. A sentence is made at each call, as it is an argument: it names settings and shapes, which
costs little. The value that was found becomes text only in an error, since a Tensor's text waits for its device.

An error that passes through a Cell on its way to the user learns that Cell's name (`within`), so the text ends with
the path of the Cell it happened in. Working this out only when something failed keeps calls that succeed fast.

Example:
    >>> For("MatMul").refuse(3 != 4, "the inner dimensions must be equal", 3, 4)
    SporaxValueError: For 'MatMul', the inner dimensions must be equal, but got 3 and 4.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from types import UnionType
from typing import Any, TypeVar


class SporaxError(Exception):
    """Root of all errors raised by Sporax."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cell_path: tuple[str, ...] = ()

    def within(self, name: str) -> None:
        """Note that the error passed through the Cell called `name` (innermost first)."""
        if name:
            self.cell_path = (name, *self.cell_path)

    def rename(self, kernel: str, operator: str) -> None:
        """Name the operator that the user called, where the message names its kernel, or any other name of our own."""
        named = self.message.partition("For '")[2].partition("', ")[0]
        if self.message.startswith("For '") and (named == kernel or named.startswith("_")):
            self.message = self.message.replace(named, operator, 1)

    def __str__(self) -> str:
        if not self.cell_path:
            return self.message
        return f"{self.message}\n  in Cell '{'.'.join(self.cell_path)}'"


class SporaxTypeError(SporaxError, TypeError):
    """An argument has the wrong Python type or dtype."""


class SporaxValueError(SporaxError, ValueError):
    """An argument has the right type and a value that is not allowed."""


class SporaxRuntimeError(SporaxError, RuntimeError):
    """The operation is not possible in the present state, or a plan is not valid."""


class SporaxDefectError(SporaxRuntimeError):
    """Sporax failed inside, at something that is correct: the defect is ours. Its cause is the exception that was met."""


class SporaxIndexError(SporaxError, IndexError):
    """An index is out of range."""


class SporaxKeyError(SporaxError, KeyError):
    """A name is not one of those that exist."""


class SporaxAttributeError(SporaxError, AttributeError):
    """An attribute does not exist, or is not supported."""


class SporaxImportError(SporaxError, ImportError):
    """A module or name cannot be imported: not offered, or an optional dependency is missing."""


class SporaxNotADirectoryError(SporaxError, NotADirectoryError):
    """A path that must be a directory is none."""


class SporaxNotImplementedError(SporaxError, NotImplementedError):
    """MindSpore has this; Sporax does not offer it."""


Text = Callable[[object], str]
Types = type | tuple[type, ...] | UnionType
_PLAIN: Text = "{}".format
_E = TypeVar("_E", bound=SporaxError)


class For:
    """The API of the name `where`, as it speaks of its arguments."""

    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        self.where = where

    def fault(self, kind: type[_E], words: str, *got: object, show: Text = _PLAIN) -> _E:
        """The error of `kind`: the sentence `words` without its dot, and the values found, in the text that `show` makes."""
        if got:
            *first, last = map(show, got)
            words += f", but got {', '.join(first)}{' and ' if first else ''}{last}"
        return kind(f"For '{self.where}', {words}.")

    def error(self, words: str, *got: object, show: Text = _PLAIN) -> SporaxValueError:
        """The error for a value; see `fault`."""
        return self.fault(SporaxValueError, words, *got, show=show)

    def type_error(self, words: str, *got: object, show: Text = _PLAIN) -> SporaxTypeError:
        """The error for a type; see `fault`."""
        return self.fault(SporaxTypeError, words, *got, show=show)

    def state_error(self, words: str, *got: object, show: Text = _PLAIN) -> SporaxRuntimeError:
        """The error for what cannot be done in the present state; see `fault`."""
        return self.fault(SporaxRuntimeError, words, *got, show=show)

    def refuse(
        self, wrong: object, words: str, *got: object, show: Text = _PLAIN, kind: type[SporaxError] = SporaxValueError
    ) -> None:
        """Raise the error of `kind` if something is `wrong`."""
        if wrong:
            raise self.fault(kind, words, *got, show=show)

    def refuse_type(self, wrong: object, words: str, *got: object, show: Text = _PLAIN) -> None:
        """Raise `type_error` if something is `wrong`."""
        self.refuse(wrong, words, *got, show=show, kind=SporaxTypeError)

    def refuse_state(self, wrong: object, words: str, *got: object, show: Text = _PLAIN) -> None:
        """Raise `state_error` if something is `wrong`."""
        self.refuse(wrong, words, *got, show=show, kind=SporaxRuntimeError)

    def typed(self, what: str, value: object, expected: str, types: Types, *, takes_bool: bool = True) -> Any:
        """`value`, of `types`; else `type_error`, which calls them `expected`. Bools are ints unless excluded."""
        if not isinstance(value, types) or (isinstance(value, bool) and not takes_bool):
            raise self.type_error(f"{named(what)} must be {expected}", type(value).__name__)
        return value

    def boolean(self, what: str, value: object) -> bool:
        """`value`, a bool."""
        return bool(self.typed(what, value, "a bool", bool))

    def integer(self, what: str, value: object, least: int | None = None) -> int:
        """`value`, an int and no bool, of at least `least`."""
        number: int = self.typed(what, value, "a whole number", int, takes_bool=False)
        self.refuse(least is not None and number < least, f"{named(what)} must be >= {least}", number)
        return number

    def number(self, what: str, value: object) -> float:
        """`value`, an int or float and no bool."""
        checked: float = self.typed(what, value, "a number", int | float, takes_bool=False)
        return checked

    def text(self, what: str, value: object, choices: Collection[str] = ()) -> str:
        """`value`, a string, and one of `choices` where there are any."""
        word: str = self.typed(what, value, "a string", str)
        self.refuse(choices and word not in choices, f"{named(what)} must be one of {[*choices]}", f"'{word}'")
        return word

    def one_of(
        self, what: str, value: object, choices: Collection[object], kind: type[SporaxError] = SporaxValueError
    ) -> None:
        """Refuse what is none of `choices`."""
        if value not in choices:
            raise self.fault(kind, f"{named(what)} must be one of {tuple(choices)}", value, show=repr)


def named(what: str) -> str:
    """An argument's name in quotes; a phrase such as "the input" as it is."""
    return what if " " in what else f"'{what}'"


def check_type(where: str, what: str, value: object, expected: str, types: Types, *, takes_bool: bool = True) -> Any:
    """`For(where).typed`, as a check of declared arguments."""
    return For(where).typed(what, value, expected, types, takes_bool=takes_bool)


_LEAST_SIMILARITY = 0.6
"""Share of equal letters (`difflib.SequenceMatcher.ratio`) from which on a name is offered."""


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """A question with the name of these initials (``lr``), or the most similar one, with a space in front; "" where none is.

    Letters may be of any case, and dashes stand for underscores.

    Example:
        >>> did_you_mean("h10", ["h100", "tpu-v5e"])
        " Did you mean 'h100'?"
    """
    plain = {_plain(name): name for name in reversed(list(names))}
    initials = [
        name for name in plain if "_" in name and "".join(part[:1] for part in name.split("_")) == _plain(str(word))
    ]
    near = initials or difflib.get_close_matches(_plain(str(word)), plain, 1, _LEAST_SIMILARITY)
    return f" Did you mean '{plain[near[0]]}'?" if near else ""


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")
