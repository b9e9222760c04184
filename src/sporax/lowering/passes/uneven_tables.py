"""A step whose tables have uneven parts, rewritten to hold them in blocks (`sporax.ir.uneven`).

A step is traced with the shapes that its user sees. If a lookup splits a table's rows into parts, then the table, its
gradient, its moments and everything else that has its rows element by element take the shape of its blocks: 12 rows
instead of 9 in the example there. After that every tensor is sharded evenly, and the planner needs no special case.

    row by row (updates, casts, masks)             on blocks; spare rows are never read
    sums, maxima, … over the rows                  spare rows are first filled with the neutral element
    anything else (sorting, slicing, results)      the table is converted back to rows; the plan reports it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jax.extend.core import Primitive

from sporax.ir.graph import IDENTITIES, LITERAL, Operator, OperatorGraph, Role
from sporax.ir.operation import Operation, Shape, TensorSpec
from sporax.ir.uneven import UnevenRows
from sporax.lowering.execute.part_lookup import (
    blocks_of_rows,
    blocks_of_rows_p,
    fill_spare_rows_p,
    fill_value,
    rows_of_blocks_p,
)
from sporax.lowering.ingest.ingest import Equation, Ingested
from sporax.planner.rules import FactorKind, Rule, rule_for

_REDUCTIONS = frozenset(
    ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor", "dot_general"]
)
"""Operations in which spare rows can be made to change nothing."""

_OWN = {"part_lookup": ("operands", 0), "part_update": ("results", 0)}
"""Where the operations that know of parts have their table."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A tensor that is held in blocks: along which dimension, and how its rows are dealt out."""

    dim: int
    rows: UnevenRows

    def shape(self, shape: Shape) -> Shape:
        """The tensor's shape in blocks."""
        return (*shape[: self.dim], self.rows.num_stored, *shape[self.dim + 1 :])

    def blocks(self, table: Any) -> Any:
        """A whole array in blocks; spare rows are zeros."""
        return blocks_of_rows(table, rows=self.rows.rows, dim=self.dim)


def in_blocks(step: Ingested) -> tuple[Ingested, dict[int, Blocked]]:
    """The step on blocks, and by position the inputs that it takes so. The same step where no table is uneven."""
    graph = step.graph
    blocked = _BlockedTensors(graph, _unmovable(graph)).run()
    if not blocked:
        return step, {}
    inputs = {
        number: blocked[argument.tensor] for number, argument in enumerate(graph.inputs) if argument.tensor in blocked
    }
    # An updated variable leaves in the form in which it came, so the next step takes it as it is.
    stored = {output: blocked.get(graph.inputs[position].tensor) for output, position in graph.aliases}
    results = [stored.get(output) for output in range(len(graph.outputs))]
    return _BlockRewriter(step, blocked, results).run(), inputs


def _unmovable(graph: OperatorGraph) -> frozenset[int]:
    """Inputs that come in rows whatever their readers want: data and constants."""
    return frozenset(argument.tensor for argument in graph.inputs if argument.role not in (Role.PARAMETER, Role.STATE))


# ------------------------------------------------------------------------------------------------- which tensors are in blocks


