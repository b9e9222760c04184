"""`mindspore.train._utils`: of MindSpore's helpers of training, what published programs import."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore._names.missing import answer_missing_names

__all__ = ["check_value_type"]

answer_missing_names(__name__)


def _make_directory(path: Any, arg_name: str = "path") -> str:
    """Make a directory, with those above it, unless it is there.

    Args:
        path: the directory, a string.
        arg_name: what messages call it.

    Returns:
        Its absolute path, without links.

    Raises:
        SporaxTypeError: `path` is not a string, or empty.
        SporaxValueError: it cannot be made: a part of it is a file, or it is not permitted.
    """
    if not isinstance(path, str) or not path.strip():
        raise SporaxTypeError(f"For '_make_directory', '{arg_name}' must be a string with a path, but got {path!r}.")
    directory = Path(path).resolve()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SporaxValueError(
            f"For '_make_directory', '{arg_name}' must be a directory that can be made, but got '{path}': {error}."
        ) from error
    return str(directory)


def check_value_type(arg_name: str, arg_value: Any, valid_types: Any) -> None:
    """See that a value is of one of the types; a bool is no int.

    Raises:
        SporaxTypeError: it is not.
    """
    types = tuple(valid_types) if isinstance(valid_types, Iterable) else (valid_types,)
    is_stray_bool = isinstance(arg_value, bool) and bool not in types
    if is_stray_bool or not isinstance(arg_value, types):
        names = [kind.__name__ for kind in types]
        raise SporaxTypeError(
            f"For `{arg_name}` the type should be a valid type of {names}, but got {type(arg_value).__name__}."
        )
