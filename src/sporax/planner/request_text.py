"""A short text that is equal for equal requests, also in later runs: under it a plan can be stored.

Problem: a plan depends on all that a `PlanRequest` holds, and on the code that makes it; a key that left something out would
bring back the plan of another step. Python's own hashes differ from run to run.
Method: every value in the request is written as text, its type included, and the text is hashed. A value of which no text is
known, such as a function of the user's, has no key, and the plan is made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from types import FunctionType

import numpy as np
from msgspec import Struct

from sporax._version import __version__
from sporax.ir.marks import LayoutMark, OperatorMark
from sporax.planner.request import PlanRequest
from sporax.planner.rules.rule_table import has_own_rules

_ADDRESS = " at 0x"
"""In the text of an object that has no other text than where it is in memory."""
_PLAIN = (str, int, float, bool, complex, bytes, type(None), range)


class _NoTextError(Exception):
    """A value that has no text of its own."""


def request_key(request: PlanRequest) -> str | None:
    """The key of a request; None where it has none: it depends on functions of the user's, or on the time that is left."""
    # A rule of the user's is a function. What a search finds until a certain moment, it may not find again.
    if has_own_rules() or request.budget.is_limited:
        return None
    writer = _Writer()
    try:
        # Of the budget its kind is known; its start is the time of day.
        parts = [writer.text(getattr(request, item.name)) for item in fields(request) if item.name != "budget"]
    except _NoTextError:
        return None
    return hashlib.sha256("\n".join((_version(), *parts)).encode()).hexdigest()[:32]


@cache
def _version() -> str:
    """Of Sporax and of its code, which may have changed without a new version: names, sizes and times of its files; of XLA."""
    digest = hashlib.sha256(f"{__version__} {metadata.version('jaxlib')}".encode())
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        facts = path.stat()
        digest.update(f"{path.relative_to(root)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class _Writer:
    """Writes values; those that occur often are written once."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[object, str]] = {}
        self.numbers: dict[int, int] = {}

    def text(self, value: object) -> str:
        """A value as text.

        Raises:
            _NoTextError: it has none.
        """
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return repr(value)
        # By identity, with the value next to it, so that no later value gets its number.
        found = self.known.get(id(value))
        if found is None:
            found = self.known[id(value)] = value, self._written(value)
        return found[1]

    def _written(self, value: object) -> str:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, Enum):
            return f"{kind}.{value.name}"
        if isinstance(value, Struct):
            return self._record(kind, value, value.__struct_fields__)
        if is_dataclass(value) and not isinstance(value, type):
            return self._record(kind, value, [item.name for item in fields(value)])
        if isinstance(value, Mapping):
            entries = (f"{self.text(key)}:{self.text(entry)}" for key, entry in value.items())
            return f"{{{','.join(sorted(entries))}}}"
        if isinstance(value, set | frozenset):
            return f"{kind}<{','.join(sorted(map(self.text, value)))}>"
        if isinstance(value, tuple | list):
            return f"{kind}[{','.join(map(self.text, value))}]"
        if isinstance(value, np.generic | np.dtype):
            return f"{kind}({value!r})"
        if isinstance(value, FunctionType | partial | type):
            return self._function(value)
        if isinstance(value, _PLAIN):
            return f"{kind}({value!r})"
        # Parameters of primitives, such as the program that a reduction combines with; their text says what they are.
        text = str(value) if kind.startswith(("jax.", "jaxlib.")) else _ADDRESS
        if _ADDRESS in text:
            raise _NoTextError(kind)
        return f"{kind}({text})"

    def _record(self, kind: str, value: object, names: Sequence[str]) -> str:
        """A dataclass or struct, by its fields."""
        # A class of the user's may do anything where it is called.
        if not kind.startswith("sporax."):
            raise _NoTextError(kind)
        if isinstance(value, OperatorMark | LayoutMark):
            # A count of the process distinguishes calls; which it is does not matter.
            value = replace(value, number=self.numbers.setdefault(value.number, len(self.numbers)))
        return f"{kind}({','.join(self.text(getattr(value, name)) for name in names)})"

    def _function(self, value: FunctionType | partial[object] | type) -> str:
        """A function or class of Sporax, whose code belongs to the version; what a function has closed over is written, too."""
        if isinstance(value, partial):
            return f"partial({self.text((value.func, value.args, value.keywords))})"
        if not value.__module__.startswith("sporax."):
            raise _NoTextError(value.__qualname__)
        inside: Collection[object] = ()
        if isinstance(value, FunctionType):
            inside = (
                *(cell.cell_contents for cell in value.__closure__ or ()),
                *(value.__defaults__ or ()),
                *sorted((value.__kwdefaults__ or {}).items()),
            )
        return f"{value.__module__}.{value.__qualname__}({','.join(map(self.text, inside))})"
