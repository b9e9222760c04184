"""JSON from outside, decoded into typed records with limits.

Problem: whoever reads a file must learn what is wrong in it and where, in words that need no knowledge of the reader.
Method: msgspec decodes the text into a struct. If it does not fit, the document is looked at a second time as plain values,
to say which value is at the place that msgspec names. Nothing is spent on places while all is well.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MAX_BYTES = 1 << 28
"""Bytes of one document, 256 MiB: the plan of a network of 10,000 operators has some 10 MB."""

_KINDS = {
    "object": "an object",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}
"""Msgspec's names of types in words that need no knowledge of it."""
_MESSAGE = re.compile(r"(?s)(?P<problem>.*?)(?: - at (?P<key>`key` in )?`\$(?P<place>.*)`)?")
_EXPECTED = re.compile(r"Expected `(?P<kinds>[\w| ]+)`(?P<limit>(?! of )[^,]*)(?:, got .*)?")
_LENGTH = re.compile(r"Expected `(?P<kind>\w+)` of (?P<limit>(?:at least |at most )?length .*?)(?:, got .*)?")
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`|Invalid enum value '(?P<key>.*)'")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")


class MalformedError(Exception):
    """A document that is not as it must be.

    Args:
        reason: what a value must be, and what it is: ``"must be a list, but got 3"``.
        where: the place of the value in the document: ``"operators[3].results[0]"``; "" for the whole document.
    """

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason, where)
        self.reason, self.where = reason, where

    def __str__(self) -> str:
        return f"'{self.where}' {self.reason}" if self.where else f"it {self.reason}"


class NotJsonError(MalformedError):
    """A text that is no JSON at all."""

    def __str__(self) -> str:
        return f"the text is no JSON: {self.reason}"


def decode(content: str | bytes, kind: type[T], max_bytes: int = MAX_BYTES) -> T:
    """A JSON document as a record.

    Args:
        content: the text.
        kind: a struct, or another type that msgspec knows.
        max_bytes: the most that is read.

    Raises:
        MalformedError: the document is too long or does not fit.
    """
    # Before decoding: a long document may need many times its size in memory.
    if len(content) > max_bytes:
        raise MalformedError(f"must have {max_bytes} bytes at most, but has {len(content)}")
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    # Once more, for the words: Python's reader names line and column, and keeps the values.
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(str(error)) from None
    convert(document, kind)
    # Python's reader accepts NaN and Infinity, and msgspec does not.
    raise NotJsonError("NaN and Infinity are no numbers of JSON")


def convert(document: object, kind: type[T]) -> T:
    """A decoded JSON document as a record.

    Raises:
        MalformedError: the document does not fit.
    """
    try:
        return msgspec.convert(document, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise _located(error, document, kind) from None


def _located(error: msgspec.ValidationError, document: Any, kind: Any) -> MalformedError:
    """What is wrong, at which place, with the value that is there."""
    match = _MESSAGE.fullmatch(str(error))
    assert match is not None
    value, where = document, ""
    # The place is followed in the plain document, so the message can show the value there.
    for step in _steps(match["place"] or "", document, kind, str(error)):
        value = value[step]
        where += f"[{step}]" if isinstance(step, int) else f".{step}"
    where = where.removeprefix(".")
    if match["key"] and not _UNKNOWN.fullmatch(match["problem"]):
        # Msgspec does not say which key it was, but only keys that are no numbers can be wrong.
        wrong = next((key for key in value if not key.isdecimal()), next(iter(value)))
        return MalformedError(f"must have whole numbers as keys, but got {wrong!r}", where)
    return MalformedError(_reason(match["problem"], value), where)


def _reason(problem: str, value: Any) -> str:
    received = reprlib.repr(value)
    missing = _MISSING.fullmatch(problem)
    if missing is not None:
        return f"must have '{missing['name']}', but has {reprlib.repr(sorted(value))}"
    unknown = _UNKNOWN.fullmatch(problem)
    if unknown is not None:
        return f"has the unknown key '{unknown['name'] or unknown['key']}'"
    length = _LENGTH.fullmatch(problem)
    if length is not None:
        return f"must be {_KINDS.get(length['kind'], length['kind'])} of {length['limit']}, but got {received}"
    expected = _EXPECTED.fullmatch(problem)
    if expected is not None:
        kinds = " or ".join(_KINDS.get(kind.strip(), kind.strip()) for kind in expected["kinds"].split("|"))
        return f"must be {kinds}{expected['limit'].removesuffix('.0')}, but got {received}"
    if problem == "Number out of range":
        return f"must be a number of at most 64 bits, but got {received}"
    return problem


def _steps(place: str, document: Any, kind: Any, message: str) -> Iterator[str | int]:
    """The steps of a place; msgspec writes ``[...]`` for keys of a mapping, so these are searched for."""
    taken: list[str | int] = []
    for match in _STEP.finditer(place):
        if match["name"] is not None:
            step: str | int = match["name"]
        elif match["index"] is not None:
            step = int(match["index"])
        else:
            step = _failing_key(taken, document, kind, message)
        taken.append(step)
        yield step


def _failing_key(steps: list[str | int], document: Any, kind: Any, message: str) -> str:
    """The first key of a mapping whose value alone gives the same error."""
    *_, mapping = (document, *_along(document, steps))
    for key, value in mapping.items():
        try:
            # One entry alone: the same message means the same mistake.
            msgspec.convert(_with(document, steps, {key: value}), kind, str_keys=True)
        except msgspec.ValidationError as error:
            if str(error) == message:
                return str(key)
    raise AssertionError("a mapping fails of which no entry does")


def _along(document: Any, steps: list[str | int]) -> Iterator[Any]:
    for step in steps:
        document = document[step]
        yield document


def _with(document: Any, steps: list[str | int], value: Any) -> Any:
    """The document with another value at one place."""
    if not steps:
        return value
    copy = document.copy()
    copy[steps[0]] = _with(document[steps[0]], steps[1:], value)
    return copy
