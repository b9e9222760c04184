"""Rules: how every primitive can be sharded, and everything that follows from it. `docs/rules.md` is the manual."""

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
from sporax.planner.rules.language import Border, Factor, FactorKind, Operation, Rule, TensorSpec, Window, replicate
from sporax.planner.rules.notation import Statement
from sporax.planner.rules.rule_table import TABLE, Behaviour, Entry, entries, entry_for, register, rule_for, unregister

__all__ = [
    "Assignment",
    "Behaviour",
    "Border",
    "Entry",
    "Factor",
    "FactorKind",
    "Operation",
    "Rule",
    "Statement",
    "TABLE",
    "TensorSpec",
    "Window",
    "assignments",
    "entry_for",
    "exchanged_bytes",
    "is_legal",
    "entries",
    "local_bytes",
    "local_flops",
    "local_operation",
    "unsharded",
    "placements",
    "problem",
    "propagate",
    "register",
    "replicate",
    "rule_for",
    "unregister",
]
