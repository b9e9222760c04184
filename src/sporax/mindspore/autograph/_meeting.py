"""A tensor meets a statement that needs its value: what is rewritten for it (see the package).

Lists and tuples that are longer if one way is taken than if the other is: what they have in common can be read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import jax

from sporax.base.errors import SporaxTypeError
from sporax.mindspore import autograph
from sporax.mindspore.common import tensor
from sporax.runtime.state import frames

_PACKAGE = str(Path(__file__).parents[2])
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
# Conversions that rewritten code can do without; others need real values in any case.
_ASKED = frozenset(("bool", "int", "float", "index", "str"))


def meet(what: str) -> None:
    """A tensor whose value is not known was asked for it: rewrite the function that asks, where that helps.

    Args:
        what: what was asked for.

    Raises:
        Retrace: the function has been rewritten.
        SporaxTypeError: it had been, and this place of it cannot be.
    """
    if what not in _ASKED or not frames.compiling():
        return
    # The user's code may ask through a library, whose functions are not rewritten.
    frame = _asking()
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


def _asking() -> FrameType | None:
    """The user's frame, if it asked directly."""
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


def start_as_global(error: UnboundLocalError) -> None:
    """A local variable was read before it was bound: where there is a global of its name, it starts with that one's value.

    MindSpore reads the global, too; the global stays what it is.

    Args:
        error: what Python has raised.

    Raises:
        Retrace: the function has been rewritten so.
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


Parts = TypeVar("Parts")


@jax.tree_util.register_pytree_node_class
class CommonPart:
    """The first elements of a list or tuple of unknown length: they are read by number; whatever needs the length is refused.

    Args:
        items: the elements that are there whichever way is taken.
        error: what is raised, in words.
    """

    def __init__(self, items: Sequence[Any], error: str) -> None:
        self.items, self.error = list(items), error

    def tree_flatten(self) -> tuple[list[Any], str]:
        """The elements, and the rest."""
        return self.items, self.error

    @classmethod
    def tree_unflatten(cls, error: str, items: Sequence[Any]) -> CommonPart:
        """From the elements and the rest."""
        return cls(items, error)

    def __getitem__(self, index: Any) -> Any:
        bounds = (index.start or 0, index.stop, index.step or 1) if isinstance(index, slice) else (0, index, 1)
        # Numbers from the end, and slices up to it, need the length.
        known = all(isinstance(bound, int) and bound >= 0 for bound in bounds)
        if not known or bounds[1] >= len(self.items) + isinstance(index, slice):
            self._refuse()
        return self.items[index]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("__") else SporaxTypeError(self.error)

    def append(self, item: Any) -> None:
        """An element that is somewhere behind those that can be read."""

    extend = append

    def __add__(self, items: Any) -> CommonPart:
        """The same: further elements are behind those that can be read."""
        return self

    def _refuse(self, *_: Any) -> NoReturn:
        raise SporaxTypeError(self.error)

    __len__ = __iter__ = __eq__ = __contains__ = __radd__ = __setitem__ = __delitem__ = __reversed__ = _refuse


def shortened(where: str, what: str, one: Any, two: Any) -> Any:
    """The structure of what two lists or tuples have in common, from theirs; None where they are others, or share nothing."""
    nodes = [tree.node_data() for tree in (one, two)]
    if any(node is None or node[0] not in (list, tuple, CommonPart) for node in nodes):
        return None
    common = []
    for left, right in zip(one.children(), two.children(), strict=False):
        if left != right:
            break
        common.append(jax.tree.unflatten(left, [0] * left.num_leaves))
    error = (
        f"For '{where}', '{what}' has different lengths depending on the way that is taken, so only its first {len(common)} "
        "elements can be read; give it one length, for example by elements of zeros."
    )
    return jax.tree.structure(CommonPart(common, error)) if common else None
