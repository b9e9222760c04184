"""What a plan by propagation needs of its parallel mode.

Problem: propagation is the same in all modes; the meaning of marks, and how parameters and gradients are stored, is not.

Method: a `Policy` answers these questions. By itself it ignores marks of operators, and combines gradients at the placement of
their parameters. `semi_auto.SemiAuto` reads the user's strategies, `semi_auto.AutoPolicy` keeps what a search decided.
"""

from __future__ import annotations

from collections.abc import Sequence

from sporax.ir.marks import LayoutMark, OperatorMark
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.ir.plan import Resharding

MaybePlacements = Sequence["Placement | None"]
"""Where tensors are, as far as it is decided."""


class Policy:
    """Decides what marks mean."""

    __slots__ = ()

    @property
    def scatters_gradient_terms(self) -> bool:
        """Whether the terms of gradients are combined before they are added up, for parameters that are stored in shards."""
        return False

    @property
    def returns_cotangents(self) -> bool:
        """Whether cotangents go back to where their tensors came from; otherwise they stay where they are."""
        return True

    def at_operator(
        self, mark: OperatorMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """Where an operator's tensors should be; None to leave one as it is."""
        return [None] * len(specs)

    def at_layout(
        self, mark: LayoutMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """Where tensors should be because the user says so; dimensions that the user leaves open stay as they are."""
        return [None] * len(specs)

    def gradient(self, name: str, spec: TensorSpec, storage: Placement, used: Placement) -> Resharding:
        """How the gradient of a parameter of this name and shape is combined, by its storage sharding and that for use."""
        return Resharding(storage, f"gradient of {name}")

    def gradient_term(self, name: str, storage: Placement) -> Resharding:
        """How one of the tensors is combined that the gradient of a parameter with a storage sharding is the sum of."""
        return Resharding(storage, f"part of the gradient of {name}")

    def storage(self, spec: TensorSpec, used: Placement, parameter: str) -> Placement:
        """Where a parameter of a step with gradients is kept, given where operators want it."""
        return used

    def weight(self, name: str, used: Placement) -> Resharding:
        """How a stored parameter is resharded for use."""
        return Resharding(used, "weight for use")

    def loss_scale(self, placement: Placement) -> float:
        """The factor of the derivative of a loss with this placement."""
        return 1.0
