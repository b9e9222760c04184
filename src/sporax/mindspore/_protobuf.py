"""Protobuf messages, read and written by hand: MindSpore's and TensorFlow's files have few kinds of fields.

A message is a sequence of fields, each a key (its number and how its content is stored) and the content. Groups (kinds 3 and 4)
are not used any more. Reference: "Encoding" of protobuf's documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

BytesT = TypeVar("BytesT", bytes, memoryview)

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""How the content of a field is stored."""


class MessageError(ValueError):
    """Bytes that are no message; `place` is where the field begins that cannot be read."""

    def __init__(self, problem: str, place: int) -> None:
        super().__init__(problem)
        self.place = place


def varint(value: int) -> bytes:
    """A number, seven bits per byte and the lowest first; a negative one as its 64-bit two's complement."""
    rest = value % (1 << 64)
    groups = bytearray()
    while rest > 0x7F:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    groups.append(rest)
    return bytes(groups)


def signed(number: int) -> int:
    """The number that `varint` has written, which may be negative."""
    return number - (1 << 64) if number >= 1 << 63 else number


def key(field: int, kind: int) -> bytes:
    """What is in front of a field's content."""
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """A field with a number."""
    return key(field, VARINT) + varint(value)


def message(field: int, content: bytes) -> bytes:
    """A field with bytes: a text, or a message of its own."""
    return key(field, BYTES) + varint(len(content)) + content


def fields(content: BytesT) -> Iterator[tuple[int, int | BytesT]]:
    """Number and content of each field: a number, or the bytes of all other kinds.

    Raises:
        MessageError: the bytes are no message, or truncated.
    """
    place = 0
    while place < len(content):
        start = place
        field, place = _read(content, place, start)
        kind = field & 7
        if kind in (VARINT, BYTES):
            value, place = _read(content, place, start)
        elif kind in (FIXED32, FIXED64):
            value = 4 if kind == FIXED32 else 8
        else:
            raise MessageError(f"byte {start} begins no field", start)
        if kind == VARINT:
            yield field >> 3, value
            continue
        if place + value > len(content):
            left = len(content) - place
            raise MessageError(f"a field of {value} bytes begins {left} bytes before the end: it is truncated", start)
        yield field >> 3, content[place : place + value]
        place += value


def numbers(value: int | bytes | memoryview) -> list[int]:
    """One number, or several packed into one field."""
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        one, place = _read(value, place, place)
        found.append(one)
    return found


def _read(content: bytes | memoryview, place: int, start: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = 0
    # 64 bits are at most ten groups of seven.
    for shift in range(0, 70, 7):
        if place >= len(content):
            break
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % (1 << 64), place
    raise MessageError(f"a number is truncated at byte {place}", start)
