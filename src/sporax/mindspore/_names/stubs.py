"""`sporax stubs`: lets editors and type checkers find `mindspore`, which is a package only while `sporax run` runs a script.

Problem: an editor that reads ``import mindspore as ms`` looks for files of that name, and there are none. Method: a folder of
stub files, one for each module of Sporax that MindSpore has and one for each path of `module_paths`, that hand out the names of
ours. Pyright and Pylance look into ``typings`` by themselves; mypy does with ``MYPYPATH=typings``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from sporax.base.errors import SporaxValueError
from sporax.mindspore._names.module_paths import HOMES

_PACKAGE = "sporax.mindspore"
_ALIAS = "mindspore"
_LISTS_NAMES = re.compile(r"^__all__\b", re.MULTILINE)
_MARK = "# Written by `sporax stubs`: names of MindSpore are those of Sporax."


def write_stubs(folder: Path) -> int:
    """Write the stubs into a folder; returns how many there are.

    Raises:
        SporaxValueError: there are other files of that name.
    """
    first = folder / _ALIAS / "__init__.pyi"
    if (folder.exists() and not folder.is_dir()) or (
        (folder / _ALIAS).exists() and not (first.is_file() and first.read_text(encoding="utf-8").startswith(_MARK))
    ):
        raise SporaxValueError(
            f"For 'sporax stubs', DIR must be a folder without a '{_ALIAS}' of another origin, but got '{folder}'."
        )
    homes = dict(stubs())
    for name, home in homes.items():
        inside = any(other.startswith(f"{name}.") for other in homes)
        path = folder / name.replace(".", "/")
        file = path / "__init__.pyi" if inside else path.with_suffix(".pyi")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{_MARK}\n{_names_of(home) if home else ''}\n", encoding="utf-8")
    return len(homes)


def _names_of(home: str) -> str:
    """The lines that hand out the names of a module."""
    star = f"from {home} import *"
    # Of a module that does not list its names, `*` takes those alone that it defines itself.
    if _LISTS_NAMES.search(Path(str(_spec(home).origin)).read_text(encoding="utf-8")):
        return star
    names = [name for name in dir(importlib.import_module(home)) if not name.startswith("_")]
    # Names that it only finds when they are asked for are those of its package.
    package = home.rpartition(".")[0]
    return "\n".join([f"from {package} import *", star, *(f"from {home} import {name} as {name}" for name in names)])


def _spec(home: str) -> ModuleSpec:
    spec = find_spec(home)
    assert spec is not None, home  # `stubs` lists what is there
    return spec


def stubs() -> Iterator[tuple[str, str]]:
    """Modules of `mindspore`, and the module of Sporax whose names each hands out; "" for a package that has none."""
    found = {_ALIAS: _PACKAGE}
    root = Path(__file__).parents[1]
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        # What begins with an underscore is ours; MindSpore's paths of that kind are in `HOMES`.
        if parts and not any(part.startswith("_") for part in parts):
            found[".".join((_ALIAS, *parts))] = ".".join((_PACKAGE, *parts))
    for path, home in HOMES.items():
        found.setdefault(_ALIAS + path.removeprefix(_PACKAGE), home)
    for name in list(found):
        parents = name.split(".")
        for count in range(1, len(parents)):
            found.setdefault(".".join(parents[:count]), "")
    yield from sorted(found.items())
