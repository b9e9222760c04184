"""Rules: how every primitive can be sharded, and everything that follows from it. `docs/rules.md` is the manual."""

from sporax.planner.rules.derive import (
    Assignment,
    assignments,
    exchanged_bytes,
    is_legal,
    local_bytes,
    local_flops,
    local_operation,
    nothing_cut,
    placements,
    problem,
    propagate,
)
from sporax.planner.rules.language import Border, Factor, Kind, Operation, Rule, TensorSpec, Window, replicate
from sporax.planner.rules.notation import Statement
from sporax.planner.rules.rule_table import TABLE, Behaviour, Entry, entries, entry_for, register, rule_for, unregister

__all__ = [
    "Assignment",
    "Behaviour",
    "Border",
    "Entry",
    "Factor",
    "Kind",
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
    "nothing_cut",
    "placements",
    "problem",
    "propagate",
    "register",
    "replicate",
    "rule_for",
    "unregister",
]
