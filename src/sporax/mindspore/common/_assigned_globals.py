"""Global names that a step assigns.

Problem: ``global z; z += 1`` in a step would happen once per trace and not once per call, and could leave a tracer in the
user's module. Method: names that the step's functions may assign are read from their byte code (``STORE_GLOBAL``), following
calls through names, closures, methods and child Cells, as far as these can be seen without running. A trace puts these names
back as they were; one that has changed them refuses to be compiled, and the step runs operator by operator, as Python has it.
"""

from __future__ import annotations

import dis
import functools
import sys
import sysconfig
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from sporax.base import ByIdentity
from sporax.base.errors import SporaxTypeError
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

_LIBRARIES = (
    str(Path(__file__).parents[2]),
    *{sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")},
    # Of the user, of the system, and of an environment that this one was made from.
    *(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))),
)
_UNSET = object()
_WRAPPERS = (staticmethod, classmethod)
_HOLDERS = (list, tuple, dict)


class AssignedGlobalError(frames.ValueNeededError):
    """A step assigns a global name, which a compiled program cannot do at each call."""

    def __init__(self, message: str, name: str, code: types.CodeType) -> None:
        super().__init__(message)
        self.reason = f"it assigns the global variable '{name}'"
        self.place = f" ({code.co_filename}, line {code.co_firstlineno})"


class AssignedGlobals:
    """Watches the global names that a function assigns. It is a guard: a name with another value makes a program stale.

    Args:
        function: where to look, with all that it calls.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self._names: dict[tuple[int, str], tuple[dict[str, object], str, types.CodeType]] = {}
        self._seen: list[Any] = []

    def fingerprint(self) -> Mapping[str, Hashable]:
        """The values that the names have, by identity."""
        return {name: ByIdentity(space.get(name, _UNSET)) for space, name, _ in self._names.values()}

    def describe(self) -> str:
        """What it is called in messages."""
        return "global names that the step assigns"

    def look(self) -> None:
        """Have programs look at their guards again if a name has another value than at the last look."""
        if self._names:
            values = self._values()
            if any(value is not before for value, before in zip(values, self._seen, strict=True)):
                self._seen = values
                frames.touch()

    def run(self, call: Callable[[], object]) -> object:
        """The result of `call`, which is a trace: the names have afterwards what they had before.

        Raises:
            AssignedGlobalError: it has changed one of them.
        """
        self._names = {(id(space), name): (space, name, code) for space, name, code in _assigned(self.function)}
        if not self._names:
            return call()
        before = self._seen = self._values()
        frames.depend_on(self)
        try:
            result = call()
        finally:
            # Also after an exception: a tracer must not stay in the user's module.
            changed = self._put_back(before)
        if changed:
            name, code = changed[0]
            raise AssignedGlobalError(
                f"For 'jit', the function '{code.co_name}' assigns the global variable '{name}', which a compiled step cannot do "
                f"at each call.\n  In file {code.co_filename}, line {code.co_firstlineno}; return the new value, keep it in a "
                "Parameter, or assign it outside of the step.",
                name,
                code,
            )
        return result

    def run_openly(self, call: Callable[[], object]) -> object:
        """The result of `call`, which runs operator by operator and assigns the names for good.

        Raises:
            SporaxTypeError: a name was assigned what is known only inside of a gradient, a loop or a branch; all are put back.
        """
        before = self._values()
        try:
            result = call()
        finally:
            leaked = next(filter(_holds_tracer, self._names.values()), None)
            if leaked is not None:
                self._put_back(before)
        if leaked is not None:
            _, name, code = leaked
            raise SporaxTypeError(
                f"For 'jit', the function '{code.co_name}' assigns to the global variable '{name}' a tensor whose value is known "
                f"only inside of a gradient, a loop or a branch.\n  In file {code.co_filename}, line {code.co_firstlineno}; "
                "return it (see 'has_aux' of value_and_grad), or keep it in a Parameter."
            )
        return result

    def _values(self) -> list[Any]:
        return [space.get(name, _UNSET) for space, name, _ in self._names.values()]

    def _put_back(self, before: list[Any]) -> list[tuple[str, types.CodeType]]:
        changed = []
        for (space, name, code), value in zip(self._names.values(), before, strict=True):
            if space.get(name, _UNSET) is value:
                continue
            changed.append((name, code))
            if value is _UNSET:
                space.pop(name, None)
            else:
                space[name] = value
        return changed


def _holds_tracer(place: tuple[dict[str, object], str, types.CodeType]) -> bool:
    space, name, _ = place
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(space.get(name)))


def _assigned(function: object) -> Iterator[tuple[dict[str, object], str, types.CodeType]]:
    """Global names that `function`, and what it calls, may assign: where they are, and the code that assigns them."""
    pending, seen = [function], {}
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen[id(current)] = current  # kept, so that its id stays its own
        if isinstance(current, types.FunctionType) and not _of_library(current.__code__.co_filename):
            for code in _codes(current.__code__):
                # Local variables that start with the values of global ones (`Session`) are watched, too.
                names = (*_stores(code), *SESSION.started_as_globals.get(code, ()))
                yield from ((current.__globals__, name, code) for name in names)
        pending.extend(_followed(current))


@functools.cache
def _stores(code: types.CodeType) -> tuple[str, ...]:
    return tuple(
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
    )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """`code` and those of functions defined inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _of_library(filename: str) -> bool:
    return filename.startswith(_LIBRARIES)


def _followed(value: object) -> Iterator[Any]:
    """What may be called where `value` is called."""
    if isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, property):
        yield value.fget
    elif isinstance(value, type):
        yield from (entry for kind in value.__mro__ if kind.__module__ != "builtins" for entry in _methods(kind))
    elif isinstance(value, list | tuple | dict):
        entries = value.values() if isinstance(value, dict) else value
        # Long lists of numbers hold nothing to call.
        yield from filter(_holds_calls, entries)
    elif callable(value) and hasattr(value, "__dict__"):
        # Cells, compiled functions, and callable objects of the user.
        yield type(value)
        yield from filter(_holds_calls, vars(value).values())


def _holds_calls(value: object) -> bool:
    """Whether `value` may be called, or hold what may be."""
    return callable(value) or isinstance(value, _HOLDERS)


def _methods(kind: type) -> Iterator[Any]:
    for entry in vars(kind).values():
        if isinstance(entry, types.FunctionType | property):
            yield entry
        elif isinstance(entry, _WRAPPERS):
            yield entry.__func__


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    # A transformation of ours keeps the user's function in its closure.
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not set yet
            continue
    yield getattr(function, "__wrapped__", None)
    if _of_library(function.__code__.co_filename):
        return
    for code in _codes(function.__code__):
        for name in code.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, types.ModuleType) and not _of_library(getattr(value, "__file__", None) or ""):
                yield from (vars(value).get(attribute) for attribute in code.co_names)
            elif callable(value):
                yield value
