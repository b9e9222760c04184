"""Rules of the edges of loops and branches that are inlined for planning (`sporax.planner.loops.inline`).

Problem: a search sees one graph without bodies, but a tensor outside a loop is not the one inside.

Method: operators that never run relate the two, with rules like any primitive. Stacked results of rounds may be partial and
are reduced once; sums over rounds may be carried partial. Branches' results are complete, since one branch knows nothing of
the parts of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sporax.ir.operation import Operation
from sporax.planner.rules.language import MOVABLE, Draft, Rule

ENTER = "loop_enter"
"""An operand of control flow is resharded to where bodies have it."""
ARGUMENT = "loop_argument"
"""From there it is the argument of a body."""
SLICE = "loop_slice"
"""A round's slice of a stacked operand."""
STACK = "loop_stack"
"""What all rounds give, stacked."""
CARRY = "loop_carry"
"""From one round to the next: the argument of a body, what the body makes of it, and what comes out after the last round."""
JOIN = "branch_join"
"""The number of a branch and the results of all branches, of which one counts."""


def enter(operation: Operation) -> Rule:
    """The same tensor."""
    draft = Draft(operation)
    dims = draft.maps(operation.results[0].shape)
    draft.passes((0,), *MOVABLE)
    return draft.finish([dims], [dims], flops_per_point=0.0)


def edge(operation: Operation) -> Rule:
    """Tensors of one shape with one placement; a branch's number is next to them."""
    draft = Draft(operation)
    dims = draft.maps(operation.results[0].shape)
    # The number of a branch has no dimensions, whatever the results have.
    operands = [dims if operand.num_dims else () for operand in operation.operands]
    # One branch knows nothing of the parts of another, so only complete results are joined.
    if operation.name != JOIN:
        draft.passes(range(len(operands)), *MOVABLE)
    return draft.finish(operands, [dims], flops_per_point=0.0)


def slice_(operation: Operation) -> Rule:
    """The dimension of the rounds is whole on every device."""
    draft = Draft(operation)
    # The dimension of the rounds cannot be sharded: every round runs on all devices.
    rounds, *dims = draft.blocked(operation.operands[0].shape[0]), *draft.maps(operation.results[0].shape)
    return draft.finish([(rounds, *dims)], [tuple(dims)], flops_per_point=0.0)


def stack(operation: Operation) -> Rule:
    """The reverse; parts pass."""
    draft = Draft(operation)
    rounds, *dims = draft.blocked(operation.results[0].shape[0]), *draft.maps(operation.operands[0].shape)
    draft.passes((0,), *MOVABLE)
    return draft.finish([tuple(dims)], [(rounds, *dims)], flops_per_point=0.0)


SUMMED = "summed"
"""Parameter of the entrance of what every round adds to."""

RULES: Mapping[str, Callable[[Operation], Rule]] = {
    ENTER: enter,
    ARGUMENT: edge,
    SLICE: slice_,
    STACK: stack,
    CARRY: edge,
    JOIN: edge,
}
