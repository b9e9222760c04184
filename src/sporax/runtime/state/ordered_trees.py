"""Trees whose dicts keep the order of their keys.

Problem: JAX sorts the keys of dicts that it takes apart, so a compiled function would see keyword arguments, and a caller the
results, in another order than Python has them. Method: dicts are taken apart as nodes of a type of their own, which become
plain dicts again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax


class _InOrder(dict[object, object]):
    """A dict that JAX takes apart in the order of its keys."""


def _plain_dict(keys: tuple[object, ...], values: Iterable[object]) -> Any:
    # Users get a dict, not a class of ours.
    return dict(zip(keys, values, strict=True))


jax.tree_util.register_pytree_node(_InOrder, lambda entries: (tuple(entries.values()), tuple(entries)), _plain_dict)


def _in_order(tree: object) -> object:
    """`tree` with an `_InOrder` in place of each dict in its tuples, lists and dicts."""
    if type(tree) is dict:
        return _InOrder((key, _in_order(entry)) for key, entry in tree.items())
    if type(tree) is tuple:
        return tuple(map(_in_order, tree))
    return list(map(_in_order, tree)) if type(tree) is list else tree


def flatten(tree: object, is_leaf: Callable[[object], bool] | None = None) -> tuple[list[Any], Any]:
    """`jax.tree.flatten` that keeps the order of dicts; `jax.tree.unflatten` gives them back."""
    return jax.tree.flatten(_in_order(tree), is_leaf)


def mapped(function: Callable[[Any], object], tree: object, is_leaf: Callable[[object], bool] | None = None) -> Any:
    """`jax.tree.map` that keeps the order of dicts."""
    return jax.tree.map(function, _in_order(tree), is_leaf=is_leaf)
