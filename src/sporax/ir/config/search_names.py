"""The names of searches: one vocabulary for the context, the environment, the command line and `sporax.plan`.

MindSpore's searches have long names and short ones; letters may be of any case everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SEARCH_MODES = ("recursive_programming", "dynamic_programming", "sharding_propagation")
"""MindSpore's searches."""
SEARCHES = (*SEARCH_MODES, "ilp", "repeated_blocks")
"""MindSpore's searches and ours."""
SHORT_NAMES: Mapping[str, str] = MappingProxyType(
    {"dynamic": "dynamic_programming", "recursive": "recursive_programming", "propagation": "sharding_propagation"}
)
"""What MindSpore's three are called for short."""
SEARCH_NAMES = (*SEARCHES, *SHORT_NAMES)
"""All that a search may be called."""


def full_name(name: str) -> str:
    """The full name of a search; any other text as it is."""
    lower = name.lower()
    lower = SHORT_NAMES.get(lower, lower)
    return lower if lower in SEARCHES else name
