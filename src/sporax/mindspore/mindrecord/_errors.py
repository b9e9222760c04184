"""Errors of MindRecord files, with MindSpore's names, and the functions that are refused."""

from __future__ import annotations

from sporax.base.errors import (
    SporaxError,
    SporaxNotImplementedError,
    SporaxRuntimeError,
    SporaxTypeError,
    SporaxValueError,
)


class MindRecordException(SporaxError):  # noqa: N818 (MindSpore's name)
    """Root of the errors below."""


class ParamTypeError(MindRecordException, SporaxTypeError):
    """An argument has the wrong type."""


class ParamValueError(MindRecordException, SporaxValueError):
    """An argument has a value that is not allowed."""


class MRMInvalidSchemaError(MindRecordException, SporaxValueError):
    """A schema is not valid."""


class MRMAddSchemaError(MindRecordException, SporaxRuntimeError):
    """A writer has a schema already, or has begun to write."""


class MRMDefineIndexError(MindRecordException, SporaxValueError):
    """An index field holds bytes or arrays."""


class MRMAddIndexError(MindRecordException, SporaxRuntimeError):
    """An index field is not in the schema, or the writer has begun to write."""


class MRMDefineCategoryError(MindRecordException, SporaxValueError):
    """A category is not one of the index fields."""


class MRMOpenError(MindRecordException, SporaxRuntimeError):
    """A file cannot be opened, exists already, or is not a MindRecord file."""


class MRMUnsupportedSchemaError(MindRecordException, SporaxRuntimeError):
    """Stored bytes do not fit the shape that the schema gives."""


class MRMValidateDataError(MindRecordException, SporaxValueError):
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
    raise SporaxNotImplementedError(f"For 'set_enc_mode', encrypted MindRecord files are not offered: {enc_mode!r}.")


def set_dec_mode(dec_mode: object = "AES-GCM") -> None:
    """Refused, except for None: encrypted MindRecord files are not offered.

    Raises:
        SporaxNotImplementedError: a mode is given.
    """
    if dec_mode is not None:
        raise SporaxNotImplementedError(
            f"For 'set_dec_mode', encrypted MindRecord files are not offered, but got {dec_mode!r}; use None."
        )
