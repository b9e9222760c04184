"""Checks of arguments in the words of MindSpore's summaries, and of packages, that the training tools share."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from sporax.base.errors import SporaxImportError, SporaxNotADirectoryError, SporaxTypeError, SporaxValueError


def check_kind(what: object, value: object, *kinds: type) -> None:
    """Raise SporaxTypeError, in MindSpore's words for summaries, unless `value` is of `kinds`; a bool is no int."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = [kind.__name__ for kind in kinds]
        raise SporaxTypeError(
            f"For `{what}` the type should be a valid type of {names}, but got {type(value).__name__}."
        )


def check_entries(where: str, what: str, chosen: dict[str, Any], kinds: dict[str, tuple[type, ...]]) -> None:
    """Refuse, in MindSpore's words, names in a dict that are no strings (SporaxTypeError) or unknown, and other kinds."""
    for name in chosen:
        check_kind(name, name, str)
    if unknown := chosen.keys() - kinds:
        words = f"the keys {unknown} of {what} are unsupported, expect the follow keys: {list(kinds)}"
        raise SporaxValueError(f'For "{where}", {words}')
    for name, value in chosen.items():
        check_kind(name, value, *kinds[name])


def check_directory(what: str, path: object) -> str:
    """`path`, or an error in MindSpore's words: not a string, blank, or of a file."""
    if not isinstance(path, str):
        raise SporaxTypeError(f"The {what} is invalid, the type should be string.")
    if not path.strip():
        raise SporaxValueError(f"The {what} is invalid, it should be non-blank.")
    if Path(path).exists() and not Path(path).is_dir():
        raise SporaxNotADirectoryError(f"The path({path}) is a file path, it should be a directory path.")
    return path


def package(where: str, name: str, extra: str) -> Any:
    """The package `name`, or a SporaxImportError that names the extra with which it comes."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SporaxImportError(
            f"For '{where}', the package {name} must be installed, but it is not ({error}): pip install 'sporax[{extra}]'."
        ) from error
