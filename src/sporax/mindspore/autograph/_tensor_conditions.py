"""A tensor meets a statement that needs its value: what is rewritten for it (see the package).

Containers that are longer, or have more keys, if one way is taken than if the other is: what they have in common can be read.
Errors with tensors in their words: the program in which they are raised ends there, and they are raised when it has run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxTypeError
from sporax.mindspore import autograph
from sporax.mindspore.common import tensor
from sporax.runtime.state import frames, trace_constants

_PACKAGE = str(Path(__file__).parents[2])
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
# Conversions that rewritten code can do without; others need real values in any case.
_REQUESTED = frozenset(("bool", "int", "float", "index", "str"))


def meet(what: str) -> None:
    """A tensor whose value is not known was needed: rewrite the function that reads it, where that helps.

    Args:
        what: what was requested.

    Raises:
        Retrace: the function has been rewritten.
        SporaxTypeError: it had been, and this place of it cannot be.
    """
    if what not in _REQUESTED or not frames.compiling():
        return
    # The user's code may read through a library, whose functions are not rewritten.
    frame = _requesting_frame()
    if frame is None:
        return
    code = frame.f_code
    if autograph.is_rewritten(code):
        if what != "str":
            # Text is printed later, so a tensor in it does no harm.
            raise SporaxTypeError(
                f"For '{what}', the value of this tensor is not known while the step is being compiled, and Python needs it "
                f"in this expression.\n  In file {code.co_filename}, line {frame.f_lineno}; use ops.where, ops.cond or "
                "ops.while_loop there."
            )
        return
    # The frame that runs now keeps the old code, so the step is traced again from its beginning.
    autograph.rewrite(code)
    raise frames.Retrace(code.co_qualname)


def _requesting_frame() -> FrameType | None:
    """The user's frame, if it reads directly."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == tensor.__file__:
        frame = frame.f_back
    # Comprehensions may have frames of their own.
    while frame is not None and frame.f_code.co_name in _COMPREHENSIONS:
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_PACKAGE):
        return None
    return frame


_UNBOUND = re.compile(r"local variable '(\w+)'")

RAISED = "raised_by_rewritten_code"
"""Attribute of errors that a user's `raise` raised: their `RaisedWords`."""


class RaisedWords(NamedTuple):
    """The tensors in the words of an error.

    Attributes:
        arrays: of the trace that ends with the error.
        error: the error for their values.
        frame: the identity of that trace's frame.
    """

    arrays: list[jax.Array]
    error: Callable[..., BaseException]
    frame: int


def end(error: Exception) -> bool:
    """Say whether a program ends where its trace has: a user's `raise` has words that are known when it has run.

    Raises:
        Retrace: the function has been rewritten.
    """
    if isinstance(error, UnboundLocalError):
        _start_as_global(error)
    words: RaisedWords | None = getattr(error, RAISED, None)
    # Arrays of a gradient that has ended have no values here.
    if words is None or not words.arrays or words.frame != id(frames.current_frame()):
        return False
    trace_constants.fail_when(jnp.array(True), words.error, words.arrays)
    return True


def _start_as_global(error: UnboundLocalError) -> None:
    """A local variable was read before it was bound: where there is a global of its name, it starts with that one's value.

    MindSpore reads the global, too; the global stays what it is.
    """
    trace, match = error.__traceback__, _UNBOUND.search(str(error))
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or match is None:
        return
    frame, name = trace.tb_frame, match[1]
    if name not in frame.f_globals or frame.f_code.co_filename.startswith(_PACKAGE):
        return
    if autograph.start_as_global(frame.f_code, name):
        raise frames.Retrace(frame.f_code.co_qualname)


