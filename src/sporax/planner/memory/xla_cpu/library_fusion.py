"""Constants that XLA for CPUs writes out at full size, since kernels of its library read them.

Problem. A product or a reduction is handed to a library together with the operations around it. A scale, a mask or another
value that is spread to the size of a tensor is read by such kernels of many layers. Equal ones are one instruction, and an
instruction that several kernels read does not become part of any: it is written before the first and is there until the
last of them. Elsewhere spreading costs no memory.

Method. The growth of library kernels is repeated, without writing anything: from every product and reduction, the last one
first, upwards into operands of which all readers are inside, and downwards into the only reader. What is spread and read by
a kernel and by something outside of it becomes an array of its own.

Reference: XLA, `xla/backends/cpu/transforms/library_rewriter.cc` and `ynn_matcher.h`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from sporax.ir.graph import Operator
from sporax.ir.newer_primitives import with_newer
from sporax.planner.memory.backend import Instruction, Kind
from sporax.planner.memory.xla_cpu.instructions import Instructions, is_rearranged

_UNARY = with_newer(
    "abs ceil cos erf exp expm1 floor log log1p logistic neg rsqrt sign sin sqrt square integer_pow tan tanh".split()
)
_BINARY = frozenset("add add_any div max min mul pow sub".split())
"""Elementwise operations that the library computes."""
_FACTORS = frozenset(["mul", "div"])
_REDUCTIONS = frozenset(["reduce_sum", "reduce_max", "reduce_min"])
_FLOATS = frozenset(["float32", "float64", "bfloat16"])
_NEUTRAL = {"add": 0.0, "add_any": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}
"""Constants with which an operation is removed."""
_LEAST_ELEMENTS = 4096
"""Smaller operations are not handed to the library."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A reader of something that is spread: an instruction, and the operand to replace; None for a scalar of the program."""

    reader: int
    spread: int | None


def write_shared_constants(instructions: Instructions, results: Sequence[int]) -> None:
    """Add the instructions that write such constants, and let their readers read them.

    Args:
        instructions: of a program; changed.
        results: arrays that are handed out.
    """
    growth = _Growth(instructions, frozenset(results))
    kernel_of = growth.run()
    if not kernel_of:
        return
    added: list[Instruction] = []
    for uses in growth.spread_values().values():
        kernels = {kernel_of.get(use.reader) for use in uses}
        if kernels == {None} or (len(kernels) == 1 and None not in kernels):
            continue
        shared = instructions.like(growth.all[uses[0].reader].writes[0])
        first = growth.all[uses[0].reader]
        source = () if uses[0].spread is None else growth.all[uses[0].spread].reads
        after = frozenset[int]() if uses[0].spread is None else growth.all[uses[0].spread].after
        added.append(Instruction(Kind.KERNEL, source, (shared,), first.event, after=after))
        for use in uses:
            if use.reader in kernel_of:
                reader = growth.all[use.reader]
                old = () if use.spread is None else growth.all[use.spread].writes
                reads = tuple(array for array in reader.reads if array not in old)
                growth.all[use.reader] = replace(reader, reads=(*reads, shared))
    instructions.instructions[:0] = added


