"""Marks: annotations of tensors inside a program, carried through tracing and differentiation.

A mark passes tensors through and says where they are: at the entrance or the exit of one of the facade's operators, or
at the end of a parameter's gradient. Semi-automatic plans are made from marks; everything between two marks follows by
propagation.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import field
from enum import Enum

from sporax.base.lazy_members import dataclass
from sporax.ir.layout import Layout
from sporax.ir.operator_dims import UNSTATED, OperatorDims

Shardings = tuple[tuple[int, ...] | Layout | None, ...]
"""One entry per tensor: numbers of slices per dimension, or a Layout; None to leave a tensor to the planner."""


FIXED = "strategy_is_fixed"
"""Attribute of marks whose strategy searches keep: it comes from a file, or a gradient of the user's counts on it."""


class Side(Enum):
    """Where a mark is."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True, slots=True)
class OperatorMark:
    """The entrance or exit of an operator of the facade.

    Attributes:
        operator: its name, ``"MatMul"``.
        number: of the call, so that entrance, exit and their derivatives find each other.
        side: entrance or exit.
        in_strategy, out_strategy: the user's sharding of its tensors; None where nothing was said.
        attributes: the operator's attributes and the user's further marks, by name in ascending order.
        path: where it is in the program; the plan fills it in.
        dims: what the operator states of the dimensions of its tensors.
    """

    operator: str
    number: int
    side: Side
    in_strategy: Shardings | None = None
    out_strategy: Shardings | None = None
    attributes: tuple[tuple[str, Hashable], ...] = ()
    path: str = ""
    # Left out of the text of programs, where the name of the operator says as much.
    dims: OperatorDims = field(default=UNSTATED, repr=False)

    def get(self, name: str, default: Hashable = None) -> Hashable:
        """One of the attributes."""
        # Attributes are a tuple because marks are keys; there are few of them.
        return dict(self.attributes).get(name, default)

    @property
    def where(self) -> str:
        """What messages call the operator."""
        last = self.path.rpartition(".")[2]
        return self.path if last == self.operator else f"{self.path} ({self.operator})" if self.path else self.operator

    def __str__(self) -> str:
        strategy = f" {self.in_strategy}" if self.in_strategy is not None else ""
        return f"{self.where} {self.side.value}{strategy}"


@dataclass(frozen=True, slots=True)
class LayoutMark:
    """Tensors that should have given placements: `reshard`, and inputs and outputs of a sharded Cell.

    Attributes:
        requester: function or Cell that the layouts are of.
        number: as in `OperatorMark`.
        layouts: as in `OperatorMark.in_strategy`.
        free: dimensions that are left to the planner, of a mark of one tensor.
        is_stored: whether a parameter is stored like that, too, and not only read.
        bprop: side and position of the tensor, where it enters or leaves a call whose gradients the user computes.
    """

    requester: str
    number: int
    layouts: Shardings
    free: tuple[int, ...] = ()
    is_stored: bool = True
    bprop: tuple[Side, int] | None = None

    def __str__(self) -> str:
        return f"layouts of {self.requester}"


@dataclass(frozen=True, slots=True)
class GradientMark:
    """Finished gradients of parameters: here the parts that ranks hold are added up.

    Attributes:
        parameters: names, one per tensor.
        fusion: the parameters' `comm_fusion`; gradients of one number above 0 are fused.
    """

    parameters: tuple[str, ...]
    fusion: tuple[int, ...]

    def __str__(self) -> str:
        return f"gradients of {', '.join(self.parameters)}"


@dataclass(frozen=True, slots=True)
class DerivativeMark:
    """A mark met by derivatives of its tensors.

    Attributes:
        of: the mark.
        positions: which of its tensors have a derivative here.
        backward: whether these are cotangents, on their way back, or tangents.
    """

    of: OperatorMark | LayoutMark
    positions: tuple[int, ...]
    backward: bool = False

    def __str__(self) -> str:
        return f"{'cotangents' if self.backward else 'tangents'} at {self.of}"


@dataclass(frozen=True, slots=True)
class RowsMark:
    """Says that tensors have a row for each sample of the batch, whatever their values depend on."""


@dataclass(frozen=True, slots=True)
class LossMark:
    """Where the backward pass starts.

    Its tensors are what is differentiated, the loss, and then as many cotangents of it.
    """

    def __str__(self) -> str:
        return "start of the backward pass"


@dataclass(frozen=True, slots=True)
class RankSumMark:
    """``AllReduce``: what ranks have of a tensor is combined, each element as often as ranks have it.

    Attributes:
        op: how; other ways than ``"sum"`` leave the program before it is planned.
        ranks: of the group, counted from its first.
        parameters: those of whose gradients the tensor is made, whose slices count; () for the slices of the tensor.
    """

    op: str
    ranks: tuple[int, ...]
    parameters: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.op} over {len(self.ranks)} ranks"


@dataclass(frozen=True, slots=True)
class WeightMark:
    """A parameter that is gathered again for the backward pass.

    The first tensor is the parameter as it is kept, the second one a cotangent that must be there before.

    Attributes:
        parameter: its name.
    """

    parameter: str

    def __str__(self) -> str:
        return f"{self.parameter} again"


@dataclass(frozen=True, slots=True)
class SavedMark:
    """Results of a recomputed Cell: they are kept for the backward pass, what is inside is computed again.

    Recomputation takes these marks out of a step, so plans never meet them.
    """

    def __str__(self) -> str:
        return "results of a recomputed Cell"


Mark = OperatorMark | LayoutMark | GradientMark | DerivativeMark | LossMark | RankSumMark | WeightMark


_numbers = itertools.count(1)
"""They distinguish calls of operators (marks) and of Cells (tags). From 1: the tag `KEEP` has number 0."""


def next_number() -> int:
    """A number that no mark and no tag of this process has."""
    return next(_numbers)
