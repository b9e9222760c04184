"""A file with the flags of a job: `sporax run --config job.toml`.

    worker_num = 4                     any flag of `sporax run`, by its name without dashes in front
    target = "train.py"                what to run, with its arguments
    arguments = ["--epochs", "2"]
    [environment]                      variables of all processes
    XLA_PYTHON_CLIENT_MEM_FRACTION = "0.9"

The name of the file says what it is: TOML (``.toml``), JSON (``.json``), or YAML (``.yaml``, ``.yml``) where PyYAML is installed.
Flags of the command line win over the file, and so do variables that are set already. A target on the command line comes with
its own arguments: those of the file belong to the target of the file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sporax.base.errors import For, SporaxValueError, did_you_mean, named

_ENVIRONMENT, _TARGET, _ARGUMENTS = "environment", "target", "arguments"
_SUFFIXES = (".toml", ".json", ".yaml", ".yml")
_NOT_IN_A_FILE = ("help", "config", "target", "target_arguments")


def from_file(path: str, actions: Iterable[argparse.Action]) -> argparse.Namespace:
    """The values of flags that a file gives, for a parser to begin with.

    Args:
        path: of the file.
        actions: the flags of the command.

    Raises:
        SporaxValueError: the file cannot be read, or says something that no flag takes.
    """
    values = _read(path)
    flags = {action.dest: action for action in actions if action.dest not in _NOT_IN_A_FILE}
    chosen = argparse.Namespace()
    for name, value in values.items():
        if name in (_ENVIRONMENT, _TARGET, _ARGUMENTS):
            continue
        flag = flags.get(name.replace("-", "_"))
        if flag is None:
            known = [*flags, _ENVIRONMENT, _TARGET, _ARGUMENTS]
            raise _wrong(path, name, f"a flag of the command without dashes in front.{did_you_mean(name, known)}")
        setattr(chosen, flag.dest, _value(path, flag, value))
    chosen.job_file = {
        _ENVIRONMENT: _environment(path, values.get(_ENVIRONMENT, {})),
        _TARGET: _text(path, _TARGET, values.get(_TARGET)),
        _ARGUMENTS: _texts(path, values.get(_ARGUMENTS, [])),
    }
    return chosen


def complete(arguments: argparse.Namespace, environ: MutableMapping[str, str] = os.environ) -> None:
    """Give a command line the target of its file, and the environment what the file says.

    Raises:
        SporaxValueError: neither has a target.
    """
    content = getattr(arguments, "job_file", {_ENVIRONMENT: {}, _TARGET: None, _ARGUMENTS: []})
    if arguments.target is None:
        For("sporax run").refuse(
            content[_TARGET] is None, "there must be a target, a script, a command or a module after -m, but got none"
        )
        arguments.target, arguments.target_arguments = content[_TARGET], content[_ARGUMENTS]
    for name, value in content[_ENVIRONMENT].items():
        environ.setdefault(name, value)


def _read(path: str) -> dict[str, Any]:
    suffix = Path(path).suffix
    if suffix not in _SUFFIXES:
        raise SporaxValueError(f"For 'sporax run', --config must be a file {', '.join(_SUFFIXES)}, but got '{path}'.")
    if suffix in (".yaml", ".yml") and find_spec("yaml") is None:
        raise For("sporax run").error(
            f"'{path}' needs PyYAML, which is not installed: `pip install PyYAML`, or write the file as TOML or JSON"
        )
    readers: Mapping[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": json.loads}
    try:
        values = readers.get(suffix, _yaml)(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SporaxValueError(
            f"For 'sporax run', --config must be a file that can be read, but got '{path}' ({error.strerror})."
        ) from None
    except ValueError as error:  # of every reader here
        raise SporaxValueError(f"For 'sporax run', '{path}' must be {suffix[1:].upper()}, but {error}.") from None
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise For("sporax run").error(f"{named(path)} must have names of flags with their values", repr(values))
    return values


def _yaml(text: str) -> Any:
    # Loaded for such files alone: it is no dependency of Sporax.
    yaml = importlib.import_module("yaml")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _value(path: str, flag: argparse.Action, value: Any) -> Any:
    """A value as the command line would have it."""
    name = flag.dest
    if flag.nargs == 0:
        if not isinstance(value, bool):
            raise _wrong(path, name, "true or false", value)
        return value
    numbers = isinstance(value, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
    text = value if isinstance(value, str) else ",".join(map(str, value)) if numbers else json.dumps(value)
    try:
        # A flag without a type is text.
        converted = flag.type(text) if callable(flag.type) else text
    except (ValueError, argparse.ArgumentTypeError) as error:
        # The flag's own message says what it was given as text; here it is a value of the file.
        own = str(error).removeprefix("must be ").partition(", but got")[0]
        raise _wrong(path, name, own if isinstance(error, argparse.ArgumentTypeError) else "a number", value) from None
    if flag.choices is not None and converted not in flag.choices:
        raise _wrong(path, name, f"one of {', '.join(map(str, flag.choices))}", value)
    return converted


def _environment(path: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise _wrong(path, _ENVIRONMENT, "names of variables with their values", value)
    for name, one in value.items():
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise _wrong(path, f"{_ENVIRONMENT}.{name}", "a text or a number", one)
    return {str(name): str(one) for name, one in value.items()}


def _text(path: str, name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _wrong(path, name, "a text", value)
    return value


def _texts(path: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str | int | float) for one in value):
        raise _wrong(path, _ARGUMENTS, "a list of texts and numbers", value)
    return [str(one) for one in value]


_MISSING = object()


def _wrong(path: str, name: str, expected: str, value: Any = _MISSING) -> SporaxValueError:
    got = "" if value is _MISSING else f", but got {value!r}."
    return SporaxValueError(f"For 'sporax run', '{name}' of '{path}' must be {expected}{got}")
