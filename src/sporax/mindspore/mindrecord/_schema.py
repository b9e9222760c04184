"""What the rows of a MindRecord file hold, and the bytes of one row; errors of such files, with MindSpore's names.

A row has two parts. Numbers and strings are a msgpack map. Bytes and arrays follow each other in the order of their names, each
behind its length; a schema with one of them stores it alone.

How MindRecord files store arrays of int32 and int64: each element with as few bytes as it needs.

A count (4 bytes, the highest first); a code of two bits for each element, four in a byte, the first in the highest bits; and the
elements, the lowest byte first. Code k means 2**k bytes.
"""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sporax.base.errors import (
    SporaxError,
    SporaxNotImplementedError,
    SporaxRuntimeError,
    SporaxTypeError,
    SporaxValueError,
)
from sporax.mindspore.mindrecord import _schema


class MindRecordException(SporaxError):  # noqa: N818 (MindSpore's name)
    """Root of the errors below; their texts begin with MindSpore's name and sentence (`lead`) of the class."""

    _lead = ""

    def __init_subclass__(cls, lead: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._lead = f"{lead} " if lead else cls._lead

    def __str__(self) -> str:
        return f"[{type(self).__name__}]: {self._lead}{super().__str__()}"


class ParamTypeError(MindRecordException, SporaxTypeError, lead="Invalid parameter type."):
    """An argument has the wrong type."""


class ParamValueError(MindRecordException, SporaxValueError, lead="Invalid parameter value."):
    """An argument has a value that is not allowed."""


class MRMInvalidSchemaError(MindRecordException, SporaxValueError, lead="Schema format is error. Detail:"):
    """A schema is not valid."""


class MRMAddSchemaError(MindRecordException, SporaxRuntimeError, lead="Failed to add schema."):
    """A writer has a schema already, or has begun to write."""


class MRMGetMetaError(MindRecordException, SporaxRuntimeError, lead="Failed to get meta info."):
    """A writer has no schema yet."""


class MRMDefineIndexError(MindRecordException, SporaxValueError, lead="Failed to define index field. Detail:"):
    """An index field holds bytes or arrays."""


class MRMAddIndexError(MindRecordException, SporaxRuntimeError, lead="Failed to add index field."):
    """An index field is not in the schema, or the writer has begun to write."""


class MRMDefineCategoryError(MindRecordException, SporaxValueError, lead="Failed to define category field. Detail:"):
    """A category is not one of the index fields."""


class MRMOpenError(MindRecordException, SporaxRuntimeError, lead="MindRecord File could not open successfully."):
    """A file cannot be opened, exists already, or is not a MindRecord file."""


class MRMUnsupportedSchemaError(MindRecordException, SporaxRuntimeError, lead="Schema is not supported. Detail:"):
    """Stored bytes do not fit the shape that the schema gives."""


class MRMValidateDataError(MindRecordException, SporaxValueError, lead="Raw data do not match the schema. Detail:"):
    """A row cannot be stored."""


def set_enc_key(enc_key: str | None) -> None:
    """Refused, except for None: encrypted MindRecord files are not offered.

    Raises:
        SporaxNotImplementedError: a key is given.
    """
    if enc_key is not None:
        raise SporaxNotImplementedError("For 'set_enc_key', encrypted MindRecord files are not offered; use None.")


def set_enc_mode(enc_mode: object = "AES-GCM") -> None:
    """Refused: encrypted MindRecord files are not offered.

    Raises:
        SporaxNotImplementedError: always.
    """
    raise SporaxNotImplementedError(
        f"For 'set_enc_mode', encrypted MindRecord files are not offered, but got {enc_mode!r}."
    )


def set_dec_mode(dec_mode: object = "AES-GCM") -> None:
    """Refused, except for None: encrypted MindRecord files are not offered.

    Raises:
        SporaxNotImplementedError: a mode is given.
    """
    if dec_mode is not None:
        raise SporaxNotImplementedError(
            f"For 'set_dec_mode', encrypted MindRecord files are not offered, but got {dec_mode!r}; use None."
        )


NUMBERS = ("int32", "int64", "float32", "float64")
_SCALARS = (*NUMBERS, "string", "bytes")
# By the Python type's name, since numpy scalars of each width are distinct types; bool is not among them.
_TYPES_OF = {
    "int": ("int32", "int64"),
    "float": ("float32", "float64"),
    "str": ("string",),
    "bytes": ("bytes",),
    **{name: (name,) for name in NUMBERS},
    "ndarray": NUMBERS,
}
_NAME = re.compile(r"[0-9a-zA-Z_]+")
_NOTHING = bytes(4)
"""The second part of a row without bytes and arrays, as MindSpore writes it."""

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of a schema.

    Attributes:
        name: of the field.
        kind: int32, int64, float32, float64, string or bytes.
        shape: of an array, with at most one -1; None for a single value.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None

    @property
    def is_blob(self) -> bool:
        """Whether it is stored with the bytes and arrays."""
        return self.kind == "bytes" or self.shape is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a file, in alphabetical order."""

    fields: tuple[Field, ...]
    description: str = ""

    @property
    def blobs(self) -> tuple[Field, ...]:
        """Bytes and arrays."""
        return tuple(field for field in self.fields if field.is_blob)

    @property
    def scalars(self) -> tuple[Field, ...]:
        """Numbers and strings."""
        return tuple(field for field in self.fields if not field.is_blob)

    def field(self, name: str) -> Field:
        """The field of a name.

        Raises:
            KeyError: there is none.
        """
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def content(self) -> dict[str, dict[str, Any]]:
        """The dict that users write."""
        return {f.name: {"type": f.kind} | ({} if f.shape is None else {"shape": [*f.shape]}) for f in self.fields}


def parse_schema(content: object, description: str | None = None) -> Schema:
    """The schema of a user's dict.

    Raises:
        MRMInvalidSchemaError: it is none.
    """
    if not isinstance(content, dict) or not content:
        raise MRMInvalidSchemaError(f"For 'add_schema', the schema must be a dict with fields, but got {content!r}.")
    # The format stores fields in alphabetical order, whatever the user's order is.
    return Schema(tuple(_field(name, content[name]) for name in sorted(content, key=str)), description or "")


def _field(name: object, entry: object) -> Field:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise MRMInvalidSchemaError(
            f"For 'add_schema', a field's name must be letters, digits and '_', but got {name!r}."
        )
    if not isinstance(entry, dict) or "type" not in entry or not set(entry) <= {"type", "shape"}:
        raise MRMInvalidSchemaError(
            f"For 'add_schema', field {name!r} must be a dict with 'type' and perhaps 'shape', but got {entry!r}."
        )
    kind, shape = entry["type"], entry.get("shape")
    # Arrays hold numbers only: strings and bytes have no fixed size.
    allowed = _SCALARS if "shape" not in entry else NUMBERS
    if kind not in allowed:
        raise MRMInvalidSchemaError(
            f"For 'add_schema', the type of {name!r} must be one of {allowed}, but got {kind!r}."
        )
    if "shape" in entry and not isinstance(shape, list):
        raise MRMInvalidSchemaError(f"For 'add_schema', the shape of field {name!r} must be a list, but got {shape!r}.")
    # An empty list is MindSpore's way to say that there is no shape.
    return Field(name, kind, tuple(shape) if isinstance(shape, list) and shape else None)


def mismatch(schema: Schema, row: Mapping[str, Any]) -> str:
    """Why a row does not fit the schema; "" where it does."""
    for field in schema.fields:
        if field.name not in row:
            return f"there is no field {field.name!r}"
        value = row[field.name]
        kind = type(value).__name__
        # Exact types: a numpy scalar of another width is left out rather than cast.
        if field.kind not in _TYPES_OF.get(kind, ()):
            return f"field {field.name!r} must be {field.kind}, but is {kind}"
        if (kind == "ndarray") != (field.shape is not None):
            return f"field {field.name!r} must {'not ' if kind == 'ndarray' else ''}be an array, but is {kind}"
        if kind == "ndarray":
            if str(value.dtype) != field.kind:
                return f"field {field.name!r} must be {field.kind}, but is {value.dtype}"
            try:
                # `reshape` checks the shape with its one -1; it makes no copy.
                np.reshape(value, field.shape)
            except ValueError:
                return (
                    f"field {field.name!r} must have the shape {list(field.shape or ())}, but has {list(value.shape)}"
                )
    return ""


def encode(schema: Schema, row: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The two parts of a row that fits the schema, each behind its length.

    Raises:
        MRMValidateDataError: a number is not finite: the format has no form for it.
    """
    scalars = {field.name: _plain(field, row[field.name]) for field in schema.scalars}
    parts = [_blob(field, row[field.name]) for field in schema.blobs]
    if not parts:
        blob = _NOTHING
    elif len(parts) == 1:
        # One blob has no length of its own, since the whole part has one already.
        blob = parts[0]
    else:
        # Lengths inside of a part are big-endian and those around a part little-endian; MindSpore's files mix both.
        blob = b"".join(struct.pack(">Q", len(part)) + part for part in parts)
    text = msgspec.msgpack.encode(scalars)
    return struct.pack("<Q", len(text)) + text, struct.pack("<Q", len(blob)) + blob


def saved_bytes(schema: Schema, row: Mapping[str, Any], blob_bytes: int) -> int:
    """How many bytes the short form of integers saved in the second part of a row, which has `blob_bytes`."""
    values = [row[field.name] for field in schema.blobs]
    if not values:
        return 0
    sizes = [value.nbytes if isinstance(value, np.ndarray) else len(value) for value in values]
    # 8 bytes are the length in front of each blob where there are several.
    return sum(sizes) + (8 * len(sizes) if len(sizes) > 1 else 0) - blob_bytes


def _plain(field: Field, value: Any) -> Any:
    # msgpack knows Python's numbers only.
    plain = value.item() if isinstance(value, np.generic) else value
    # The format's numbers go through JSON in MindSpore, which has neither infinity nor NaN.
    if isinstance(plain, float) and not math.isfinite(plain):
        raise MRMValidateDataError(f"For 'write_raw_data', field {field.name!r} must be finite, but got {plain}.")
    return plain


def _blob(field: Field, value: Any) -> bytes:
    if field.shape is None:
        return bytes(value)
    # Only integers have a short form; floats are stored as they are.
    return _schema.pack(value) if field.kind.startswith("int") else np.ascontiguousarray(value).tobytes()


def decode_scalars(text: bytes) -> Row:
    """The numbers and strings of a row.

    Raises:
        msgspec.DecodeError: the bytes are none.
    """
    return msgspec.msgpack.decode(text, type=dict[str, Any])


def decode_blobs(schema: Schema, content: bytes, fields: Sequence[str]) -> Row:
    """Some of the bytes and arrays of a row.

    Raises:
        MRMUnsupportedSchemaError: they do not fit the schema.
    """
    row: Row = {}
    for field, part in _parts(schema, content):
        if field.name in fields:
            row[field.name] = part if field.shape is None else _array(field, part)
    return row


def _parts(schema: Schema, content: bytes) -> list[tuple[Field, bytes]]:
    blobs = schema.blobs
    if len(blobs) == 1:
        return [(blobs[0], content)]
    parts, place = [], 0
    for field in blobs:
        # A slice past the end would be silently short.
        if place + 8 > len(content):
            raise MRMUnsupportedSchemaError(f"For 'mindrecord', field {field.name!r} of the row is truncated.")
        (size,) = struct.unpack_from(">Q", content, place)
        parts.append((field, content[place + 8 : place + 8 + size]))
        place += 8 + size
    return parts


def _array(field: Field, part: bytes) -> np.ndarray[Any, Any]:
    dtype = np.dtype(field.kind)
    try:
        # A copy, since arrays over a bytes object are read-only.
        flat = _schema.unpack(part, dtype) if dtype.kind == "i" else np.frombuffer(part, dtype).copy()
        return flat.reshape(field.shape or ())
    except ValueError as error:
        raise MRMUnsupportedSchemaError(
            f"For 'mindrecord', field {field.name!r} must be {field.kind} of shape {list(field.shape or ())}: {error}."
        ) from error


# Bytes of the leading count.
_COUNT_BYTES = 4
# Elements whose codes share one byte.
_GROUP = 4
# Shifts of the four codes in a byte, first element in the highest bits.
_CODE_SHIFTS = np.array([6, 4, 2, 0], np.uint8)
_LIMITS = np.array([2**7, 2**15, 2**31], np.uint64)
"""Magnitudes (of negative numbers less one) from which on 2, 4 and 8 bytes are needed."""


def pack(values: NDArray[Any]) -> bytes:
    """The stored form of integers."""
    flat = np.ascontiguousarray(values, np.int64).ravel()
    # `x ^ (x >> 63)` is x for x >= 0 and -x - 1 below: the magnitude that two's complement stores.
    codes = np.searchsorted(_LIMITS, (flat ^ (flat >> 63)).astype(np.uint64), side="right").astype(np.uint8)
    # The last group may be incomplete; the format fills it with code 0 and stores no bytes for it.
    padded = np.zeros(-(-flat.size // _GROUP) * _GROUP, np.uint8)
    padded[: flat.size] = codes
    heads = np.bitwise_or.reduce(padded.reshape(-1, _GROUP) << _CODE_SHIFTS, axis=1)
    starts, total = _bit_positions(codes)
    content = np.zeros(total, np.uint8)
    # All eight bytes of each element, lowest first; a code k keeps the first 2**k of them.
    parts = flat.astype("<i8").view(np.uint8).reshape(-1, 8)
    # By code and byte instead of by element: at most 15 vector operations, however many elements.
    for code in range(4):
        chosen = np.flatnonzero(codes == code)
        for byte in range(1 << code):
            content[starts[chosen] + byte] = parts[chosen, byte]
    return struct.pack(">I", flat.size) + heads.tobytes() + content.tobytes()


def unpack(content: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Integers of a stored form, as an array of one dimension.

    Raises:
        ValueError: the content is truncated.
    """
    if len(content) < _COUNT_BYTES:
        raise ValueError("the number of elements is truncated")
    (count,) = struct.unpack_from(">I", content)
    num_heads = -(-count // _GROUP)
    stored = np.frombuffer(content, np.uint8, offset=_COUNT_BYTES)
    # `[:count]` leaves out the codes that only fill the last group.
    codes = (stored[:num_heads, None] >> _CODE_SHIFTS & 3).ravel()[:count]
    body = stored[num_heads:]
    starts, total = _bit_positions(codes)
    # Checked before any indexing, since the count comes from the file and may be damaged.
    if len(codes) < count or len(body) != total:
        raise ValueError(f"{count} elements must have {total} bytes, but have {len(body)}")
    values = np.empty(count, dtype)
    for code in range(4):
        chosen = np.flatnonzero(codes == code)
        size = 1 << code
        parts = np.ascontiguousarray(body[starts[chosen, None] + np.arange(size)])
        # A signed view extends the sign on the way to the wider dtype.
        values[chosen] = parts.view(f"<i{size}").ravel()
    return values


def _bit_positions(codes: NDArray[np.uint8]) -> tuple[NDArray[np.int64], int]:
    """Where each element begins, and where the last one ends."""
    sizes = 1 << codes.astype(np.int64)
    ends = np.cumsum(sizes)
    return ends - sizes, int(ends[-1]) if len(ends) else 0