@dataclass(slots=True)
class _BlockedTensors:
    """Finds the tensors that share rows with a table, through operations that work row by row, in both directions."""

    graph: OperatorGraph
    fixed: frozenset[int]
    blocked: dict[int, Blocked] = field(default_factory=dict)

    def run(self) -> dict[int, Blocked]:
        for operator in self.graph.operators:
            for tensor, how in _tables(operator).items():
                self._mark(tensor, how)
        before = 0
        # Rows are shared in both directions, so one walk in order is not enough: until nothing is added.
        while before != len(self.blocked):
            before = len(self.blocked)
            for operator in self.graph.operators:
                self._through(operator)
            for output, position in self.graph.aliases:
                ends = self.graph.outputs[output], self.graph.inputs[position].tensor
                for here, there in (ends, ends[::-1]):
                    if here in self.blocked:
                        self._mark(there, self.blocked[here])
        return self.blocked

    def _mark(self, tensor: int, how: Blocked) -> None:
        if tensor != LITERAL and tensor not in self.fixed:
            # The first form wins: where a second one differs, the operator in between works on rows.
            self.blocked.setdefault(tensor, how)

    def _through(self, operator: Operator) -> None:
        if operator.name in IDENTITIES:
            for pair in zip(operator.operands, operator.results, strict=True):
                for here, there in (pair, pair[::-1]):
                    if here in self.blocked:
                        self._mark(there, self.blocked[here])
            return
        if operator.name == "cond":
            branches = Branches.of(operator, self.blocked)
            sharing: Mapping[int, Blocked] | None = branches.shared(operator) if branches else None
        else:
            sharing = shared_rows(operator, self.blocked)
        for tensor, how in sharing.items() if sharing else ():
            self._mark(tensor, how)


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches of a choice, with what is in blocks in each.

    Attributes:
        blocked: for each branch its tensors in blocks.
        operands, results: for the operands after the predicate, and for the results, how branches take and give them.
    """

    blocked: tuple[dict[int, Blocked], ...]
    operands: tuple[Blocked | None, ...]
    results: tuple[Blocked | None, ...]

    @classmethod
    def of(cls, operator: Operator, blocked: Mapping[int, Blocked]) -> Branches | None:
        """What follows inside from what is in blocks outside; None if there is nothing."""
        if blocked.keys().isdisjoint((*operator.operands, *operator.results)):
            return None
        operands = [blocked.get(tensor) for tensor in operator.operands[1:]]
        results = [blocked.get(tensor) for tensor in operator.results]
        # Branches influence each other through what they take and give.
        while True:  # until no branch wants more than those before it knew of
            inner: list[dict[int, Blocked]] = []
            before = operands, results
            for graph in operator.bodies:
                inner.append(_inside(graph, operands, results))
                # Constants of a branch come first and are not handed in from outside.
                arguments = [argument.tensor for argument in graph.inputs[len(graph.inputs) - len(operands) :]]
                operands = [how or inner[-1].get(tensor) for tensor, how in zip(arguments, operands, strict=True)]
                results = [how or inner[-1].get(tensor) for tensor, how in zip(graph.outputs, results, strict=True)]
            if before == (operands, results):
                return cls(tuple(inner), tuple(operands), tuple(results))

    def shared(self, operator: Operator) -> dict[int, Blocked]:
        """Tensors outside that should be in blocks, too."""
        pairs = (
            *zip(operator.operands[1:], self.operands, strict=True),
            *zip(operator.results, self.results, strict=True),
        )
        return {tensor: how for tensor, how in pairs if how is not None and tensor != LITERAL}


def _inside(
    graph: OperatorGraph, operands: Sequence[Blocked | None], results: Sequence[Blocked | None]
) -> dict[int, Blocked]:
    """What is in blocks in one branch whose arguments and results are so where that is said."""
    num_constants = len(graph.inputs) - len(operands)
    arguments = [argument.tensor for argument in graph.inputs[num_constants:]]
    ends = [*zip(arguments, operands, strict=True), *zip(graph.outputs, results, strict=True)]
    fixed = frozenset(argument.tensor for argument in graph.inputs[:num_constants])
    seeds = {tensor: how for tensor, how in ends if how and tensor not in fixed and tensor != LITERAL}
    return _BlockedTensors(graph, fixed, seeds).run()


def _tables(operator: Operator) -> dict[int, Blocked]:
    """The table of a lookup or of its derivative, if its parts are uneven."""
    if operator.name not in _OWN:
        return {}
    side, position = _OWN[operator.name]
    rows = UnevenRows(operator.operation.params["rows"])
    return {} if rows.is_even else {getattr(operator, side)[position]: Blocked(0, rows)}


def shared_rows(operator: Operator, blocked: Mapping[int, Blocked]) -> dict[int, Blocked] | None:
    """The tensors of an operator that must be in blocks together with those that are, and how.

    None where the operator cannot work on blocks: it does more with rows than take each by itself or sum them up.
    """
    if operator.name in _OWN:
        return _tables(operator)
    if operator.bodies or blocked.keys().isdisjoint((*operator.operands, *operator.results)):
        return None
    rule = rule_for(operator.operation)
    # Nothing is known of an opaque operator's dimensions.
    if rule.opaque:
        return None
    tensors = [*zip(operator.operands, rule.operands, strict=True), *zip(operator.results, rule.results, strict=True)]
    already = {tensor: blocked[tensor] for tensor, _ in tensors if tensor in blocked}
    factors = {dims[already[tensor].dim] for tensor, dims in tensors if tensor in already}
    rows = {form.rows for form in already.values()}
    # Two tables with other parts meet in this operator: no one form fits both.
    if len(factors) != 1 or len(rows) != 1:
        return None
    (factor,), (how,) = factors, rows
    sharing = _with_factor(tensors, factor, how) if _row_by_row(operator, rule, factor) else None
    return None if sharing is None or not already.items() <= sharing.items() else sharing


def _with_factor(
    tensors: Sequence[tuple[int, Sequence[tuple[int, ...]]]], factor: tuple[int, ...], rows: UnevenRows
) -> dict[int, Blocked] | None:
    """The tensors that have the rows of a table as one of their dimensions; None where one has them in another way."""
    sharing: dict[int, Blocked] = {}
    for tensor, dims in tensors:
        sharded = [dim for dim, indices in enumerate(dims) if set(indices) & set(factor)]
        # Rows appear twice (an outer product of a table with itself) or merged with another dimension.
        if len(sharded) > 1 or any(dims[dim] != factor for dim in sharded):
            return None
        if sharded:
            sharing[tensor] = Blocked(sharded[0], rows)
    return sharing


def _row_by_row(operator: Operator, rule: Rule, factor: tuple[int, ...]) -> bool:
    if len(factor) != 1:
        return False
    kind = rule.factors[factor[0]].kind
    if kind is FactorKind.REDUCE:
        return operator.name in _REDUCTIONS
    # A recipe computes places in the whole tensor, which spare rows would shift.
    return kind is FactorKind.MAP and rule.recipe == "plain"


# ---------------------------------------------------------------------------------------------------------- the new step


@dataclass(slots=True)
class _BlockRewriter:
    """Writes the step down again, with blocks, and with steps between blocks and rows where an operator needs these."""

    step: Ingested
    blocked: Mapping[int, Blocked]
    result_forms: Sequence[Blocked | None]
    """For each result how it should come out; None: in rows."""
    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    # Both directions share one dict, since a tensor is in one form by itself.
    """For tensors that are in blocks, the numbers of their copies in rows; the other way round for those that are not."""

    def run(self) -> Ingested:
        graph = self.step.graph
        self.tensors = [self._spec(number, spec) for number, spec in enumerate(graph.tensors)]
        for operator, equation in zip(graph.operators, self.step.equations, strict=True):
            if operator.name in IDENTITIES:
                self._identity(operator, equation)
            elif not {*operator.operands, *operator.results} & set(self.blocked):
                self._add(operator, equation)
            elif operator.name == "cond":
                self._choice(operator, equation)
            else:
                self._operator(operator, equation)
        outputs = tuple(self._outputs())
        new = replace(graph, tensors=tuple(self.tensors), operators=tuple(self.operators), outputs=outputs)
        return replace(self.step, graph=new, equations=tuple(self.equations))

    def _spec(self, tensor: int, spec: TensorSpec) -> TensorSpec:
        how = self.blocked.get(tensor)
        return spec if how is None else replace(spec, shape=how.shape(spec.shape))

    def _add(self, operator: Operator, equation: Equation) -> None:
        self.operators.append(operator)
        self.equations.append(equation)

    def _new(self, primitive: Primitive, operand: int, shape: Shape, near: Operator, **params: Any) -> int:
        """The result of one more operator."""
        self.tensors.append(replace(self.tensors[operand], shape=shape))
        return self._made(primitive, operand, len(self.tensors) - 1, near, params)

    def _made(self, primitive: Primitive, operand: int, result: int, near: Operator, params: dict[str, object]) -> int:
        """A tensor that one more operator makes."""
        operation = Operation(str(primitive.name), (self.tensors[operand],), (self.tensors[result],), params)
        self._add(Operator(operation, (operand,), (result,), near.path, near.backward), Equation(primitive, params))
        return result

    def _as_rows(self, tensor: int, near: Operator) -> int:
        """A tensor in blocks, in rows."""
        # One conversion serves all readers.
        if tensor not in self.rows:
            how, shape = self.blocked[tensor], self.step.graph.tensors[tensor].shape
            self.rows[tensor] = self._new(rows_of_blocks_p, tensor, shape, near, rows=how.rows.rows, dim=how.dim)
        return self.rows[tensor]

    def _as_blocks(self, tensor: int, how: Blocked, near: Operator) -> int:
        """A tensor in rows, in blocks."""
        if tensor not in self.rows:
            shape = how.shape(self.tensors[tensor].shape)
            self.rows[tensor] = self._new(blocks_of_rows_p, tensor, shape, near, rows=how.rows.rows, dim=how.dim)
        return self.rows[tensor]

    def _in_form(self, tensor: int, form: Blocked | None, near: Operator) -> int:
        """A tensor in a form: in blocks, or in rows for None."""
        if (tensor in self.blocked) == (form is not None):
            return tensor
        return self._as_rows(tensor, near) if form is None else self._as_blocks(tensor, form, near)

    def _identity(self, operator: Operator, equation: Equation) -> None:
        pairs = zip(operator.operands, operator.results, strict=True)
        operands = tuple(self._in_form(tensor, self.blocked.get(result), operator) for tensor, result in pairs)
        specs = tuple(self.tensors[tensor] for tensor in operator.results)
        operation = replace(operator.operation, operands=specs, results=specs)
        self._add(replace(operator, operands=operands, operation=operation), equation)

    def _operator(self, operator: Operator, equation: Equation) -> None:
        sharing = shared_rows(operator, self.blocked)
        if sharing is None:
            self._on_rows(operator, equation)
            return
        operands = []
        for position, tensor in enumerate(operator.operands):
            if (how := sharing.get(tensor)) is not None:
                tensor = self._harmless(operator, position, self._in_form(tensor, how, operator), how)
            operands.append(tensor)
        specs = [
            spec if tensor == LITERAL else self.tensors[tensor]
            for tensor, spec in zip(operands, operator.operation.operands, strict=True)
        ]
        results = tuple(self.tensors[tensor] for tensor in operator.results)
        operation = operator.operation
        # Shapes inside of parameters (of reshapes, say) must follow the new rows.
        adapt = rule_for(operation).adapt
        params = operation.params
        if adapt is not None:
            shapes = tuple(spec.shape for spec in specs), tuple(result.shape for result in results)
            params = {**params, **adapt(operation, *shapes)}
        resized = Operation(operation.name, tuple(specs), results, params)
        self._add(replace(operator, operation=resized, operands=tuple(operands)), replace(equation, params=params))

    def _choice(self, operator: Operator, equation: Equation) -> None:
        """A choice between branches, all of which take and give the same tensors in blocks."""
        branches = Branches.of(operator, self.blocked)
        results = tuple(self.blocked.get(tensor) for tensor in operator.results)
        # A literal operand has no tensor that could take the form of blocks.
        if branches is None or branches.results != results or LITERAL in operator.operands:
            self._on_rows(operator, equation)
            return
        operands = [operator.operands[0]]
        for tensor, how in zip(operator.operands[1:], branches.operands, strict=True):
            operands.append(self._as_blocks(tensor, how, operator) if how and tensor not in self.blocked else tensor)
        # The body is rewritten with the same forms at its ends as its siblings.
        inner = [
            _BlockRewriter(body, blocked, results).run()
            for body, blocked in zip(equation.bodies, branches.blocked, strict=True)
        ]
        operation = replace(
            operator.operation,
            operands=tuple(self.tensors[tensor] for tensor in operands),
            results=tuple(self.tensors[tensor] for tensor in operator.results),
        )
        graphs = tuple(entry.graph for entry in inner)
        new = replace(operator, operation=operation, operands=tuple(operands), bodies=graphs)
        self._add(new, replace(equation, bodies=tuple(inner)))

    def _harmless(self, operator: Operator, position: int, tensor: int, how: Blocked) -> int:
        """An operand whose spare rows change nothing: filled where the operator combines rows."""
        if operator.name in _OWN:
            # These two know of blocks and skip spare rows by themselves.
            return tensor
        rule = rule_for(operator.operation)
        factor = rule.factors[rule.operands[position][how.dim][0]]
        # Along a mapped dimension spare rows only make spare results.
        if factor.kind is not FactorKind.REDUCE:
            return tensor
        value = fill_value(factor.reduction, self.tensors[tensor].dtype)
        shape = self.tensors[tensor].shape
        return self._new(fill_spare_rows_p, tensor, shape, operator, rows=how.rows.rows, dim=how.dim, value=value)

    def _on_rows(self, operator: Operator, equation: Equation) -> None:
        """The operator as it was: operands are brought together, and results dealt out again."""
        operands = tuple(self._in_form(tensor, None, operator) for tensor in operator.operands)
        results, later = [], []
        for tensor, spec in zip(operator.results, operator.operation.results, strict=True):
            results.append(tensor)
            if tensor in self.blocked:
                self.tensors.append(spec)
                # The operator makes rows under a new number; the old one stands for the blocks made of them.
                results[-1] = len(self.tensors) - 1
                later.append((results[-1], tensor))
        self._add(replace(operator, operands=operands, results=tuple(results)), equation)
        for rows, tensor in later:
            self.rows[tensor], how = rows, self.blocked[tensor]
            self._made(blocks_of_rows_p, rows, tensor, operator, {"rows": how.rows.rows, "dim": how.dim})

    def _outputs(self) -> Sequence[int]:
        """The results as they should come out."""
        # At the end there is no operator near; the conversion has no path.
        nowhere = Operator(Operation("", (), ()), (), ())
        pairs = zip(self.step.graph.outputs, self.result_forms, strict=True)
        return [self._in_form(tensor, form, nowhere) for tensor, form in pairs]
