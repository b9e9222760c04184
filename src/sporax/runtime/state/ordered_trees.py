"""Trees whose dicts keep the order of their keys.

Problem: JAX sorts the keys of dicts that it takes apart, so a compiled function would see keyword arguments, and a caller the
results, in another order than Python has them. Method: dicts are taken apart as nodes of a type of their own, which become
plain dicts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


class InOrder(dict[Any, Any]):
    """A dict that JAX takes apart in the order of its keys."""


def _plain_dict(keys: tuple[Any, ...], values: Any) -> Any:
    # Users get a dict, not a class of ours.
    return dict(zip(keys, values, strict=True))


jax.tree_util.register_pytree_node(InOrder, lambda entries: (tuple(entries.values()), tuple(entries)), _plain_dict)


def in_order(tree: Any) -> Any:
    """`tree` with an `InOrder` in place of each dict in its tuples, lists and dicts."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return kind(map(in_order, tree))
    return InOrder((key, in_order(entry)) for key, entry in tree.items()) if kind is dict else tree


def flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], Any]:
    """`jax.tree.flatten` that keeps the order of dicts; `jax.tree.unflatten` gives them back."""
    return jax.tree.flatten(in_order(tree), is_leaf)


def mapped(function: Callable[[Any], Any], tree: Any, is_leaf: Any = None) -> Any:
    """`jax.tree.map` that keeps the order of dicts."""
    return jax.tree.map(function, in_order(tree), is_leaf=is_leaf)
