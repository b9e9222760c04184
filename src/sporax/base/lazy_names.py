"""Packages that are doors: they offer names of modules that are loaded when the name is first used.

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__, {"plan": "sporax.runtime.planned.function"})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping


def lazy_names(package: str, homes: Mapping[str, str], modules: Collection[str] = ()) -> Callable[[str], object]:
    """A `__getattr__` for a package.

    Args:
        package: its ``__name__``.
        homes: the module that has each name.
        modules: of the package, which it offers as they are.
    """

    def of_home(name: str) -> object:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(homes[name]), name)
        # Next time it is found without asking.
        setattr(sys.modules[package], name, value)
        return value

    return of_home
