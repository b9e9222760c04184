"""Lists that are longer if one way is taken than if the other is: what they have in common can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import jax

from sporax.base.errors import SporaxTypeError

Parts = TypeVar("Parts")


@jax.tree_util.register_pytree_node_class
class CommonPart:
    """The first elements of a list whose length is not known: they are read by number; whatever needs the length is refused.

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

    def _refuse(self, *_: Any) -> NoReturn:
        raise SporaxTypeError(self.error)

    __len__ = __iter__ = __eq__ = __contains__ = __add__ = __radd__ = __setitem__ = __delitem__ = __reversed__ = _refuse


def shortened(where: str, what: str, one: Any, two: Any) -> Any:
    """The structure of what two lists have in common, from theirs; None where they are no lists, or have nothing in common."""
    nodes = [tree.node_data() for tree in (one, two)]
    if any(node is None or node[0] not in (list, CommonPart) for node in nodes):
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
