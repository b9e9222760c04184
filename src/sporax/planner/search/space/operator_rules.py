"""What a search needs to know of single operators: their rules (cached), and which of them have candidates of their own.

identity    marks and barriers: every tensor passes through
light       elementwise, dimension maps, reductions, creation: fast, so they take the placement of their operand
heavy       everything else: products, windows, indexing, sorting, algebra, control flow, and what cannot be sharded
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from sporax.base.identity import ByIdentity
from sporax.ir.graph import IDENTITIES, MARK, Operator, OperatorGraph
from sporax.ir.operation import Operation, TensorSpec
from sporax.planner.rules import Rule, entry_for, replicate, rule_for
from sporax.planner.rules.elementwise import side_by_side
from sporax.planner.rules.loop_rules import CARRY, ENTER, JOIN, STACK

_LIGHT_FAMILIES = frozenset(["1 elementwise", "2 dimensions", "4 reduction", "9 creation"])
"""Families of rules (`planner.rules.rule_table`) whose operators cost little next to products."""
_HEAVY = frozenset(
    ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "rng_uniform", "rng_bit_generator", "argmax", "argmin"]
)
"""Members of those families that still decide for themselves: one dimension, or all of them, cannot be sharded."""
_PINS = frozenset(["sharding_constraint", "reshard", "layout_constraint", "device_put", "with_memory_space_constraint"])
"""Identities of JAX that have rules of other families."""
_LINEAR = frozenset(["neg", "mul", "div", "copy", "convert_element_type"])
"""Elementwise operators that may let partial sums of their only tensor through."""

_EDGES = frozenset([ENTER, STACK, CARRY, JOIN])
"""Operators at the edge of an inlined loop, where a tensor may have another placement inside than outside."""

_Answer = TypeVar("_Answer")

Signature = tuple[Hashable, ...]


def is_identity(operator: Operator) -> bool:
    """Whether its results are its operands, one by one."""
    return operator.name in IDENTITIES


def is_light(operator: Operator) -> bool:
    """Whether it follows its operand instead of having a choice."""
    name = operator.name
    if operator.bodies or name in _HEAVY:
        return False
    return name in _PINS or entry_for(name).family in _LIGHT_FAMILIES


def is_reduction(operator: Operator) -> bool:
    """Whether its results need a decision of their own: they may be partial, or are on the other side of a loop's edge."""
    return operator.name in _EDGES or entry_for(operator.name).family == "4 reduction"


def is_linear(operator: Operator) -> bool:
    """Whether partial values of an operator's only tensor may be partial values of its result."""
    return operator.name in _LINEAR or entry_for(operator.name).family == "2 dimensions"


def signature(operation: Operation) -> Signature:
    """A key that is equal for operations that can be sharded equally. Unhashable objects equal only themselves."""
    params = tuple((name, _hashable(value)) for name, value in operation.params.items())
    return operation.name, operation.operands, operation.results, operation.fused, params


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    # Arrays and functions among the parameters; a kind is then no larger than what shares the very object.
    except TypeError:
        return ByIdentity(value)
    return value  # type: ignore[no-any-return]  # marks hold values of any type


class Kinds:
    """The operators of a graph by kind. Layers repeat, so what is known of an operator by itself is asked once per kind.

    Marks are of one kind, whatever passes through them, and so are barriers.

    Args:
        graph: the graph.
        late: for every operator whether it belongs to the backward pass or depends on it.

    Attributes:
        of: for every operator its kind.
        examples: for every kind an operator,
        late: and whether it is late.
    """

    def __init__(self, graph: OperatorGraph, late: Sequence[bool]) -> None:
        self.of: list[int] = []
        self.examples: list[Operator] = []
        self.late: list[bool] = []
        numbers: dict[Hashable, int] = {}
        for operator, is_late in zip(graph.operators, late, strict=True):
            # What a mark carries does not matter here, and its operands differ from place to place.
            key: Hashable = operator.name
            if not is_identity(operator):
                key = signature(operator.operation), bool(operator.bodies), operator.times, is_late
            kind = numbers.setdefault(key, len(numbers))
            if kind == len(self.examples):
                self.examples.append(operator)
                self.late.append(is_late)
            self.of.append(kind)

    def per_operator(self, question: Callable[[Operator], _Answer]) -> list[_Answer]:
        """For every operator the answer to `question`, which is asked once per kind."""
        answers = [question(example) for example in self.examples]
        return [answers[kind] for kind in self.of]


def rule_of(operator: Operator) -> Rule:
    """The rule of an operator. Control flow is held whole: its bodies are not planned from inside."""
    if operator.bodies:
        # Its rule shards nothing: searches see loops inlined, so this remains for bodies that cannot be inlined.
        return replicate(operator.operation, f"'{operator.name}' is not sharded: bodies of control flow are run whole")
    if is_identity(operator):
        return _identity_rule(operator.operation.operands)
    return rule_for(operator.operation)


# Marks carry names and numbers, so their operations differ though their rules are equal.
@lru_cache(maxsize=1 << 12)
def _identity_rule(specs: tuple[TensorSpec, ...]) -> Rule:
    """The rule of identities on such tensors; marks differ in much that does not matter here."""
    return side_by_side(Operation(MARK, specs, specs))
