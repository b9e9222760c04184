"""From chosen candidates to a plan that can run.

Problem: a search chooses candidates; the lowering needs, for every operator, the sharding of its factors and of its
operands and results, and every tensor that is resharded for several readers.

Method: collect what the chosen candidates say of operators and tensors. A tensor that is produced elsewhere than it is
read by several gets one resharding for all readers; one with a single reader goes there directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, Operator, OperatorGraph
from sporax.ir.placement import Placement
from sporax.ir.plan import OperatorPlan, Plan, Resharding
from sporax.planner.rules import Rule, placements, unsharded
from sporax.planner.rules.derive import only_assignment
from sporax.planner.search.space.decisions import Decisions
from sporax.planner.search.space.operator_rules import is_identity, rule_of
from sporax.planner.search.space.problem import Problem


def plan_of(problem: Problem, chosen: Sequence[int]) -> Plan:
    """The plan in which every decision has its chosen candidate."""
    return _Assembler(problem, chosen).run()


def replicated_plan(graph: OperatorGraph, mesh: DeviceMatrix) -> Plan:
    """The plan that shards nothing: every device computes everything."""

    def planned(operator: Operator) -> OperatorPlan:
        rule = rule_of(operator)
        assignment = only_assignment(operator.operation, rule, mesh) or unsharded(rule)
        # Bodies of loops that no search looked into run whole on every device.
        operands, results = placements(rule, assignment)
        bodies = tuple(replicated_plan(body, mesh) for body in operator.bodies)
        return OperatorPlan(assignment, operands, results, bodies)

    return Plan(
        mesh,
        tuple(Placement.replicated(graph.tensors[argument.tensor].num_dims) for argument in graph.inputs),
        tuple(
            Placement.replicated(0 if output == LITERAL else graph.tensors[output].num_dims) for output in graph.outputs
        ),
        tuple(map(planned, graph.operators)),
        notes=tuple(dict.fromkeys(_notes(graph, map(rule_of, graph.operators)))),
        graph=graph.fingerprint(),
    )


class _Assembler:
    def __init__(self, problem: Problem, chosen: Sequence[int]) -> None:
        self.problem, self.chosen = problem, chosen
        self.graph = problem.graph
        self.decisions: Decisions = problem.decisions
        self.tensor_placements: dict[int, Placement] = {}
        """The placement at which readers find each tensor, by origin."""
        self.produced: dict[int, Placement] = {}
        """The placement in which an operator produces each tensor."""
        self.relayed: dict[int, Placement] = {}
        """The placement at which heavy operators read it, if a relay decides that."""
        self.steps: dict[int, OperatorPlan] = {}

    def run(self) -> Plan:
        problem, graph = self.problem, self.graph
        for number, (choices, candidate) in enumerate(zip(problem.choices, self.chosen, strict=True)):
            relay = self.decisions.nodes[number].is_relay
            for tensor, where in choices.tensor_placements.items():
                # A tensor is decided by its own bundle; another decision that names it (its producer) says only how
                # it is produced.
                here = self.decisions.node_of[tensor] == number
                target = self.relayed if relay else self.tensor_placements if here else self.produced
                target[tensor] = where[candidate]
            for operator, step in zip(choices.operators, choices.steps[candidate], strict=True):
                bodies = tuple(replicated_plan(body, problem.mesh) for body in graph.operators[operator].bodies)
                self.steps[operator] = OperatorPlan(step.assignment, step.operands, step.results, bodies)
        operators = tuple(
            self._identity(operator) if is_identity(operator) else self.steps[number]
            for number, operator in enumerate(graph.operators)
        )
        inputs = tuple(self.tensor_placements[argument.tensor] for argument in graph.inputs)
        replaced = dict(graph.aliases)
        # An updated variable must be stored as the variable is, or the next step could not begin.
        outputs = tuple(
            inputs[replaced[position]] if position in replaced else self._place(tensor).complete()
            for position, tensor in enumerate(graph.outputs)
        )
        return Plan(
            problem.mesh,
            inputs,
            outputs,
            operators,
            self._reshardings(),
            self._of_graph()[0],
            problem.options.alltoall,
            self._of_graph()[1],
            problem.catalogue.model.links.has_reduce_scatter,
        )

    def _of_graph(self) -> tuple[tuple[str, ...], str]:
        """Notes and fingerprint of the graph, which are the same for all of its plans; cached."""
        graph, rules = self.graph, map(self.problem.rule, range(len(self.graph.operators)))
        return self.problem.cached(
            "notes and fingerprint", lambda: ((*dict.fromkeys(_notes(graph, rules)),), graph.fingerprint())
        )

    def _place(self, tensor: int) -> Placement:
        return Placement(()) if tensor == LITERAL else self.tensor_placements[self.decisions.origin[tensor]]

    def _identity(self, operator: Operator) -> OperatorPlan:
        """Results that are tensors of their own have the given placements, all others as their operands."""
        where = tuple(self._place(result) for result in operator.results)
        return OperatorPlan(unsharded(rule_of(operator)), where, where)

    def _reshardings(self) -> dict[int, Resharding]:
        """Tensors that several read somewhere else than they are made are brought there once; so are given ones."""
        num_readers: dict[int, int] = {}
        # By name of the tensor in the graph, not by origin: readers behind a mark read a tensor of another number.
        for tensors in (*(operator.operands for operator in self.graph.operators), self.graph.outputs):
            for tensor in tensors:
                num_readers[tensor] = num_readers.get(tensor, 0) + 1
        reshardings = {}
        # A tensor with one reader goes there directly: a resharding of its own would only add a stop on the way.
        for tensor, source in self.produced.items():
            where, is_fixed = self.tensor_placements[tensor], tensor in self.problem.options.fixed
            if source != where and (is_fixed or num_readers.get(tensor, 0) > 1):
                reshardings[tensor] = Resharding(where, "given" if is_fixed else "read there by several")
        reshardings.update((tensor, where) for tensor, where in self._on_the_way() if tensor not in reshardings)
        return reshardings

    def _on_the_way(self) -> Iterator[tuple[int, Resharding]]:
        """What is relayed to a place from where some bring it further; whoever reads it there brings it there in time."""
        for tensor, where in self.relayed.items():
            tensor_placements = self.tensor_placements[tensor]
            readers = [reader for reader in self.decisions.readers[tensor] if reader in self.decisions.heavy]
            required = {place for reader in readers for place in self._required_placements(reader, tensor)}
            # If all readers are served where the tensor already is or will be, no stop on the way is needed.
            if (
                where != tensor_placements
                and not tensor_placements.partial
                and not required <= {where, tensor_placements}
            ):
                yield self._read_by(readers, tensor), Resharding(where, "read there by several")

    def _read_by(self, readers: Sequence[int], tensor: int) -> int:
        """What readers of a tensor read: what identities make of it, if that is the same for all of them."""
        names = {
            operand
            for reader in readers
            for operand, origin in zip(
                self.graph.operators[reader].operands, self.decisions.operands(reader), strict=True
            )
            if origin == tensor
        }
        # Readers behind different marks have no common name; the origin is resharded then.
        return names.pop() if len(names) == 1 else tensor

    def _required_placements(self, reader: int, tensor: int) -> Iterator[Placement]:
        """Where an operator reads a tensor."""
        for operand, where in zip(self.decisions.operands(reader), self.steps[reader].operands, strict=True):
            if operand == tensor:
                yield where


def _notes(graph: OperatorGraph, rules: Iterable[Rule]) -> Iterator[str]:
    """Notes for the user: operators that cannot be sharded, and why."""
    for operator, rule in zip(graph.operators, rules, strict=True):
        if rule.opaque and not is_identity(operator):
            yield f"{rule.opaque} ({operator.path})" if operator.path else rule.opaque
