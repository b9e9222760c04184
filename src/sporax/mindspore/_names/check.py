"""`sporax check`: before a program runs, list what it uses of MindSpore's that Sporax does not have."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from sporax.base.errors import SporaxError, SporaxValueError
from sporax.mindspore._names.missing import suggestion
from sporax.mindspore._names.used_names import used_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the paths to read."""
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="FILE_OR_FOLDER", help="Python files, or folders of them"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one line per place; returns 1 when something is missing or cannot be read, else 0.

    Raises:
        SporaxValueError: a path does not exist.
    """
    files = list(python_files(arguments.paths))
    missing: set[str] = set()
    num_problems = 0
    for file in files:
        for line, name, text in problems_of(file):
            print(f"{file}:{line}: {text}")
            missing.add(name)
            num_problems += 1
    if num_problems:
        print(f"{num_problems} place(s) in {len(files)} file(s) use {len(missing)} name(s) that are not offered.")
    else:
        print(f"{len(files)} file(s): every name they use is offered.")
    return 1 if num_problems else 0


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files themselves, and all Python files below the folders, sorted; hidden folders are left out.

    Raises:
        SporaxValueError: a path does not exist.
    """
    for path in paths:
        if path.is_dir():
            inside = (file for file in sorted(path.rglob("*.py")) if file.is_file())
            # Hidden folders hold virtual environments and version control.
            yield from (file for file in inside if not any(part[0] == "." for part in file.relative_to(path).parts))
        elif path.is_file():
            yield path
        else:
            raise SporaxValueError(f"For 'sporax check', the path must exist, but got '{path}'.")


def problems_of(file: Path) -> Iterator[tuple[int, str, str]]:
    """Line, name and explanation of what is missing in one file."""
    try:
        uses = used_names(file.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError) as error:
        yield getattr(error, "lineno", None) or 1, str(file), f"cannot be read as Python: {error}"
        return
    for use in uses:
        text = problem(use.path, use.keyword)
        if text is not None:
            yield use.line, use.path, text


@cache
# The same names come up in many files, and looking them up imports modules.
def problem(path: str, keyword: str | None = None) -> str | None:
    """What is wrong with using `path`, or the argument `keyword` of it; None when it is there.

    Args:
        path: dotted name such as ``mindspore.nn.Dense``.
        keyword: name of an argument of a call; its name counts alone, not its value.
    """
    package, _, rest = path.partition(".")
    owner: object = importlib.import_module("sporax" if package == "sporax" else "sporax.mindspore")
    done = package
    for name in filter(None, rest.split(".")):
        # Only modules and classes have names that are known without running the program.
        if not isinstance(owner, (ModuleType, type)):
            return None  # an object: its attributes are known when it runs
        value = _member(owner, name)
        if value is None:
            if keyword is not None:
                return None  # the name's own use says it
            return f"'{done}.{name}' is not offered.{suggestion(owner.__name__, name)}"
        owner, done = value[0], f"{done}.{name}"
    if keyword is None or keyword in _keywords(owner):
        return None
    return f"'{done}' has no argument '{keyword}'."


def _member(owner: ModuleType | type, name: str) -> tuple[object] | None:
    """The attribute or submodule `name`, in a tuple; None when there is none."""
    try:
        # In a tuple, since the attribute itself may be None.
        return (getattr(owner, name),)
    except (AttributeError, SporaxError):
        pass
    # A class has no submodules.
    if isinstance(owner, type):
        return None
    try:
        return (importlib.import_module(f"{owner.__name__}.{name}"),)
    except ModuleNotFoundError:
        return None


class _Any:
    """Contains everything."""

    def __contains__(self, name: object) -> bool:
        return True


def _keywords(function: object) -> Iterable[str] | _Any:
    """Names of the arguments that a call of `function` may give by name."""
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]  # an error otherwise
    except (TypeError, ValueError):
        return _Any()
    # `**kwargs` may take any name.
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return _Any()
    return {parameter.name for parameter in parameters}
