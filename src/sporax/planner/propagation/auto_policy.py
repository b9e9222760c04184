"""What marks mean in automatic parallelism, where a search has decided before propagation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sporax.ir.graph import OperatorGraph
from sporax.ir.marks import FIXED, LayoutMark, OperatorMark, Side
from sporax.ir.operation import TensorSpec
from sporax.ir.plan import Resharding
from sporax.planner.pins.manual_split import is_split
from sporax.planner.propagation.policy import MaybePlacements
from sporax.planner.propagation.semi_auto import SemiAuto, asks_for_results


@dataclass(frozen=True, slots=True)
class AutoPolicy(SemiAuto):
    """Marks of operators have no meaning, but for strategies that the search must keep.

    Attributes:
        always: recursive programming keeps the user's strategies, too.
    """

    always: bool = False

    @property
    def returns_cotangents(self) -> bool:
        """The search has decided where they are."""
        return False

    def at_operator(
        self, mark: OperatorMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """As the user's strategy says, or as it comes; results as they come, unless the user gave a strategy for them."""
        if self.keeps(mark) and (mark.side is Side.IN or asks_for_results(mark)):
            return super(AutoPolicy, self).at_operator(mark, specs, current)
        return [None] * len(specs)

    def keeps(self, mark: OperatorMark) -> bool:
        """Whether the operator has a strategy that counts: recursive programming decides for itself by default, as in MindSpore.

        Tables in uneven parts have one way to be sharded; `set_data_parallel`, strategy files, and strategies inside of Cells
        with a `bprop` hold in every search.
        """
        if mark.get("strategy_gen_mode") == "data_parallel":
            return True
        free = self.config.search_mode == "recursive_programming" and not (self.always or mark.get(FIXED))
        counts = not free or is_split(mark)
        return mark.in_strategy is not None and counts

    def fixes_any(self, graph: OperatorGraph) -> bool:
        """Whether a mark of the graph decides something that a search must keep."""
        marks = (operator.mark for operator in graph.operators)
        return any(
            isinstance(mark, LayoutMark) or (isinstance(mark, OperatorMark) and self.keeps(mark)) for mark in marks
        )

    def overwritten(self, graph: OperatorGraph) -> tuple[int, ...]:
        """Numbers of the operators whose strategies the search replaces by its own."""
        marks = (operator.mark for operator in graph.walk())
        marked = [mark for mark in marks if isinstance(mark, OperatorMark) and mark.in_strategy is not None]
        return tuple(sorted({mark.number for mark in marked if not self.keeps(mark)}))
