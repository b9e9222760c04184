"""Packages that are doors: they offer names of modules that are loaded when the name is first used.

if TYPE_CHECKING:
    from sporax.runtime.planned.function import plan

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)

What type checkers see is what the door has: a package's source is read when its first name is needed.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import cache


def lazy_names(package: str) -> Callable[[str], object]:
    """A `__getattr__` for a package, by its ``__name__``; it offers what its source imports for type checkers."""

    def of_home(name: str) -> object:
        home = homes(package).get(name)
        if home is None:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        # The package's own modules are names, too.
        if home == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(home), name)
        # Next time it is found without this function.
        setattr(sys.modules[package], name, value)
        return value

    return of_home


@cache
def homes(package: str) -> Mapping[str, str]:
    """The module that has each name which a package offers late."""
    spec = importlib.util.find_spec(package)
    source = getattr(spec.loader, "get_source", lambda _: "")(package) if spec is not None else ""
    late = (
        node
        for block in ast.parse(source or "").body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    )
    return {alias.name: node.module or "" for node in late for alias in node.names}
