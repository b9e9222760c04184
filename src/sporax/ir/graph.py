"""A whole step as a graph of operators, without JAX.

The lowering makes it from the jaxpr of a step: calls are inlined, control flow keeps its bodies as graphs. Tensors are
numbers; `OperatorGraph.tensors` describes each. Operators are in an order in which they can run.

The boundaries of the facade's operators are operators too: a *mark* passes its tensors through and carries a value that
says where they are (`sporax.ir.marks`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from enum import Enum

from sporax.base.lazy_members import dataclass
from sporax.ir.marks import LayoutMark, Mark
from sporax.ir.operation import Operation, TensorSpec

LITERAL = -1
"""Stands for a scalar constant among the operands of an operator; its value is in the operand's `TensorSpec`."""

MARK = "mark"
"""Name of the operation that passes its operands through and carries a mark as parameter ``mark``."""


IDENTITIES = frozenset({MARK, "optimization_barrier"})
"""Operations that hand on every tensor by itself. Their plans have no assignment, and results have the placements of operands."""

MICRO_LOOP = "micro_batches"
"""Name scope of the loop over micro batches: a pipeline is made of its forward and backward scans."""

STAGE, SEGMENT = "stage", "segment"
"""Name scopes ``stage:1`` and ``segment:0`` say where in a pipeline the operators inside them belong."""


class Role(Enum):
    """What an input of a step is."""

    PARAMETER = "parameter"
    """A trainable or frozen weight."""
    STATE = "state"
    """Any other variable: moments of an optimizer, counters, running statistics."""
    DATA = "data"
    """An argument of the call."""
    CONSTANT = "constant"
    """A value that the traced code brought along, or an input of a loop's body."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a graph.

    Attributes:
        tensor: its number.
        role: what it is.
        name: what people call it: the Parameter's name, ``"input 0"``.
    """

    tensor: int
    role: Role = Role.CONSTANT
    name: str = ""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a graph.

    Attributes:
        operation: the primitive, with the whole shapes.
        operands, results: numbers of the tensors; `LITERAL` for a scalar constant.
        path: where in the user's program it is, ``"net.dense1.matmul"``.
        backward: whether it belongs to a derivative.
        bodies: of control flow, in the order of the primitive's own parameters.
        times: how often it runs per step; more than once where a loop has been written out (`sporax.planner.loops.inline`).
        stage, segment: of the pipeline, where the user's Cells say so.
    """

    operation: Operation
    operands: tuple[int, ...]
    results: tuple[int, ...]
    path: str = ""
    backward: bool = False
    bodies: tuple[OperatorGraph, ...] = ()
    times: int = 1
    stage: int | None = None
    segment: int | None = None

    @property
    def name(self) -> str:
        """Name of the primitive."""
        return self.operation.name

    @property
    def sources(self) -> dict[int, int]:
        """The operand that each result is, where every tensor is handed on by itself (`IDENTITIES`); else nothing."""
        return dict(zip(self.results, self.operands, strict=True)) if self.name in IDENTITIES else {}

    @property
    def mark(self) -> Mark | None:
        """What it says, if it is a mark."""
        return self.operation.params["mark"] if self.name == MARK else None

    @property
    def constraint(self) -> str:
        """What the user has called, if it is a sharding that the user's program says."""
        mark = self.mark
        return mark.requester if isinstance(mark, LayoutMark) and not mark.is_stored else ""

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"{list(self.results)} = {self.name}{list(self.operands)}{where}"


@dataclass(frozen=True, slots=True, repr=False)
class OperatorGraph:
    """A step, or the body of a loop or branch.

    Attributes:
        tensors: what each tensor is, by number.
        operators: in an order in which they can run.
        inputs: in the order of the program's arguments.
        outputs: numbers of the results; `LITERAL` for a scalar constant.
        aliases: for results that take an argument's place at the next step (updated variables), the positions
            ``(output, input)``; both must have the same placement.
    """

    tensors: tuple[TensorSpec, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[int, ...]
    aliases: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        count = sum(1 for _ in self.walk())
        return f"OperatorGraph({len(self.inputs)} inputs, {count} operators, {len(self.outputs)} outputs)"

    __repr__ = __str__

    def walk(self) -> Iterator[Operator]:
        """All operators, those of bodies included."""
        for operator in self.operators:
            yield operator
            for body in operator.bodies:
                yield from body.walk()

    def producers(self) -> dict[int, int]:
        """For every tensor that an operator makes, the position of that operator."""
        return {tensor: number for number, operator in enumerate(self.operators) for tensor in operator.results}

    def consumers(self) -> dict[int, list[int]]:
        """For every tensor the positions of the operators that read it, in order, once each."""
        readers: dict[int, list[int]] = {}
        for number, operator in enumerate(self.operators):
            # An operator that reads a tensor twice is one consumer.
            for tensor in dict.fromkeys(operator.operands):
                if tensor != LITERAL:
                    readers.setdefault(tensor, []).append(number)
        return readers

    def parameters_with_storage(self, trained: Collection[str]) -> dict[int, str]:
        """The parameters, by tensor, that may be stored otherwise than operators use them: none in a step without gradients.

        Frozen ones that the step only reads are among them, as in MindSpore 2.10.

        Args:
            trained: names of those with gradients in this step.
        """
        written = {self.inputs[argument].tensor for _, argument in self.aliases}
        found = {entry.tensor: entry.name for entry in self.inputs if trained and entry.role is Role.PARAMETER}
        return {tensor: name for tensor, name in found.items() if name in trained or tensor not in written}

    def fingerprint(self) -> str:
        """A short text that is equal for equal structures: names, shapes and wiring. Plans remember it."""
        digest = hashlib.sha256()
        for operator in self.walk():
            digest.update(repr((operator.name, operator.operands, operator.results)).encode())
        for spec in self.tensors:
            digest.update(repr((spec.shape, spec.dtype)).encode())
        return digest.hexdigest()[:16]
