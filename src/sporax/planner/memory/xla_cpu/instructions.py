"""The instructions and arrays of a compiled program before fusion, as operators and transfers of a step become them.

Problem: peak memory depends on arrays that the graph does not show: transposed operands, words of random bits, buffers
of collectives.

Method: an instruction reads arrays and writes arrays. Most operators are one instruction. The others follow XLA for
CPUs, as seen in its buffer assignment:

* Matrix products and convolutions read and write canonical layouts; operands in another order are transposed first.
  Products of plain matrices also accept transposed operands.
* The gradient of a pooling makes the coordinates of all elements, selects those of the extremes, and adds at these
  positions.
* Random bits are two words per element, which stay live until the bits are last read; four while they are made.
* Products and convolutions of half precision are those of copies in float32. So is all else in bfloat16, but loops over elements
  convert as they go; rounding to bfloat16 is costly. Newer versions have products of matrices in bfloat16 that they read in the
  order in which they are, the inner dimension of the left one last (`Instructions.native`).
* What a loop computes of what no round changes is computed before the loop, changes of shape alone left out.
* Collectives write one slice after another. If the gathered dimension is not the first, readers that need the usual
  order transpose the result; reduce-scatters transpose their operand.

On GPUs and TPUs, products and convolutions may accept other layouts; then this model counts too many transposed
operands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from sporax.ir.graph import LITERAL, Operator
from sporax.ir.island import Island
from sporax.ir.placement import num_parts
from sporax.planner.communication.moves import COLLECTIVES, NATIVE_REDUCTIONS, Move, MoveKind, named_axes
from sporax.planner.memory.backend import BARRIER, COSTLY, VIEWS, Instruction, Kind
from sporax.planner.memory.step_events import Event, Timeline, Value
from sporax.planner.rules import entry_for
from sporax.planner.rules.loop_rules import ARGUMENT, CARRY, JOIN, RULES, SLICE, STACK

MAYBE_VIEWS = frozenset(
    "broadcast_in_dim broadcast_to slice dynamic_slice copy reduce_sum reduce_max reduce_min reduce_prod".split()
)
"""Views where they leave the number of bytes as it is."""
LOOPS = frozenset(["1 elementwise", "2 dimensions", "9 creation"])
"""Families of rules (`planner.rules.rule_table`) whose operators become loops over elements."""
SIMPLE = frozenset(["mul", "integer_pow", "square", "abs", "max"])
"""Operators that reductions absorb: single instructions, which not every newer relative of theirs is."""
_BFLOAT16 = frozenset(["bfloat16"])
_HALF = _BFLOAT16 | {"float16"}
_WORD = 4
"""Bytes of one word of random bits."""
_EXACT = frozenset(["convert_element_type", "select_n", "copy", "reduce_precision"])
"""Operators over elements that round nothing, or what compilers round as it is."""
_MANY = 8
"""Operands up to which XLA fuses a concatenation into its readers."""


@dataclass(frozen=True, slots=True)
class Array:
    """What an instruction writes, or an argument.

    Attributes:
        num_bytes: its size.
        dtype: of its elements.
        itemsize: bytes of an element; 0 in host memory.
    """

    num_bytes: int
    dtype: str = "int32"
    itemsize: int = _WORD


class Instructions:
    """All instructions of a timeline, in order.

    Attributes:
        timeline: what happens.
        native: dtypes of half precision that products read as they are.
        arrays: by number.
        instructions: in an order in which they can run.
        number: of the array that a value is; views share one.
        rigid: arrays that collectives leave in a shape that nothing is written over.
        barred: arrays that pass barriers, through which nothing is fused.
        ends: for what leaves a loop all that its rounds end with.
    """

    def __init__(self, timeline: Timeline, native: Set[str] = frozenset()) -> None:
        self.timeline = timeline
        self.native = native
        self.arrays: list[Array] = []
        self.instructions: list[Instruction] = []
        self.number: dict[Value, int] = {}
        self.rigid: set[int] = set()
        self.barred: set[int] = set()
        self.ends: dict[int, list[int]] = {}
        self._waits: dict[Value, frozenset[int]] = {}
        """For values that passed barriers the arrays that did so with them."""
        self._after: frozenset[int] = frozenset()
        self._event = -1
        self._looped: set[int] = set()
        """Arrays made by loops."""
        self._chosen: set[int] = set()
        """Arrays made by loops from conditions, as zeros and ones."""
        self._plain: set[int] = set()
        """Arrays made by products of plain matrices."""
        self._seen: dict[tuple[object, ...], int] = {}
        self._viewed: dict[int, int] = {}
        """Arrays in other shapes, and what they are views of."""
        self._sliced: dict[int, int] = {}
        """Slices, and what they are of."""
        self._turned: dict[tuple[int, tuple[object, ...]], int] = {}
        """Transposed matrices in the loops in which they are, and what they are made of."""
        self._squares: dict[int, int] = {}
        """Arrays, and their squares, of which other powers are made."""
        self._widened: dict[int, int] = {}
        """Arrays in half precision, and their copies in float32."""
        self._rounded: dict[int, tuple[int, bool]] = {}
        """Arrays in bfloat16 that arithmetic made and nothing has read yet: who makes them, and whether that alone is costly."""
        self._exact: dict[int, int] = {}
        """Arrays in bfloat16, and what they were before they were rounded."""
        self._rounds: dict[tuple[object, ...], list[int]] = {}
        """By loops what their rounds end with."""
        self._around: tuple[object, ...] = ()
        """The loops that the event is in."""
        self._changes: dict[int, tuple[object, ...]] = {}
        """For every array that is made the loops whose rounds change it."""
        self._shapes: dict[int, int] = {}
        """Arrays that no round changes and that are made in it all the same, and the instructions that make them."""
        ends = (event.reads for event in timeline.events if event.operator is not None and event.operator.name == CARRY)
        self._carried = {reads[0] for reads in ends if len({*reads}) > 1}
        for value in timeline.inputs:
            self._array_of(value)
        # The last event only hands out results; no instruction belongs to it.
        for self._event, event in enumerate(timeline.events[:-1]):
            self._around = event.loops
            self._after = frozenset().union(*(self._waits.get(value, ()) for value in event.reads))
            if event.operator is None:
                self._transfer(event)
            else:
                if event.position in timeline.order:
                    delay = timeline.order[event.position]
                    self._after |= {self._array_of((delay.term, delay.placement))}
                self._operator(event, event.operator)

    # ------------------------------------------------------------------------------------------------------- arrays

    def _array_of(self, value: Value) -> int:
        if value not in self.number:
            spec = self.timeline.tensors[value[0]]
            self.number[value] = self._new(Array(self._bytes(value), spec.dtype, spec.itemsize))
        return self.number[value]

    def _wide(self, array: int, halves: Set[str] = _HALF) -> int:
        """An array, or its copy in float32 where its dtype is one of these."""
        if self.arrays[array].dtype not in halves:
            return array
        if array not in self._widened:
            self._widened[array] = wide = self._widened_like(array)
            self._add(Kind.LOOP, [array], [wide], elementwise=True)
        return self._widened[array]

    def _converted(self, array: int) -> int:
        """What the program itself converts to float32: of arithmetic in bfloat16 what it was before it was rounded."""
        if array in self._rounded:
            number, costly = self._rounded.pop(array)
            self._exact[array] = exact = self._widened_like(array)
            self.instructions[number] = replace(self.instructions[number], writes=(exact,), costly=costly)
            self._changes[exact] = self._changes[array]
            self._looped.add(exact)
            self._add(Kind.LOOP, [exact], [array], elementwise=True)
        return self._exact[array] if array in self._exact else self._wide(array)

    def _widened_like(self, array: int) -> int:
        return self._new(Array(2 * self.arrays[array].num_bytes, "float32"))

    def _compute(
        self, kind: Kind, reads: Sequence[int], writes: Sequence[int], halves: Set[str] = _BFLOAT16, **marks: Any
    ) -> list[int]:
        """An instruction that computes these dtypes in float32; what it writes there."""
        reads = [self._wide(array, halves) for array in reads]
        wide = [self._widened_like(array) if self.arrays[array].dtype in halves else array for array in writes]
        self._add(kind, reads, wide, **marks)
        for array, result in zip(wide, writes, strict=True):
            if array != result:
                self._add(Kind.LOOP, [array], [result], elementwise=True)
        return wide

    def _new(self, array: Array) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1

    def like(self, array: int, num_bytes: int | None = None) -> int:
        """A new array of the same dtype, and of the same size unless a size is said."""
        one = self.arrays[array]
        return self._new(one if num_bytes is None else replace(one, num_bytes=num_bytes))

    def _shape(self, value: Value) -> tuple[int, ...]:
        """Of a device's slice."""
        tensor, placement = value
        shape = self.timeline.tensors[tensor].shape
        # Without a plan tensors are whole.
        if placement is None or self.timeline.mesh is None:
            return shape
        parts = (num_parts(self.timeline.mesh, axes) for axes in placement.dims)
        return tuple(size // count for size, count in zip(shape, parts, strict=True))

    def _bytes(self, value: Value) -> int:
        return math.prod(self._shape(value)) * self.timeline.tensors[value[0]].itemsize

    def _add(self, kind: Kind, reads: Sequence[int], writes: Sequence[int], moves: bool = False, **marks: Any) -> None:
        # Rounding to bfloat16 has to look for what is no number.
        rounds = kind is Kind.LOOP and "view" not in marks and self.arrays[writes[0]].dtype in _BFLOAT16
        marks["costly"] = rounds or marks.get("costly", False)
        for array in reads:
            self._rounded.pop(array, None)
        needed = (self._changes.get(array, ()) for array in (*reads, *self._after))
        changes = max(needed, key=len, default=())
        self._changes.update(dict.fromkeys(writes, changes))
        if "loops" not in marks:
            # Changes of shape alone stay where they are until what reads them moves; slices from a computed start move.
            stays = kind is Kind.LOOP and not rounds and not marks.get("elementwise") and not moves
            marks["loops"] = self._around if stays or not reads else changes
            if marks["loops"] != changes:
                self._shapes.update(dict.fromkeys(writes, len(self.instructions)))
        self.instructions.append(
            Instruction(kind, tuple(reads), tuple(writes), self._event, after=self._after, **marks)
        )
        self._hoist(reads, marks["loops"])
        if kind is Kind.LOOP:
            self._looped.update(writes)

    def _hoist(self, arrays: Iterable[int], loops: tuple[object, ...]) -> None:
        """Make arrays that no round changes before the loops inside of these."""
        for number in {self._shapes[array] for array in arrays if array in self._shapes}:
            instruction = self.instructions[number]
            if len(instruction.loops) > len(loops):
                self.instructions[number] = replace(instruction, loops=loops)
                self._hoist(instruction.reads, loops)

    def _in_shape(self, array: int, shape: tuple[int, ...]) -> int:
        """An array in another shape. A loop that makes it can make it in that shape, for those who want it so."""
        # A view of a view is a view of the array itself.
        array = self._viewed.get(array, array)
        if array not in self._looped:
            return array
        key = array, shape, self._around
        if key not in self._seen:
            self._seen[key] = view = self.like(array)
            self._viewed[view] = array
            self._add(Kind.LOOP, [array], [view], view=True)
        return self._seen[key]

    def _traded(self, array: int, result: int, count: int) -> None:
        """One slice for each device, and what the others have sent, side by side; of more than so many a few stand for all."""
        size = self.arrays[array].num_bytes // min(count, _MANY)
        slices = [self.like(array, size) for _ in range(min(count, _MANY))]
        for entry in slices:
            self._add(Kind.LOOP, [array], [entry])
        received = [self.like(entry) for entry in slices]
        self._compute(Kind.KERNEL, slices, received, sends=True, tuple_result=True)
        self.rigid.update(received)
        self._add(Kind.LOOP if count <= _MANY else Kind.KERNEL, received, [result], joins=True)

    def _sent(self, array: int, result: int) -> int:
        """A collective that puts slices of one rank after those of another, which is a dimension more."""
        # The collective sees its operand in another shape; a loop can write it so, anything else is read as it is.
        self._compute(Kind.KERNEL, [self._in_shape(array, ())], [result], sends=True)
        self.rigid.add(result)
        return result

    def _all_reduced(self, array: int, result: int, move: Move, count: int) -> None:
        if move.reduction not in NATIVE_REDUCTIONS:
            # Reductions that are no collective gather all parts and reduce them on each device.
            parts = self.like(array, self.arrays[result].num_bytes * count)
            self._add(Kind.REDUCTION, [self._sent(array, parts)], [result])
            return
        # The dtype is part of the key: XLA combines only all-reduces of one element type.
        dtype = self.arrays[array].dtype
        combines = (*sorted(move.axes), move.reduction, "float32" if dtype in _BFLOAT16 else dtype)
        self._compute(Kind.KERNEL, [array], [result], sends=True, combines=combines)

    def _rearranged(self, array: int, order: tuple[int, ...] = ()) -> int:
        """The same in another order of dimensions, which loops read as they go and kernels want written out, each order once."""
        key = array, order, self._around
        if not order or key not in self._seen:
            self._seen[key] = self.like(array)
            self._add(Kind.LOOP, [array], [self._seen[key]])
        return self._seen[key]

    # ---------------------------------------------------------------------------------------------------- operators

    def _operator(self, event: Event, operator: Operator) -> None:
        name = operator.name
        if event.island is not None and name in COLLECTIVES and named_axes(operator.operation.params):
            self._collective(event, operator, event.island)
        elif name == BARRIER:
            self._barrier(event, operator)
        elif name == ARGUMENT and event.writes[0] in self._carried:
            # A loop updates what it carries, so it has a buffer of its own: a copy, unless nothing reads the old value again.
            self._add(Kind.KERNEL, self._read(event), self._written(event), in_place=True, loops=self._around[:-1])
            self._changes[self._array_of(event.writes[0])] = self._around
        elif self._is_view(event, operator):
            self._view(event, operator)
        elif name in RULES:
            self._loop_edge(event, operator)
        else:
            self._computation(event, operator)

    def _computation(self, event: Event, operator: Operator) -> None:
        name = operator.name
        family = "" if operator.bodies else entry_for(name).family
        if name == "convert_element_type" and self._widens(event):
            self.number[event.writes[0]] = self._converted(self._array_of(event.reads[0]))
        # With a literal operand it is no call of a library.
        elif name == "dot_general" and len(event.reads) == len(operator.operands):
            self._product(event, operator)
        elif name == "conv_general_dilated" and len(event.reads) == len(operator.operands):
            self._convolution(event, operator)
        elif name == "integer_pow" and operator.operation.params["y"] in (2, 3):
            self._power(event, operator.operation.params["y"])
        elif name.startswith("select_and_scatter_add"):
            self._pooling_gradient(event)
        elif name == "random_bits":
            self._random_bits(event)
        elif family in LOOPS or name == "gather":
            self._loops(event, operator, family)
        else:
            self._kernel(event, name)

    def _collective(self, event: Event, operator: Operator, island: Island) -> None:
        """What the author of an island moves."""
        params, (kind, reduction) = operator.operation.params, COLLECTIVES[operator.name]
        mesh = self.timeline.mesh or island.matrix
        runs = island.runs(mesh)
        move = Move(
            kind,
            tuple(axis for name in named_axes(params) for axis in runs.get(name, ())),  # none for axes of one device
            params.get("all_gather_dimension", params.get("concat_axis", -1)),
            params.get("scatter_dimension", params.get("split_axis", -1)),
            reduction,
        )
        for value, result in self._pairs(event, operator):
            shape, count = [*self._shape(value)], num_parts(mesh, move.axes)
            self._moved(self._array_of(value), move, shape, count, self._array_of(result))

    def _loop_edge(self, event: Event, operator: Operator) -> None:
        """What enters or leaves a round. Carries update their first operand in place, stacks what all rounds give."""
        reads = self._read(event)
        if operator.name == SLICE:
            reads = [self._wide(array, _BFLOAT16 - self.native) for array in reads]
        kind = Kind.KERNEL if operator.name in (CARRY, JOIN) else Kind.LOOP
        is_carry, (array,) = operator.name == CARRY, self._written(event)
        self._add(kind, reads, [array], in_place=is_carry, loops=self._around, edge=operator.name)
        self._changes[array] = self._around
        if operator.name in (CARRY, STACK):
            self._changes[array] = self._around[:-1]
            self.ends[array] = self._rounds.setdefault(self._around, [])
            self.ends[array] += reads

    def _pairs(self, event: Event, operator: Operator) -> list[tuple[Value, Value]]:
        """The operands and the results that they become. Scalars of the program are no operands: they are written here."""
        reads, pairs = iter(event.reads), []
        for tensor, result in zip(operator.operands, event.writes, strict=False):
            if tensor == LITERAL:
                self._add(Kind.LOOP, [], [self._array_of(result)], spreads=True)
            else:
                pairs.append((next(reads), result))
        return pairs

    def _view(self, event: Event, operator: Operator) -> None:
        """Results are the operands, in other shapes or not."""
        for operand, result in self._pairs(event, operator):
            array, shape = self._array_of(operand), self._shape(result)
            # A change of shape costs an instruction only if the array is made by a loop, which may write it either way.
            self.number[result] = array if shape == self._shape(operand) else self._in_shape(array, shape)
            if operand in self._waits:
                self._waits[result] = self._waits[operand]

    def _kernel(self, event: Event, name: str) -> None:
        """A kernel of its own, or a reduction. Windows are kernels, whatever they reduce with."""
        reads, writes = self._read(event), self._written(event)
        kind = Kind.REDUCTION if name.startswith("reduce_") and "window" not in name else Kind.KERNEL
        is_update = name == "dynamic_update_slice"
        is_over = is_update or name.startswith("scatter") or (name == "sort" and len(writes) == 1)
        # Updates of slices convert as they go, and extremes are none of arithmetic.
        halves = frozenset[str]() if is_update or name in ("reduce_max", "reduce_min") else _BFLOAT16
        self._compute(kind, reads, writes, halves, in_place=is_over)

    def _barrier(self, event: Event, operator: Operator) -> None:
        """Results are the operands, and exist when all operands do."""
        arrays = self._read(event)
        self.barred.update(arrays)
        # What reads them behind it converts them again.
        self._widened = {array: wide for array, wide in self._widened.items() if array not in arrays}
        for operand, result in self._pairs(event, operator):
            self.number[result] = self._array_of(operand)
            # What passed earlier barriers must exist before this one, too.
            self._waits[result] = frozenset(arrays) | self._after

    def _is_view(self, event: Event, operator: Operator) -> bool:
        """Whether results are operands under another number."""
        name = operator.name
        if name in VIEWS:
            return True
        if len(event.reads) != 1 or len(event.writes) != 1:
            return False
        operand, result = event.reads[0], event.writes[0]
        if name == "transpose":
            in_order = _is_in_order(operator.operation.params["permutation"], self._shape(operand))
            # Plain matrices are read in any order by the libraries of matrix products.
            return in_order or (_are_matrices(self._shape(operand)) and self.number.get(operand) in self._plain)
        return name in MAYBE_VIEWS and self._bytes(operand) == self._bytes(result)

    def _widens(self, event: Event) -> bool:
        """Whether it brings an array to float32, as products do that read it."""
        dtypes = [self.timeline.tensors[value[0]].dtype for value in (*event.reads, *event.writes)]
        return len(dtypes) > 1 and dtypes[0] in _HALF and dtypes[1] == "float32"

    def _read(self, event: Event) -> list[int]:
        return [self._array_of(value) for value in event.reads]

    def _written(self, event: Event) -> list[int]:
        return [self._array_of(value) for value in event.writes]

    def _loops(self, event: Event, operator: Operator, family: str) -> None:
        """One loop for every result."""
        reads = self._read(event)
        if operator.name == "convert_element_type" and operator.operation.operands[0].dtype == "bool":
            self._chosen.update(self._written(event))
        order = operator.operation.params.get("permutation", ())
        if operator.name == "transpose" and [*order[:-2]] == [*range(len(order) - 2)]:
            # A transposed matrix of a transposed one is the original.
            turned = self._array_of(event.writes[0]), self._around
            self._turned[turned] = self._turned.get((reads[0], self._around), reads[0])
        if operator.name == "slice":
            reads = [self._source_of_slice(reads[0])]
            self._sliced[self._array_of(event.writes[0])] = reads[0]
        joined = operator.name in ("concatenate", "stack")
        for result in self._written(event):
            self._add(
                # With more operands XLA writes the concatenation instead of computing it in each reader.
                Kind.KERNEL if joined and len(reads) > _MANY else Kind.LOOP,
                reads,
                [result],
                elementwise=family == "1 elementwise",
                # A product with zeros and ones made of a condition is none: compilers select then.
                simple=operator.name in SIMPLE and self._chosen.isdisjoint(reads) and self._is_simple(result),
                costly=operator.name in COSTLY,
                spreads=family == "9 creation" or operator.name in ("broadcast_in_dim", "broadcast_to"),
                joins=joined,
            )
            if family == "1 elementwise" and operator.name not in _EXACT and self.arrays[result].dtype in _BFLOAT16:
                self._rounded[result] = len(self.instructions) - 1, operator.name in COSTLY

    def _source_of_slice(self, array: int) -> int:
        """What a slice is made of: a slice of a slice is one of the array itself, but not through a barrier."""
        part = self._viewed.get(array, array)
        return self._sliced.get(part, array) if self.barred.isdisjoint((part, array)) else array

    def _power(self, event: Event, exponent: int) -> None:
        """A square, or the product of the square and its operand."""
        (array,), (result,) = self._read(event), self._written(event)
        if array not in self._squares:
            self._squares[array] = square = self.like(array)
            self._add(Kind.LOOP, [array], [square], elementwise=True, simple=self._is_simple(square))
        if exponent == 2:
            self.number[event.writes[0]] = self._squares[array]
        else:
            self._add(Kind.LOOP, [self._squares[array], array], [result], elementwise=True)

    def _is_simple(self, array: int) -> bool:
        """Whether a library reduces what is computed of its dtype."""
        return self.arrays[array].dtype not in _HALF

    def _product(self, event: Event, operator: Operator) -> None:
        """A matrix product reads [batch, rows, inner] and [batch, inner, columns]; of plain matrices any order will do."""
        halves = _HALF - self.native if self._is_native(event, operator) else _HALF
        # Each operand by itself: a transposed one may be written out while the other is read as it is.
        reads = [self._operand(value, operator, side, halves) for side, value in enumerate(event.reads)]
        results = self._compute(Kind.KERNEL, reads, self._written(event), halves)
        if all(len(self._shape(value)) == 2 for value in event.reads):
            self._plain.update(results)

    def _operand(self, value: Value, operator: Operator, side: int, halves: Set[str]) -> int:
        """What a product reads of an operand; what has one of these dtypes is a copy in float32."""
        shape, array = self._shape(value), self._array_of(value)
        order = order_of(operator, side, shape)
        # What is made before a loop in float32 is made in the order in which its rounds read it.
        is_before = self.arrays[array].dtype in halves and self._changes.get(array, ()) != self._around
        if not order and not is_before and _are_matrices(shape):
            # The product reads the matrix itself, transposed, so no transposed copy is made.
            array = self._turned.get((array, self._around), array)
        array = self._wide(array, halves)
        if order:
            return self._rearranged(array, order)
        if len(shape) <= 2:
            return array
        contracted, batch = (dims[side] for dims in operator.operation.params["dimension_numbers"])
        free = [dim for dim in range(len(shape)) if dim not in contracted and dim not in batch]
        return self._in_shape(array, tuple(math.prod(shape[dim] for dim in dims) for dims in (batch, free, contracted)))

    def _is_native(self, event: Event, operator: Operator) -> bool:
        """Whether a library reads both as they are: matrices, none of them transposed, the left one's inner dimension last."""
        arrays, shapes = self._read(event), [self._shape(value) for value in event.reads]
        if any(
            self.arrays[array].dtype not in self.native or (array, self._around) in self._turned for array in arrays
        ):
            return False
        contracted, batch = operator.operation.params["dimension_numbers"]
        bound = [{*inner, *outer} for inner, outer in zip(contracted, batch, strict=True)]
        free = [
            [dim for dim in range(len(shape)) if dim not in dims] for shape, dims in zip(shapes, bound, strict=True)
        ]
        rows, columns = (math.prod(shape[dim] for dim in dims) for shape, dims in zip(shapes, free, strict=True))
        # Where dimensions have to be put in order, the inner one becomes the last.
        last = _is_in_order((*batch[0], *free[0], *contracted[0]), shapes[0]) or order_of(operator, 0, shapes[0])
        return rows > 1 and columns > 1 and bool(last)

    def _convolution(self, event: Event, operator: Operator) -> None:
        """A convolution reads and writes channels last, kernels with the results' channels last."""
        numbers = operator.operation.params["dimension_numbers"]
        result = numbers.out_spec
        reads = []
        for place, value in enumerate(event.reads):
            array = self._wide(self._array_of(value))
            order = order_of(operator, place, self._shape(value))
            reads.append(self._rearranged(array, order) if order else array)
        (written,) = self._written(event)
        # Convolutions write channels last; if the program has them elsewhere, one more loop brings them there.
        if _is_in_order((result[0], *result[2:], result[1]), self._shape(event.writes[0])):
            self._compute(Kind.KERNEL, reads, [written], _HALF)
        else:
            canonical = self.like(written)
            self._compute(Kind.KERNEL, reads, [canonical], _HALF)
            self._add(Kind.LOOP, [canonical], [written])

    def _pooling_gradient(self, event: Event) -> None:
        """Coordinates of all elements, those of the extremes, and an addition at these places."""
        source, operand = self._read(event)
        # Coordinates are int32: 4 bytes per dimension and element.
        rank, index = len(self._shape(event.reads[1])), 4
        every, extremes = (index * math.prod(self._shape(value)) for value in (event.reads[1], event.reads[0]))
        coordinates = [self._new(Array(every)) for _ in range(rank)]
        zeros = self.like(operand)
        for array in (*coordinates, zeros):
            self._add(Kind.KERNEL, [], [array])
        picked = [self.like(source), *(self._new(Array(extremes)) for _ in range(rank))]
        self._add(Kind.KERNEL, [operand, *coordinates], picked)
        indices = self._new(Array(extremes * rank))
        self._add(Kind.KERNEL, picked[1:], [indices])
        # Scatters add to a buffer of zeros in place.
        self._add(Kind.KERNEL, [zeros, indices, source], self._written(event), in_place=True)

    def _random_bits(self, event: Event) -> None:
        """Threefry makes two words for every element in a loop of its own from copies of what its round before has made."""
        (result,) = self._written(event)
        # Two words of 32 bits per element, whatever the size of the result.
        size = _WORD * math.prod(self._shape(event.writes[0]))
        words = [self._new(Array(size)) for _ in range(4)]
        self._add(Kind.KERNEL, self._read(event), words)
        self._add(Kind.LOOP, words[:2], [result], elementwise=True)

    # ---------------------------------------------------------------------------------------------------- transfers

    def _transfer(self, event: Event) -> None:
        if len(event.transfers) > 1:
            self._buffer(event)
            return
        way = event.transfers[0].redistribution
        array = self._array_of(event.reads[0])
        # A transfer without moves (a placement under another name) writes nothing.
        if not way.moves:
            self.number[event.writes[0]] = array
            return
        shape, counts = list(way.factored), [self._count(move) for move in way.moves]
        for move, count in zip(way.moves[:-1], counts, strict=False):
            array = self._moved(array, move, shape, count)
        # The partial sum under this placement is gone; the new array has the same name.
        self.number.pop(event.writes[0], None)  # parts that were combined, and are needed again, are computed again
        self._moved(array, way.moves[-1], shape, counts[-1], self._array_of(event.writes[0]))

    def _moved(self, array: int, move: Move, shape: list[int], count: int, target: int | None = None) -> int:
        """The instructions of one move, which changes the local `shape`; the last of them writes `target`."""
        kind = move.kind
        # The pieces of several slices interleave unless the dimension is the outermost one, so they are put in order first.
        crosswise = math.prod(shape[: max(move.source, move.target)]) > 1
        size = self.arrays[target].num_bytes if target is not None else self._resized(array, move, shape, count)
        result = self.like(array, size) if target is None else target
        if kind in (MoveKind.SLICE, MoveKind.MASK):
            self._add(Kind.LOOP, [array], [result], moves=True, elementwise=kind is MoveKind.MASK)
        # Without a native collective, parts are traded and combined by a loop.
        elif kind is MoveKind.ALL_TO_ALL or move.trades_parts:
            self._traded(array, result, count)
        elif kind is MoveKind.ALL_REDUCE:
            self._all_reduced(array, result, move, count)
        elif kind in (MoveKind.ALL_GATHER, MoveKind.REDUCE_SCATTER) and crosswise:
            first = self._rearranged(array) if kind is MoveKind.REDUCE_SCATTER else array
            self._add(Kind.LOOP, [self._sent(first, self.like(array, size))], [result])
        else:
            self._sent(array, result)
        return result

    def _count(self, move: Move) -> int:
        assert self.timeline.mesh is not None
        return num_parts(self.timeline.mesh, move.axes)

    def _resized(self, array: int, move: Move, shape: list[int], count: int) -> int:
        """Bytes of the slice after a move among so many devices, which changes its local `shape`."""
        size = self.arrays[array].num_bytes
        if move.kind is MoveKind.PERMUTE:
            return size
        # The local slice grows where an axis is gathered and shrinks where one begins to shard.
        if move.source >= 0:
            shape[move.source], size = shape[move.source] * count, size * count
        if move.target >= 0:
            shape[move.target], size = shape[move.target] // count, size // count
        return size

    def _buffer(self, event: Event) -> None:
        """Tensors that are fused into one buffer, and sliced out of it afterwards."""
        reads, writes = self._read(event), self._written(event)
        packed, received = (
            self.like(reads[0], sum(self.arrays[entry].num_bytes for entry in part)) for part in (reads, writes)
        )
        self._add(Kind.LOOP, reads, [packed], joins=True)
        if any(move.trades_parts for move in event.transfers[0].redistribution.moves):
            # The slices of a buffer that nothing else reads fill the place of what it was made of, as if they were one.
            self._traded(packed, received, 1)
        else:
            self._sent(packed, received)
        for write in writes:
            self._add(Kind.LOOP, [received], [write])


def order_of(operator: Operator, place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The order in which a product or convolution reads an operand, whose slice has this `shape`; none if it is in it."""
    numbers = operator.operation.params["dimension_numbers"]
    if operator.name == "conv_general_dilated":
        image, kernel = numbers.lhs_spec, numbers.rhs_spec
        # XLA for CPUs runs convolutions with channels last and kernels with output channels last.
        order = [(image[0], *image[2:], image[1]), (*kernel[2:], kernel[1], kernel[0])][place]
        return () if _is_in_order(order, shape) else order
    contracted, batch = numbers
    free = [dim for dim in range(len(shape)) if dim not in contracted[place] and dim not in batch[place]]
    inner = [*contracted[place]]
    # Products of matrices accept either order; where several dimensions are one, or the batch is not outermost, one per side.
    orders = [(*batch[place], *free, *inner), (*batch[place], *inner, *free)]
    is_outermost = all(dims == tuple(range(len(dims))) for dims in batch)
    plain = len(free) <= 1 and len(inner) <= 1 and (is_outermost or all(shape[dim] > 1 for dim in batch[place]))
    fits = any(_is_in_order(order, shape) for order in (orders if plain else orders[place : place + 1]))
    return () if fits else orders[place]


def _are_matrices(shape: Sequence[int]) -> bool:
    """Whether it is a matrix, or a batch of some: batches of one are taken off first, and what transposes it is left."""
    return 1 not in shape[:-2]


def _is_in_order(order: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether dimensions taken in this order are as they are, those of one element aside."""
    # Dimensions of size one may be anywhere without moving an element.
    real = [dim for dim in order if shape[dim] > 1]
    return real == sorted(real)
