"""The two forms of an operator as the modules around them see them: a function, and a class with attributes.

`operator.Operator` and `primitive.Primitive` call each other and are called by marks. These protocols let each of the modules
state what it needs without importing the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Protocol

from sporax.ir.operator_dims import OperatorDims
from sporax.mindspore.ops._core.parameters import Parameters


class FunctionalForm(Protocol):
    """An `operator.Operator`."""

    name: str
    composed: bool
    parameters: Parameters
    dims: OperatorDims
    __signature__: inspect.Signature

    @property
    def operands(self) -> frozenset[int | str]:
        """Positions and names at which a bare number is a value of the program."""
        ...

    def place_of(self, name: str) -> int:
        """Position of a parameter."""
        ...

    def with_known_ints(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with shapes and sizes that are given as Tensors read."""
        ...

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        constants: tuple[Any, ...] = (),
        primitive: ClassForm | None = None,
    ) -> Any:
        """Run it, with marks where a step is planned."""
        ...

    def run_between_marks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...], marks: Mapping[str, Any]
    ) -> Any:
        """Run it in a step that is planned, with the user's marks at hand."""
        ...

    def run_unmarked(self, args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...]) -> Any:
        """Run it without marks."""
        ...


class ClassForm(Protocol):
    """A `primitive.Primitive`."""

    attrs: dict[str, Any]
    _attributes: dict[str, Any]