@jax.tree_util.register_pytree_node_class
class CommonPart:
    """What two lists, tuples or dicts have in common: it is read by number or key; whatever needs the rest is refused.

    Args:
        kind: what both are.
        known: a dict of what is there whichever way is taken, or a list of the first elements.
        error: what is raised, in words.
    """

    def __init__(self, kind: type, known: Any, error: str) -> None:
        self.kind, self.known, self.error = kind, known, error

    # So that `isinstance(items, list)` is as true as it is of both.
    __class__: Any = property(lambda self: self.kind)

    def tree_flatten(self) -> tuple[list[object], tuple[object, ...]]:
        """The elements, and the rest."""
        items = by_key(self)
        return [*items.values()], (self.kind, (*items,), self.error)

    @classmethod
    def tree_unflatten(cls, rest: tuple[Any, ...], items: Iterable[object]) -> CommonPart:
        """From the elements and the rest."""
        kind, keys, error = rest
        return cls(kind, dict(zip(keys, items, strict=True)) if kind is dict else [*items], error)

    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            # Numbers from the end, and slices up to it, need the length.
            start, stop, step = index.start or 0, index.stop, index.step or 1
            if stop is None or stop > len(self.known) or min(start, stop) < 0 or step < 0:
                self._refuse()
            return self.kind(self.known)[index]
        return self.known[index] if self._has(index) else self._refuse()

    def __setitem__(self, index: object, value: object) -> None:
        # A key that is set is there from now on.
        self.known[index if self.kind is dict or self._has(index) else self._refuse()] = value

    def _has(self, index: object) -> bool:
        return isinstance(index, Hashable) and index in by_key(self)

    def __contains__(self, key: object) -> bool:
        # Whether another key is there depends on the way, and so does what is in the other elements.
        return (self.kind is dict and self._has(key)) or self._refuse()

    def __getattr__(self, name: str) -> Any:
        methods: dict[type, tuple[str, ...]] = {dict: ("get", "update"), list: ("append", "extend", "insert")}
        if name in methods.get(self.kind, ()):
            return getattr(self, f"_{name}")
        raise AttributeError(name) if name.startswith("__") else SporaxTypeError(self.error)

    def _get(self, key: object, default: object = None) -> Any:
        return self[key]

    def _update(self, *entries: object, **named: object) -> None:
        self.known.update(*entries, **named)

    def _append(self, item: object) -> None:
        """An element that is somewhere behind those that can be read."""

    _extend = _append

    def _insert(self, index: int, item: object) -> None:
        self.known.insert(index if 0 <= index <= len(self.known) else self._refuse(), item)

    def __bool__(self) -> bool:
        return bool(self.known) or self._refuse()

    def __add__(self, items: Any) -> CommonPart:
        """The same: further elements are behind those that can be read."""
        return self

    def __radd__(self, items: Any) -> CommonPart:
        return CommonPart(self.kind, [*items, *self.known], self.error)

    def split(self, before: int, after: int) -> list[Any]:
        """``a, b, *rest``: the first elements, and the others as a list."""
        if after or before > len(self.known):
            self._refuse()
        return [*self.known[:before], CommonPart(list, self.known[before:], self.error)]

    def __repr__(self) -> str:
        return self.error

    def _refuse(self, *_: object) -> NoReturn:
        raise SporaxTypeError(self.error)

    __len__ = __iter__ = __eq__ = __delitem__ = __reversed__ = __mul__ = _refuse


class UnlikeError(Exception):
    """Two values have nothing in common."""


class Pair(NamedTuple):
    """Leaves of two values in the same place."""

    one: Any
    two: Any


def common_part(where: str, what: str, one: Any, two: Any) -> Any:
    """What two values have in common, with a `Pair` for each leaf.

    Args:
        where: the statement, for messages.
        what: name of the value, for messages.
        one, two: the values, with numbers for leaves.

    Raises:
        UnlikeError: they are of different kinds.
    """
    kind, other = (value.kind if type(value) is CommonPart else type(value) for value in (one, two))
    if {kind, other} != {dict} and not {kind, other} <= {list, tuple}:
        trees: list[Any] = [jax.tree.structure(value) for value in (one, two)]
        if trees[0] != trees[1]:
            raise UnlikeError
        return jax.tree.map(Pair, one, two)
    first, second = by_key(one), by_key(two)
    items = {}
    for key, item in first.items():
        try:
            items[key] = common_part(where, f"{what}[{key!r}]", item, second[key])
        except (KeyError, UnlikeError):
            # Elements behind one that differs are not looked at; keys are independent.
            if kind is not dict:
                break
    known = items if kind is dict else [*items.values()]
    if type(one) is type(two) is kind and len(first) == len(items) == len(second):
        return kind(known)
    differs, part = ("keys", f"keys {[*items]}") if kind is dict else ("lengths", f"first {len(items)} elements")
    error = (
        f"For '{where}', '{what}' has different {differs} depending on the way that is taken, so only its {part} "
        f"can be read; give it the same {differs}, for example by elements of zeros."
    )
    return CommonPart(kind, known, error)


def by_key(value: Any) -> dict[Any, Any]:
    """The elements of a container, by key or number."""
    items = value.known if type(value) is CommonPart else value
    return items if type(items) is dict else dict(enumerate(items))
