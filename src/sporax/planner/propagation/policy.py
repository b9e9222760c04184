"""What a plan by propagation asks of its parallel mode.

Problem: propagation is the same in all modes; the meaning of marks, and how parameters and gradients are stored, is not.

Method: a `Policy` answers these questions. `semi_auto.SemiAuto` reads the user's strategies, `auto_policy.AutoPolicy` keeps
what a search decided, and `NoPolicy` ignores marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sporax.ir.marks import LayoutMark, OperatorMark
from sporax.ir.operation import TensorSpec
from sporax.ir.placement import Placement
from sporax.ir.plan import Resharding

MaybePlacements = Sequence["Placement | None"]
"""Where tensors are, as far as it is decided."""


class Policy(Protocol):
    """Decides what marks mean."""

    @property
    def scatters_gradient_terms(self) -> bool:
        """Whether the terms of gradients are combined before they are added up, for parameters that are stored in shards."""

    @property
    def returns_cotangents(self) -> bool:
        """Whether cotangents go back to where their tensors came from; otherwise they stay where they are."""

    def at_operator(
        self, mark: OperatorMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """Where an operator's tensors should be; None to leave one as it is."""

    def at_layout(
        self, mark: LayoutMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """Where tensors should be because the user says so; dimensions that the user leaves open stay as they are."""

    def gradient(self, name: str, spec: TensorSpec, storage: Placement, used: Placement) -> Resharding:
        """How the gradient of a parameter is combined.

        Args:
            name: of the parameter.
            spec: its shape.
            storage, used: its storage sharding, and its sharding for use.
        """

    def gradient_term(self, name: str, storage: Placement) -> Resharding:
        """How one of the tensors is combined that the gradient of a parameter is the sum of.

        Args:
            name: of the parameter.
            storage: its storage sharding.
        """

    def storage(self, spec: TensorSpec, used: Placement, parameter: str) -> Placement:
        """Where a parameter of a step with gradients is kept, given where operators want it."""

    def weight(self, name: str, used: Placement) -> Resharding:
        """How a stored parameter is resharded for use."""

    def loss_scale(self, placement: Placement) -> float:
        """The factor of the derivative of a loss with this placement."""


class NoPolicy:
    """Ignores marks of operators; gradients are combined at the placement of their parameters."""

    scatters_gradient_terms = False
    returns_cotangents = True

    def at_operator(
        self, mark: OperatorMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """Leave all tensors as they are."""
        return [None] * len(specs)

    def at_layout(
        self, mark: LayoutMark, specs: Sequence[TensorSpec], current: MaybePlacements
    ) -> Sequence[Resharding | None]:
        """Leave all tensors as they are."""
        return [None] * len(specs)

    def gradient(self, name: str, spec: TensorSpec, storage: Placement, used: Placement) -> Resharding:
        """As the parameter is."""
        return Resharding(storage, f"gradient of {name}")

    def gradient_term(self, name: str, storage: Placement) -> Resharding:
        """As the parameter is kept."""
        return Resharding(storage, f"part of the gradient of {name}")

    def storage(self, spec: TensorSpec, used: Placement, parameter: str) -> Placement:
        """Where operators want it."""
        return used

    def weight(self, name: str, used: Placement) -> Resharding:
        """By itself."""
        return Resharding(used, "weight for use")

    def loss_scale(self, placement: Placement) -> float:
        """Once."""
        return 1.0
