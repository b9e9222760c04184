"""Which arrays the compiler writes to memory in every plan, and which array a reader of a tensor reads in every plan.

Problem: the lower bound on peak memory may count only arrays that exist whatever the rest of the plan is.

Method: loops are fused into their readers (`planner.memory.xla_cpu.kernel_fusion`): a reader of a simple loop's result computes
it again from the operands of the loop. So an array that must be kept belongs to a tensor further up that chain. Kernels
always write their results; loops that the compiler does not duplicate are written once a kernel reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from sporax.ir.graph import LITERAL
from sporax.ir.placement import num_parts
from sporax.planner.memory.backend import COSTLY
from sporax.planner.memory.xla_cpu.instructions import SIMPLE, order_of
from sporax.planner.search.bound.partial_order import CompiledForm, Order
from sporax.planner.search.space.problem import Problem


class Materialization:
    """Arrays that are written, whatever the plan.

    Args:
        problem: the problem.
        order: what runs before what.
    """

    def __init__(self, problem: Problem, order: Order) -> None:
        self.problem, self.order = problem, order
        self.graph, self.decisions = problem.graph, problem.decisions
        # Arguments live through the whole step and results may be in an argument's place: neither counts as freed or
        # reused.
        self.own = {order.same[argument.tensor] for argument in self.graph.inputs}
        self.own |= {order.same[tensor] for tensor in order.outputs}
        """Arrays with a place of their own: arguments and results."""
        self._inside: dict[tuple[int, int], bool] = {}
        self._copies: dict[tuple[int, int], list[bool]] = {}

    def readers(self, tensor: int) -> list[int]:
        """Operators that read a tensor and on which a result of the step depends."""
        return [reader for reader in self.decisions.readers.get(tensor, ()) if self.order.alive[reader]]

    def is_inside(self, tensor: int, reader: int) -> bool:
        """Whether an operator of a tensor's own bundle reads it where it is, or as soon as its parts are combined."""
        key = (tensor, reader)
        if key not in self._inside:
            node = self.decisions.node_of[tensor]
            # A reader outside the bundle may get the tensor resharded, and so read another array.
            inside = reader not in self.decisions.heavy and self.decisions.decision_of(reader) == node
            if inside:
                choices = self.problem.choices[node]
                member, place = choices.operators.index(reader), self.order.operands[reader].index(tensor)
                required = [steps[member].operands[place] for steps in choices.steps]
                # Complete counts as in place: parts are combined into the array that the reader reads.
                pairs = zip(required, choices.tensor_placements[tensor], strict=True)
                inside = all(where in (own, own.complete()) for where, own in pairs)
            self._inside[key] = inside
        return self._inside[key]

    def copies(self, operator: int, place: int) -> Sequence[bool]:
        """Per candidate whether a heavy operator reads a copy of an operand in another order."""
        key = (operator, place)
        if key not in self._copies:
            choices = self.problem.choices[self.decisions.decision_of(operator)]
            self._copies[key] = [False] * choices.count
            reader = self.graph.operators[operator]
            # Only libraries for products and convolutions ask for one order of dimensions.
            if self.order.forms[operator] is CompiledForm.KERNEL and reader.name in (
                "dot_general",
                "conv_general_dilated",
            ):
                shape = self.graph.tensors[self.order.operands[operator][place]].shape
                member = choices.operators.index(operator)
                for candidate, steps in enumerate(choices.steps):
                    parts = (num_parts(self.problem.mesh, axes) for axes in steps[member].operands[place].dims)
                    local = tuple(size // count for size, count in zip(shape, parts, strict=True))
                    self._copies[key][candidate] = bool(order_of(reader, place, local))
        return self._copies[key]

    def sure_copies(self, operator: int, place: int) -> int:
        """1 if an operand is copied in every plan."""
        return int(operator in self.decisions.heavy and all(self.copies(operator, place)))

    # ----------------------------------------------------------------------------------------------- what is read late

    def is_read_itself(self, tensor: int, reader: int) -> bool:
        """Whether a light operator that reads a tensor where it is reads an array of this tensor."""
        maker = self.order.producer.get(tensor)
        if maker is None or self.order.forms[maker] is None:
            return False
        if self.order.forms[maker] in (CompiledForm.KERNEL, CompiledForm.REDUCTION) or self._is_stored(tensor):
            return True
        if self.order.forms[maker] is not CompiledForm.LOOP:
            return False
        # Fused into the only reader that reduces it, a simple loop has no array.
        absorbed = self.graph.operators[maker].name in SIMPLE and sum(map(self._in(tensor), self.readers(tensor))) < 2
        return self._is_absorbed(reader) or (self.order.forms[reader] is CompiledForm.REDUCTION and not absorbed)

    def stored_for(self, tensor: int, computed: Container[int]) -> list[int]:
        """Tensors of one bundle; a later loop that reads `tensor` at its bundle's placement reads an array of one of them.

        Empty if that is not known in every plan.

        Args:
            tensor: the tensor that the loop reads.
            computed: operators that an earlier kernel needs: the result of a costly one is written for both.
        """
        maker = self.order.producer.get(tensor)
        if maker is None or self.order.same[tensor] in self.own:
            return []
        form = self.order.forms[maker]
        costly = form is CompiledForm.LOOP and self.graph.operators[maker].name in COSTLY
        computed_before = costly and maker in computed
        if form in (CompiledForm.KERNEL, CompiledForm.REDUCTION) or computed_before or self._is_stored(tensor):
            return [tensor]
        if form not in (CompiledForm.LOOP, CompiledForm.VIEW):
            return []
        above = self._stored_before(tensor, maker, computed)
        repeated = form is CompiledForm.VIEW or (not costly and self._is_repeated(tensor))
        return above if not above or (repeated and not self._may_be_partial(tensor)) else [*above, tensor]

    def _stored_before(self, tensor: int, maker: int, computed: Container[int]) -> list[int]:
        """What a loop that is computed again reads, as `stored_for` says of its operand."""
        # Its largest operand: smaller ones may be in other bundles.
        operand = self._largest(maker)
        if operand is None or self.order.same[operand] in self.own or not self._is_independent(operand, tensor, maker):
            return []
        return self.stored_for(operand, computed)

    def _may_be_partial(self, tensor: int) -> bool:
        """Whether a plan may have a tensor as partial sums, which must be written before they can be reduced."""
        placements = self.problem.choices[self.decisions.node_of[tensor]].tensor_placements[tensor]
        return any(where.partial for where in placements)

    def _is_independent(self, operand: int, tensor: int, maker: int) -> bool:
        return self.decisions.node_of[operand] == self.decisions.node_of[tensor] and self.is_inside(operand, maker)

    def _in(self, tensor: int) -> Callable[[int], bool]:
        return lambda reader: self.is_inside(tensor, reader)

    def _is_stored(self, tensor: int) -> bool:
        """Whether a loop's result is written, since a reduction in its bundle reads it, and not computed again by any reader."""
        maker = self.order.producer[tensor]
        name = self.graph.operators[maker].name
        if self.order.forms[maker] is not CompiledForm.LOOP or not (name in COSTLY or self._is_large(tensor)):
            return False
        inside = [reader for reader in self.readers(tensor) if self.is_inside(tensor, reader)]
        reduced = any(self.order.forms[reader] is CompiledForm.REDUCTION for reader in inside)
        return reduced and (name not in SIMPLE or len(inside) > 1)

    def _is_absorbed(self, reader: int) -> bool:
        """Whether a reduction takes in the only elementwise operator before it."""
        operator = self.graph.operators[reader]
        if self.order.forms[reader] is not CompiledForm.LOOP or operator.name not in SIMPLE:
            return False
        (result,) = operator.results
        readers = self.readers(result)
        if (
            len(readers) != 1
            or result in self.order.outputs
            or self.order.forms[readers[0]] is not CompiledForm.REDUCTION
        ):
            return False
        selects = any(operand != LITERAL and self._is_mask(operand) for operand in self.order.operands[reader])
        return not selects and self.is_inside(result, readers[0])

    def _is_mask(self, tensor: int) -> bool:
        """Whether a tensor may be zeros and ones made of a condition."""
        while tensor in self.order.producer:
            maker = self.order.producer[tensor]
            operands = self.order.operands[maker]
            if self.graph.operators[maker].name == "convert_element_type":
                return True
            # A conversion makes a mask; anything else that is no view ends the chain.
            if self.order.forms[maker] not in (CompiledForm.VIEW, None) or not operands or operands[0] == LITERAL:
                return False
            tensor = operands[0]
        return False

    def _largest(self, operator: int) -> int | None:
        operands = [operand for operand in self.order.operands[operator] if operand != LITERAL]
        return max(operands, key=lambda operand: self.graph.tensors[operand].num_bytes, default=None)

    def _is_repeated(self, tensor: int) -> bool:
        """Whether a simple loop reads at most one array as large as its result, in every plan: then it is computed again."""
        operands = dict.fromkeys(self.order.operands[self.order.producer[tensor]])
        # Divided by all devices at most: an operand may be sharded as far as that while the result is whole.
        size, devices = self.graph.tensors[tensor].num_bytes, self.order.devices
        return (
            sum(self.graph.tensors[operand].num_bytes * devices >= size for operand in operands if operand != LITERAL)
            < 2
        )

    def _is_large(self, tensor: int) -> bool:
        """Whether a loop reads two arrays as large as its result, in every plan."""
        spec = self.graph.tensors[tensor]
        full = set()
        # Two arrays at full size: a loop that reads them is worth writing, because reading both again costs more.
        for operand in self.order.operands[self.order.producer[tensor]]:
            if operand == LITERAL or self.graph.tensors[operand].shape != spec.shape:
                continue
            maker = self.order.producer.get(operand)
            sort = None if maker is None else self.order.forms[maker]
            computed = (
                sort is CompiledForm.LOOP
                and maker is not None
                and any(operand != LITERAL for operand in self.order.operands[maker])
            )
            written = maker is None or sort in (CompiledForm.KERNEL, CompiledForm.REDUCTION) or computed
            if written and self.graph.tensors[operand].itemsize >= spec.itemsize:
                full.add(self.order.same[operand])
        return len(full) > 1
