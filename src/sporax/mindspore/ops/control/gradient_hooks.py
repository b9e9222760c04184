"""Primitives that stand at a place of a computation and see, or replace, the gradient there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sporax.base.errors import SporaxTypeError
from sporax.mindspore.common.gradient_hooks import watched
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._core.operator import PRIMITIVES


class HookBackward:
    """Gives its inputs back; in the backward pass ``hook_fn(gradients)``, a tuple, runs and may replace them.

    Args:
        hook_fn: the hook; None keeps the gradients.
        cell_id: as in MindSpore, a name that hooks do not see here.

    Raises:
        SporaxTypeError: `hook_fn` is not callable.
    """

    def __init__(self, hook_fn: Callable[[tuple[Tensor, ...]], Any], cell_id: str = "") -> None:
        if not callable(hook_fn):
            raise SporaxTypeError.must("HookBackward", "hook_fn", "be a function", type(hook_fn).__name__)
        self.hook_fn = hook_fn
        self.cell_id = cell_id

    def __call__(self, *inputs: Tensor) -> Any:
        """The inputs: one as it is, several as a tuple."""

        def on_gradient(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            replaced = self.hook_fn(gradients)
            # None keeps the gradients, as for hooks of Cells.
            if replaced is None:
                return gradients
            return tuple(replaced) if isinstance(replaced, tuple | list) else (replaced,)

        outputs: tuple[Tensor, ...] = watched(inputs, on_gradient)
        return outputs[0] if len(outputs) == 1 else outputs


class InsertGradientOf:
    """Gives its input back; in the backward pass its gradient is ``f(gradient)``.

    Raises:
        SporaxTypeError: `f` is not callable.
    """

    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        if not callable(f):
            raise SporaxTypeError(f"For 'InsertGradientOf', 'f' must be a function, but got {type(f).__name__}.")
        self.f = f

    def __call__(self, x: Tensor) -> Tensor:
        """`x`."""
        # A tuple, as hooks of several inputs give.
        output: Tensor = watched(x, lambda gradients: (self.f(gradients[0]),))
        return output


for _class in (HookBackward, InsertGradientOf):
    PRIMITIVES[_class.__name__] = _class