class _Growth:
    """Which instructions become part of which kernel of the library."""

    def __init__(self, instructions: Instructions, results: frozenset[int]) -> None:
        self.instructions = instructions
        self.all = instructions.instructions
        self.maker = {array: number for number, entry in enumerate(self.all) for array in entry.writes}
        needed = self._needed(results)
        self.readers: dict[int, list[int]] = {}
        for number in sorted(needed):
            for array in dict.fromkeys(self.all[number].reads):
                self.readers.setdefault(array, []).append(number)
        self.needed = needed
        self.closed = results | instructions.barred
        """Arrays that something else reads, too."""
        self.kernel_of: dict[int, int] = {}

    def _needed(self, results: frozenset[int]) -> set[int]:
        needed: set[int] = set()
        open_ = [self.maker[array] for array in results | self.instructions.barred if array in self.maker]
        while open_:
            number = open_.pop()
            if number not in needed:
                needed.add(number)
                open_ += [self.maker[array] for array in self.all[number].reads if array in self.maker]
        return needed

    def _operator(self, number: int) -> Operator | None:
        return self.instructions.timeline.events[self.all[number].event].operator

    def run(self) -> dict[int, int]:
        """For every instruction in a kernel of the library the product or reduction with which that began."""
        for number in sorted(self.needed, reverse=True):
            if number not in self.kernel_of and self._begins(number):
                self._grow(number)
        return self.kernel_of

    def _begins(self, number: int) -> bool:
        operator, kind = self._operator(number), self.all[number].kind
        if operator is None or not _is_float(operator):
            return False
        product = kind is Kind.KERNEL and operator.name == "dot_general" and _is_canonical(operator)
        return product or (kind is Kind.REDUCTION and operator.name in _REDUCTIONS and self._is_large(number))

    def _grow(self, start: int) -> None:
        self.kernel_of[start] = start
        grown = True
        inside = [start]
        while grown:
            grown = False
            frontier = deque(inside)
            while frontier:
                number = frontier.popleft()
                for neighbor in self._neighbors(number, start):
                    self.kernel_of[neighbor] = start
                    inside.append(neighbor)
                    frontier.append(neighbor)
                    grown = True

    def _neighbors(self, number: int, start: int) -> list[int]:
        """What may be taken in next to an instruction that is inside."""
        neighbors = []
        for array in self.all[number].reads:
            maker = self.maker.get(array)
            if maker is not None and maker not in self.kernel_of and self._all_inside(maker, start):
                neighbors.append(maker)
        readers = [reader for array in self.all[number].writes for reader in self.readers.get(array, ())]
        if len(readers) == 1 and readers[0] not in self.kernel_of and self.closed.isdisjoint(self.all[number].writes):
            neighbors.append(readers[0])
        return [neighbor for neighbor in dict.fromkeys(neighbors) if self._is_taken_in(neighbor)]

    def _all_inside(self, maker: int, start: int) -> bool:
        return self.closed.isdisjoint(self.all[maker].writes) and all(
            self.kernel_of.get(reader) == start
            for array in self.all[maker].writes
            for reader in self.readers.get(array, ())
        )

    def _is_taken_in(self, number: int) -> bool:
        instruction, operator = self.all[number], self._operator(number)
        if instruction.view:
            return True
        if operator is None or not _is_float(operator):
            return False
        if instruction.spreads or self._begins(number):
            return True
        return instruction.elementwise and operator.name in _UNARY | _BINARY and self._is_large(number)

    def _is_large(self, number: int) -> bool:
        arrays = (*self.all[number].reads, *self.all[number].writes)
        return any(self.instructions.num_elements(array) >= _LEAST_ELEMENTS for array in arrays)

    def spread_values(self) -> dict[Hashable, list[_Use]]:
        """The readers of values that are spread; equal values share a key."""
        uses: dict[Hashable, list[_Use]] = {}
        for number in sorted(self.needed):
            instruction, operator = self.all[number], self._operator(number)
            if operator is None or instruction.kind is not Kind.LOOP:
                continue
            key: Hashable
            if instruction.spreads and instruction.reads:
                key = (instruction.reads, _shape(operator), str(operator.operation.params.get("broadcast_dimensions")))
                # One that is handed out has no reader, and then there is nothing to share.
                for reader in (reader for array in instruction.writes for reader in self.readers.get(array, ())):
                    uses.setdefault(key, []).append(_Use(reader, number))
            elif instruction.elementwise and math.prod(_shape(operator)) > 1 and not self._moves_on(number, operator):
                for constant in self._constants(number, operator):
                    key = (constant, _shape(operator), operator.operation.results[0].dtype)
                    uses.setdefault(key, []).append(_Use(number, None))
        return uses

    def _moves_on(self, number: int, operator: Operator) -> bool:
        """Whether a factor is multiplied into smaller tensors, with which all readers multiply the product."""
        readers = [reader for array in self.all[number].writes for reader in self.readers.get(array, ())]
        return operator.name in _FACTORS and all(self._multiplies_with_smaller(reader) for reader in readers)

    def _multiplies_with_smaller(self, number: int) -> bool:
        operator, instruction = self._operator(number), self.all[number]
        size = max(self.instructions.num_elements(array) for array in instruction.writes)
        smaller = any(
            self.instructions.num_elements(array) < size
            or (array in self.maker and self.all[self.maker[array]].spreads)
            for array in instruction.reads
        )
        return operator is not None and operator.name in _FACTORS and smaller

    def _constants(self, number: int, operator: Operator) -> list[Hashable]:
        """The scalars that an elementwise operation of the library reads, equal ones by the same name."""
        if operator.name not in _BINARY:
            return []
        scalars: list[Hashable] = [
            self._scalar(array) for array in self.all[number].reads if self.instructions.num_elements(array) == 1
        ]
        for place, spec in enumerate(operator.operation.operands):
            constant = spec.constant
            if constant is not None and abs(constant) != float("inf") and constant != _NEUTRAL.get(operator.name):
                scalars.append(1 / constant if operator.name == "div" and place and constant else constant)
        return scalars

    def _scalar(self, array: int) -> Hashable:
        """What names a scalar: what it was converted from, if that is a constant of the program."""
        operator = self._operator(self.maker[array]) if array in self.maker else None
        constants = tuple(spec.constant for spec in operator.operation.operands) if operator is not None else ()
        if operator is None or not constants or None in constants:
            return ("array", array)
        return (operator.name, constants)


def _is_canonical(operator: Operator) -> bool:
    """Whether a product of matrices reads rows of its first operand, as they are or transposed before."""
    contracted, batch = operator.operation.params["dimension_numbers"]
    left, right = (spec.shape for spec in operator.operation.operands)
    free = [
        set(range(len(shape))).difference(inner, outer)
        for shape, inner, outer in zip((left, right), contracted, batch, strict=True)
    ]
    rows, columns = (math.prod(shape[dim] for dim in dims) for shape, dims in zip((left, right), free, strict=True))
    in_rows = not free[0] or max(free[0]) < min(contracted[0], default=len(left))
    return min(rows, columns) > 1 and (in_rows or is_rearranged(operator, 0, left))


def _shape(operator: Operator) -> tuple[int, ...]:
    return operator.operation.results[0].shape


def _is_float(operator: Operator) -> bool:
    specs = (*operator.operation.operands, *operator.operation.results)
    return all(spec.dtype in _FLOATS for spec in specs)
