"""Where the supported versions of JAX differ: primitives that only some of them have.

Problem: Sporax knows primitives by their names, in a dozen tables (rules, the model of memory, passes of the lowering). A new
version of JAX makes the same functions of other primitives: the gradient of tanh, for one, was ``mul`` and ``sub`` and is
``one_minus_square`` today. Method: each of them behaves as an older one, and this table says as which; the tables by name
take it in through `with_newer`. What has no older relative gets a line in `sporax.planner.rules.rule_table` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

LIKE: Mapping[str, str] = MappingProxyType(
    {
        "compute_on": "closed_call",  # JAX 0.11.1, and a trial before; its equations say where they are computed
        "log2": "log",  # JAX 0.11.2; it was log and a division
        "one_minus_square": "square",  # JAX 0.11.2; derivatives of tanh, asin, acos, atanh and what is made of them
        "program_order": "eval_jaxpr",  # JAX 0.11.2; a call that keeps the order of its equations
        "relayout": "layout_constraint",  # JAX 0.11.1; the order of elements in memory, and no other element
        "unreduced_pmax": "unreduced_psum",  # JAX 0.11.1
        "unreduced_pmin": "unreduced_psum",  # JAX 0.11.1
    }
)
"""Primitive -> the one that it behaves as: rule, cost, and how compilers treat it."""


def with_newer(names: Iterable[str]) -> frozenset[str]:
    """The names, and those of newer primitives that behave as one of them."""
    known = frozenset(names)
    return known | {newer for newer, older in LIKE.items() if older in known}
