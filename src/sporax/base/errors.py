"""Every error a user of Sporax can meet.

One root class, so that a program can catch all of them; each subclass is also the builtin that MindSpore raises in
the same situation, so that a script written for MindSpore catches what it always caught. A message opens with the
form MindSpore users know, ``For 'MatMul', …``, and states the two values that disagree and what to do.

An error that passes through a Cell on its way to the user learns that Cell's name (`within`), so the text ends with
the path of the Cell it happened in. Working this out only when something failed keeps calls that succeed fast.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from types import UnionType
from typing import Any, Self


class SporaxError(Exception):
    """Root of all errors raised by Sporax."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cell_path: tuple[str, ...] = ()

    @classmethod
    def must(cls, where: str, what: str, duty: str, got: object) -> Self:
        """The error for an argument `what` of `where` ("axis"; "the input") that must `duty` ("be an int"), but is `got`."""
        return cls(f"For '{where}', {what if ' ' in what else repr(what)} must {duty}, but got {got}.")

    @classmethod
    def raise_if(
        cls, wrong: object, where: str, what: str, duty: str, got: object, show: Callable[[object], str] = "{}".format
    ) -> None:
        """Raise the error of `must` if the argument is `wrong`; `show` makes text of what it is, `repr` for example."""
        if wrong:
            raise cls.must(where, what, duty, show(got))

    @classmethod
    def raise_unless_in(cls, where: str, what: str, value: object, choices: Collection[object]) -> None:
        """Raise the error of `must` unless the argument is one of `choices`."""
        if value not in choices:
            raise cls.must(where, what, f"be one of {tuple(choices)}", repr(value))

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


def check_type(
    where: str,
    what: str,
    value: object,
    expected: str,
    types: type | tuple[type, ...] | UnionType,
    *,
    takes_bool: bool = True,
) -> Any:
    """`value`, of `types`; else SporaxTypeError, which calls them `expected`. Bools are ints unless excluded."""
    if not isinstance(value, types) or (isinstance(value, bool) and not takes_bool):
        raise SporaxTypeError.must(where, what, f"be {expected}", type(value).__name__)
    return value


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
