"""Objects as dictionary keys by identity.

Problem: some values (arrays, graphs, lists) are expensive or impossible to hash, and one object in two places means equality.

Method: a wrapper that hashes and compares the object itself. It keeps the object alive, so a key can never stand for another
object that later gets the same address, as a bare `id` can.
"""

from __future__ import annotations


class ByIdentity:
    """A key that stands for one object.

    Example:
        >>> ByIdentity([]) == ByIdentity([])
        False
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return object.__hash__(self.value)

    def __eq__(self, other: object) -> bool:
        # Not `isinstance`, which costs twice as much: nothing derives from this class, and searches compare millions of keys.
        return other.__class__ is ByIdentity and self.value is other.value
