"""Packages that are doors: they list names, and load the module of a name when it is first used.

Problem: a program uses a few dozen of the thousand names that MindSpore's packages have, and waits for the modules of all of them
before its first line. Method: a package says which module has which names, and loads nothing::

    _HOMES = homes_in(__name__, "basic: Dense Dropout cell: Cell")
    __all__ = [*_HOMES]
    __getattr__, __dir__ = door(__name__, _HOMES)

Type checkers and editors read the package's stub, which `tools/type_stubs/make_type_stubs.py` writes. Reference: PEP 562.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from sporax.base import gc_paused
from sporax.mindspore._names.missing import LISTED, missing_name, resolved

_NONE: Mapping[str, str] = MappingProxyType({})


class _Door(ModuleType):
    """A package some of whose modules are called as a name in them: `train.export` is the function, as in MindSpore."""

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system gives a package each of its modules as an attribute.
        if isinstance(value, ModuleType) and LISTED[self.__name__].get(name) == f"{value.__name__}:{name}":
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        # Functions of a script take the packages that they mention along to worker processes: by name, as other modules.
        return importlib.import_module, (self.__name__,)


def door(
    package: str, homes: Mapping[str, str], unlisted: Mapping[str, str] = _NONE, reasons: Mapping[str, str] = _NONE
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
        package: its ``__name__``.
        homes: name → ``"module:attribute"``, or ``"module"``, for every name that it offers. Its own modules among these are its
            attributes as well, as they are in packages that load them.
        unlisted: as `homes`, for names that `dir` leaves out: those of MindSpore's other releases, of modules of scripts.
        reasons: why it does not offer a name, and what to use instead.
    """
    LISTED[package] = homes
    known = {**homes, **unlisted}
    modules = {home.partition(":")[0] for home in homes.values()}
    inner = {name.removeprefix(f"{package}.").partition(".")[0] for name in modules if name.startswith(f"{package}.")}
    sys.modules[package].__class__ = _Door

    def __getattr__(name: str) -> Any:  # noqa: N807 (it is one)
        if name in known:
            with gc_paused():
                value = resolved(known[name])
            # Next time it is found without this function.
            setattr(sys.modules[package], name, value)
            return value
        if name in inner:
            return importlib.import_module(f"{package}.{name}")
        return missing_name(package, name, reasons.get(name))

    def __dir__() -> list[str]:  # noqa: N807 (it is one)
        return sorted({*vars(sys.modules[package]), *homes, *inner})

    return __getattr__, __dir__
