"""`mindspore.train._utils`: what programs of their own training loops import from inside MindSpore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sporax.ir.errors import SporaxNotADirectoryError, SporaxTypeError, SporaxValueError
from sporax.ir.missing import missing_names


def _make_directory(path: Any, arg_name: str = "path") -> str:
    """Make a directory and those above it, where they are not there yet.

    Args:
        path: the directory; relative to the working directory.
        arg_name: what the caller calls it, for messages.

    Returns:
        Its full path.

    Raises:
        SporaxTypeError: `path` is no string.
        SporaxValueError: it is blank.
        SporaxNotADirectoryError: a file has this name.
    """
    if not isinstance(path, str):
        raise SporaxTypeError(f"The {arg_name} is invalid, the type should be string, but got {type(path).__name__}.")
    if not path.strip():
        raise SporaxValueError(f"The {arg_name} is invalid, it should be non-blank.")
    whole = Path(path).resolve()
    if whole.exists() and not whole.is_dir():
        raise SporaxNotADirectoryError(f"The {arg_name}({whole}) is a file path, it should be a directory path.")
    whole.mkdir(parents=True, exist_ok=True)
    return str(whole)


if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
