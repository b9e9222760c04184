"""Rules: how every primitive can be sharded, and everything that follows from it. `docs/rules.md` is the manual.

Names are loaded when they are first used: programs that no plan shards need no rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.ir.operation import Operation, TensorSpec
    from sporax.planner.rules.derive import (
        Assignment,
        assignments,
        exchanged_bytes,
        is_legal,
        local_bytes,
        local_flops,
        local_operation,
        placements,
        problem,
        propagate,
        unsharded,
    )
    from sporax.planner.rules.language import Border, Factor, FactorKind, Rule, Window, replicate
    from sporax.planner.rules.notation import Statement
    from sporax.planner.rules.rule_table import (
        TABLE,
        Behaviour,
        Entry,
        entries,
        entry_for,
        is_uncounted,
        register,
        rule_for,
        unregister,
    )

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
