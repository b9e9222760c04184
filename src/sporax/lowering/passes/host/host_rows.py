"""Gradients of tables in host memory, in steps of several stages.

Problem. Devices that look up rows for parts of a batch have parts of the gradient of the whole table. Adding these up after the
last micro batch would bring arrays as large as the table to the devices.

Method. Ids and rows are brought together for every micro batch instead, by a mark before the host adds the rows to zeros; so
each device's host has the whole sum of a table that it has whole, and updates it where it is. Tables that a strategy shards
stay as they are: ids are whole on every device then. Steps of one stage do the same to a whole batch
(`lowering.passes.host.row_updates`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp

from sporax.ir.graph import Operator
from sporax.ir.marks import GradientMark, OperatorMark, Side, next_number
from sporax.ir.operation import TensorSpec
from sporax.lowering.ingest.describe import describe
from sporax.lowering.ingest.ingest import Equation
from sporax.lowering.marks.mark_primitive import apply_mark, mark_p
from sporax.lowering.passes.host.row_updates import shards
from sporax.lowering.pipeline.flat import MicroStep, Phase


def with_replicated_rows(micro: MicroStep, tables: Collection[str] | None = None) -> MicroStep:
    """The same step; ids and rows that the host adds to gradients of whole tables are whole on every device.

    Args:
        tables: names of the Parameters that may be such tables, where optimizer parallelism shards the others; None for all.
    """
    return _Marker(micro, tables).run()


@dataclass(slots=True)
class _Marker:
    micro: MicroStep
    tables: Collection[str] | None
    tensors: list[TensorSpec] = field(default_factory=list)

    def run(self) -> MicroStep:
        graph = self.micro.step.graph
        marked = {self.micro.step.graph.producers()[tensor] for tensor in self._additions()}
        if not marked:
            return self.micro
        self.tensors = list(graph.tensors)
        entries: list[tuple[Operator, Equation, Phase]] = []
        new: list[int] = []
        for number, entry in enumerate(zip(graph.operators, self.micro.step.equations, self.micro.phases, strict=True)):
            operator, equation, phase = entry
            if number in marked:
                full = self._full(operator)
                entries.append((full, Equation(mark_p, full.operation.params), phase))
                new += full.results
                operator = replace(operator, operands=(operator.operands[0], *full.results))
            entries.append((operator, equation, phase))
        operators, equations, phases = zip(*entries, strict=True)
        changed = replace(graph, tensors=tuple(self.tensors), operators=operators)
        step = replace(self.micro.step, graph=changed, equations=equations)
        return replace(self.micro, step=step, phases=phases, repeated=self.micro.repeated | set(new))

    def _additions(self) -> list[int]:
        """The gradients of whole tables that the host makes of ids and rows, one for each term of a sum."""
        graph, equations = self.micro.step.graph, self.micro.step.equations
        makers = graph.producers()
        names = {
            tensor: name
            for operator in graph.operators
            if isinstance(operator.mark, GradientMark)
            for tensor, name in zip(operator.operands, operator.mark.parameters, strict=True)
        }
        sharded = self._sharded_tables()
        found = []
        for micro_sum in self.micro.sums:
            name = names.get(micro_sum.total)
            if name is None or name in sharded or (self.tables is not None and name not in self.tables):
                continue
            for term in micro_sum.terms:
                tensor = term
                while tensor in makers and (sources := graph.operators[makers[tensor]].sources):
                    tensor = sources[tensor]
                number = makers.get(tensor)
                if number is not None and equations[number].on_host and _adds_rows(graph.operators[number]):
                    found.append(tensor)
        return found

    def _sharded_tables(self) -> set[str]:
        """The names of Parameters that a strategy shards."""
        names = {entry.tensor: entry.name for entry in self.micro.step.graph.inputs}
        sharded: set[str] = set()
        for operator in self.micro.step.graph.operators:
            for place, (result, operand) in enumerate(operator.sources.items()):
                if operand in names:
                    names[result] = names[operand]
                    if shards(operator.mark, place):
                        sharded.add(names[operand])
        return sharded

    def _full(self, addition: Operator) -> Operator:
        """A mark of ids and rows that requests all of them on every device."""
        operands = addition.operands[1:]
        specs = [self.tensors[tensor] for tensor in operands]
        mark = OperatorMark(
            "RowUpdate", next_number(), Side.IN, in_strategy=tuple((1,) * spec.num_dims for spec in specs)
        )
        shapes = [jax.ShapeDtypeStruct(spec.shape, jnp.dtype(spec.dtype)) for spec in specs]
        (eqn,) = jax.make_jaxpr(lambda *arrays: apply_mark(arrays, mark))(*shapes).jaxpr.eqns
        first = len(self.tensors)
        self.tensors += specs
        results = tuple(range(first, first + len(specs)))
        return replace(addition, operation=describe(eqn), operands=operands, results=results)


def _adds_rows(operator: Operator) -> bool:
    """Whether it adds rows to a table, from two tensors that are no constants."""
    return (
        operator.name == "scatter-add"
        and operator.operation.operands[0].num_dims == 2
        and min(operator.operands[1:]) >= 0
    )
