"""How a function becomes a layer: its settings are given once, its tensors at every call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from sporax.base.errors import SporaxTypeError
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.ops._core.operator import Operator
from sporax.mindspore.ops._core.parameters import with_signature


class FunctionLayer(Cell):
    """Base of layers around one function. Subclasses are made by `layer`, or state `function` and `construct`."""

    function: Callable[..., Any]
    parameters: inspect.Signature = inspect.Signature()
    """Settings of the function that the constructor takes, in order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as mismatch:
            raise SporaxTypeError(f"For '{type(self).__name__}', {mismatch}; it takes {self.parameters}.") from None
        bound.apply_defaults()
        self.settings = tuple(bound.arguments)
        for name, value in bound.arguments.items():
            checked = _frozen(value)
            # An Operator checks a setting once, and not at every call.
            if isinstance(self.function, Operator) and name in self.function.parameters.attributes:
                self.function.parameters.check(name, checked)
            setattr(self, name, checked)

    def construct(self, input: Any) -> Any:
        """The function of `input`."""
        return self.compute(input)

    def compute(self, *inputs: Any) -> Any:
        """The function of these inputs with the settings of this layer."""
        return self.function(*inputs, **{name: getattr(self, name) for name in self.settings})

    def extend_repr(self) -> str:
        """Settings."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.settings)


class PairLayer(FunctionLayer):
    """A layer of two inputs: most often a loss of predictions and targets."""

    def construct(self, input: Any, target: Any) -> Any:
        """The function of `input` and `target`."""
        return self.compute(input, target)


REQUIRED = inspect.Parameter.empty
"""The default of a setting that has to be given."""


def layer(name: str, function: Callable[..., Any], doc: str, base: type = FunctionLayer, **settings: Any) -> type[Cell]:
    """A layer around `function`.

    Args:
        name: of the class.
        function: takes the tensors by position and the settings by name.
        doc: what the layer does.
        base: says which tensors there are.
        settings: names and defaults (or `REQUIRED`) of what the constructor takes, in order.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(parameter, kind, default=default) for parameter, default in settings.items()]

    @functools.wraps(FunctionLayer.__init__)
    def construct_it(self: FunctionLayer, *args: Any, **kwargs: Any) -> None:
        FunctionLayer.__init__(self, *args, **kwargs)

    own = inspect.Parameter("self", kind)
    body = {
        # A plain function must not be bound to the layer.
        "function": function if isinstance(function, Operator) else staticmethod(function),
        "parameters": inspect.Signature(parameters),
        # Users see the settings in `help`.
        "__init__": with_signature(construct_it, inspect.Signature([own, *parameters])),
        "__doc__": doc,
        "__module__": "sporax.mindspore.mint.nn",
    }
    return type(name, (base,), body)


def _frozen(value: Any) -> Any:
    # Lists cannot be part of a compiled step's key.
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
