"""Weights that are gathered a second time for the backward pass: level 3 of optimizer parallelism.

Problem: operators of the backward pass read a weight as those of the forward pass do, gathered and perhaps cast or
transposed. So it would stay gathered from its first use to its last.

Method: the graph of a step is changed before planning. The first operator of the backward pass that reads a weight gets
a copy of it, made from the stored slice (a `WeightMark`), and casts and transpositions on its way are repeated.

A compiler would find that the copy equals the value that it has, and XLA removes `optimization_barrier` too early on
CPUs to prevent that. So the copy is made to depend on a cotangent (`late_copy`), which also prevents the compiler from
making it earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp

from sporax.ir.graph import MARK, Operator
from sporax.ir.marks import GradientMark, WeightMark
from sporax.ir.operation import Operation, TensorSpec
from sporax.lowering.ingest.ingest import Equation, Ingested
from sporax.lowering.marks.mark_primitive import mark_p

_LIGHT = frozenset({"convert_element_type", "transpose", "reshape", "squeeze", "copy"})
"""What is done again rather than kept. All have one operand."""

WeightPath = tuple[int, tuple[int, ...]]
"""How a tensor comes from a parameter: the parameter's tensor, and the positions of the operators in between."""


def late_copy(weight: jax.Array, cotangent: jax.Array) -> jax.Array:
    """The same array, which cannot be had before the cotangent: what is chosen never is NaN and 0 at the same time."""
    # Any element will do: waiting for one waits for the array.
    first = cotangent.reshape(-1)[0]
    return jnp.where(jnp.isnan(first) & (first == 0), jnp.zeros_like(weight), weight)


def regather_weights(step: Ingested) -> Ingested:
    """The same step; its backward pass reads copies of the weights."""
    return _Rewriter(step).run()


@dataclass(slots=True)
class _Rewriter:
    step: Ingested
    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)
    paths: dict[int, WeightPath] = field(default_factory=dict)
    copies: dict[WeightPath, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    cotangents: dict[int, None] = field(default_factory=dict)

    def run(self) -> Ingested:
        graph = self.step.graph
        self.tensors = list(graph.tensors)
        trained, last = self._trained_parameters()
        self.names = graph.parameters_with_storage(trained)
        self.paths = {tensor: (tensor, ()) for tensor in self.names}
        for number, (operator, equation) in enumerate(zip(graph.operators, self.step.equations, strict=True)):
            # Behind the last gradient is the update, which reads stored slices.
            if operator.backward and number < last:
                operator = replace(operator, operands=self._with_copies(operator))
                self.cotangents.update(
                    dict.fromkeys(result for result in operator.results if self._may_be_waited_for(result))
                )
            else:
                self._record_paths(number, operator)
            # Bodies of loops hold both passes, too.
            if operator.bodies:
                bodies = tuple(map(regather_weights, equation.bodies))
                operator = replace(operator, bodies=tuple(body.graph for body in bodies))
                equation = replace(equation, bodies=bodies)
            self._add(operator, equation)
        changed = replace(graph, tensors=tuple(self.tensors), operators=tuple(self.operators))
        return replace(self.step, graph=changed, equations=tuple(self.equations))

    def _trained_parameters(self) -> tuple[set[str], int]:
        """Names of the parameters with gradients, and where the last gradients are finished."""
        names: set[str] = set()
        last = 0
        for number, operator in enumerate(self.step.graph.operators):
            mark = operator.mark
            if isinstance(mark, GradientMark):
                names.update(mark.parameters)
                last = number
        return names, last

    def _record_paths(self, number: int, operator: Operator) -> None:
        """Note which results of an operator of the forward pass come from a weight without work worth mentioning."""
        self.paths |= {after: self.paths[before] for after, before in operator.sources.items() if before in self.paths}
        if operator.name in _LIGHT and operator.operands[0] in self.paths:
            root, through = self.paths[operator.operands[0]]
            self.paths[operator.results[0]] = (root, (*through, number))

    def _with_copies(self, operator: Operator) -> tuple[int, ...]:
        """The operands of an operator of the backward pass, weights among them replaced by their copies."""
        # Before the first cotangent there is nothing that a copy could wait for.
        if not self.cotangents:
            return operator.operands
        own = [tensor for tensor in operator.operands if tensor in self.cotangents]
        # A cotangent that the operator reads itself is there just in time.
        late = own[0] if own else next(reversed(self.cotangents))
        return tuple(
            self._copy(self.paths[operand], late) if operand in self.paths else operand for operand in operator.operands
        )

    def _copy(self, weight_path: WeightPath, late: int) -> int:
        # One copy for all readers in the backward pass.
        if weight_path in self.copies:
            return self.copies[weight_path]
        root, through = weight_path
        if not through:
            self.copies[weight_path] = self._copy_of_parameter(root, late)
        else:
            before = self._copy((root, through[:-1]), late)
            original = self.step.graph.operators[through[-1]]
            results = (self._tensor(self.tensors[original.results[0]]),)
            again = replace(original, operands=(before,), results=results, backward=True)
            self._add(again, self.step.equations[through[-1]])
            self.copies[weight_path] = results[0]
        return self.copies[weight_path]

    def _copy_of_parameter(self, root: int, late: int) -> int:
        specs = (self.tensors[root], self.tensors[late])
        mark = WeightMark(self.names[root])
        results = tuple(map(self._tensor, specs))
        operation = Operation(MARK, specs, specs, {"mark": mark})
        self._add(Operator(operation, (root, late), results, "", True), Equation(mark_p, {"mark": mark}))
        return results[0]

    def _may_be_waited_for(self, tensor: int) -> bool:
        """Whether `late_copy` can look at an element of it: only floats can be NaN."""
        spec = self.tensors[tensor]
        return spec.dtype in ("float16", "bfloat16", "float32", "float64") and spec.num_bytes > 0

    def _tensor(self, spec: TensorSpec) -> int:
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def _add(self, operator: Operator, equation: Equation) -> None:
        self.operators.append(operator)
        self.equations.append(equation)
