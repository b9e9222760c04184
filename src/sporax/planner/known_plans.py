"""Plans that everyone knows: the script's own, data parallelism, FSDP, tensor parallelism as Megatron-LM has it.

Problem: a search adds costs of pairs of decisions over a part of all shardings, and some searches are heuristics. What it finds
must not be slower than what there was without it.

Method: where the inputs of a step are decides a plan by propagation. For data parallelism and FSDP these are rules of one line.
For tensor parallelism the forward pass is walked once: a product whose activation is whole along the axes gets a weight that is
sharded by columns, and one whose contraction is sharded already a weight that is sharded by rows.

Reference: M. Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model parallelism",
arXiv:1909.08053.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, Operator, OperatorGraph, Role
from sporax.ir.operation import Shape
from sporax.ir.placement import Axes, Placement, num_parts
from sporax.planner.communication.moves import LinkCosts
from sporax.planner.cost.model import is_product
from sporax.planner.loops.inline import inline_loops
from sporax.planner.rules import Assignment, Rule, is_legal, placements, propagate, rule_for, unsharded
from sporax.planner.search.space.operator_rules import is_identity, natural_units

Inputs = dict[int, Placement]
"""Where inputs are, by number of the tensor."""


def known_inputs(graph: OperatorGraph, mesh: DeviceMatrix, links: LinkCosts) -> Iterator[tuple[str, Inputs]]:
    """Names of known plans, and where these have the inputs of a step; none of a step without parameters.

    Args:
        links: of the devices; tensor parallelism is tried within nodes and over all devices.
    """
    shapes = {entry.tensor: graph.tensors[entry.tensor].shape for entry in graph.inputs}
    data = {entry.tensor for entry in graph.inputs if entry.role is Role.DATA}
    weights = {entry.tensor for entry in graph.inputs if entry.role in (Role.PARAMETER, Role.STATE)}
    if not weights:
        return

    def by_batch(axes: Axes) -> Inputs:
        return {tensor: _sharded(shapes[tensor], 0, axes, mesh) for tensor in data}

    every = tuple(itertools.chain(*natural_units(mesh, links)))
    replicated = {tensor: Placement.replicated(len(shapes[tensor])) for tensor in weights}
    yield "data parallelism", by_batch(every) | replicated
    yield "FSDP", by_batch(every) | {tensor: _by_largest(shapes[tensor], every, mesh) for tensor in weights}
    for axes in dict.fromkeys((*natural_units(mesh, links)[-1:], every)):
        outer = tuple(axis for axis in every if axis not in axes)
        name = f"tensor parallelism over {num_parts(mesh, axes)} devices"
        yield name, by_batch(outer) | _TensorParallel(graph, mesh, axes).run()


def _sharded(shape: Shape, dim: int, axes: Axes, mesh: DeviceMatrix) -> Placement:
    """One dimension by as many of the first axes as divide it."""
    while axes and (not shape or shape[dim] % num_parts(mesh, axes)):
        axes = axes[:-1]
    return Placement(tuple(axes if place == dim else () for place in range(len(shape))))


def _by_largest(shape: Shape, axes: Axes, mesh: DeviceMatrix) -> Placement:
    """The dimension that can be divided most often, by as many of the axes as divide it."""
    options = [_sharded(shape, dim, axes, mesh) for dim in range(len(shape))] or [Placement(())]
    return max(options, key=lambda where: len(where.used))


class _TensorParallel:
    """Walks a forward pass, with the tensors that are sharded along the axes."""

    def __init__(self, graph: OperatorGraph, mesh: DeviceMatrix, axes: Axes) -> None:
        self.mesh, self.axes, self.operators = mesh, axes, inline_loops(graph).graph.operators
        self.makers = {tensor: operator for operator in self.operators for tensor in operator.results}
        self.inputs = {entry.tensor for entry in graph.inputs if entry.role is Role.PARAMETER}
        self.weights: dict[int, Placement] = {}
        self.where: dict[int, Placement] = {}

    def run(self) -> Inputs:
        """Where tensor parallelism has the weights."""
        for operator in self.operators:
            if not operator.backward and not operator.bodies:
                self._visit(operator)
        return self.weights

    def _visit(self, operator: Operator) -> None:
        """Shard one operator, and its weight where it has one."""
        if is_identity(operator):
            pairs = operator.sources.items()
            self.where.update({result: self.where[tensor] for result, tensor in pairs if tensor in self.where})
            return
        rule = rule_for(operator.operation)
        known = [self.where.get(tensor) for tensor in operator.operands]
        assignment = propagate(rule, self.mesh, known)
        if is_product(operator.operation):
            weight = next((place for place, tensor in enumerate(operator.operands) if self._weight(tensor)), -1)
            if weight >= 0 and not any(assignment):
                assignment = self._by_columns(rule, weight)
            if weight >= 0 and any(assignment):
                self._keep(operator.operands[weight], placements(rule, assignment)[0][weight])
        if any(assignment):
            results = placements(rule, assignment)[1]
            self.where.update(zip(operator.results, (where.complete() for where in results), strict=True))

    def _by_columns(self, rule: Rule, weight: int) -> Assignment:
        """The assignment that shards the last dimension of the weight that the result has, too."""
        in_results = {factor for dims in rule.results for dim in dims for factor in dim}
        for dim in reversed(rule.operands[weight]):
            for factor in dim:
                if factor in in_results:
                    sharded = tuple(self.axes if place == factor else () for place in range(len(rule.factors)))
                    if is_legal(rule, sharded, self.mesh):
                        return sharded
        return unsharded(rule)

    def _weight(self, tensor: int) -> int | None:
        """The parameter that a tensor is, also converted, turned or of one layer; None for none."""
        while tensor not in self.inputs:
            maker = self.makers.get(tensor)
            if maker is None or maker.bodies or len([entry for entry in maker.operands if entry != LITERAL]) != 1:
                return None
            tensor = maker.operands[0]
        return tensor

    def _keep(self, tensor: int, where: Placement) -> None:
        """Shard a parameter so that the tensor that is made of it has this placement; the first reader decides."""
        while tensor not in self.inputs:
            maker = self.makers[tensor]
            if not is_identity(maker):
                rule = rule_for(maker.operation)
                where = placements(rule, propagate(rule, self.mesh, (), [where]))[0][0]
            tensor = maker.operands[0]
        self.weights.setdefault(tensor, where)
