"""Hooks on gradients: functions that see, and may replace, the gradient at a place of a computation.

Problem: JAX differentiates whole functions, so a tensor's gradient is never at hand by itself. Method: an identity
operator with a gradient of its own (`jax.custom_vjp`), which calls the hook in the backward pass. A hook on a Parameter sees
the gradient that the whole backward pass gives it (`sporax.mindspore.common._pullback`).

Whether operators that run now take part in gradients: off inside `_no_grad`.

Gradients here come from transformations of pure functions, so what must not be differentiated has to be said while the
function is traced: operators stop the gradients of their results while the switch is off.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import jax

from sporax.base.errors import For
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.runtime.state import frames, ordered_trees

Hook = Callable[..., Any]


def watched(
    value: object,
    on_gradient: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]],
    on_forward: Callable[[], None] = lambda: None,
) -> Any:
    """`value` passed through an identity whose gradients go through `on_gradient`.

    Args:
        value: pytree with arrays in it.
        on_gradient: takes and returns the gradients of all arrays.
        on_forward: called when a gradient of this value will be taken.
    """
    leaves, tree = ordered_trees.flatten(value)
    positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    @jax.custom_vjp
    def identity(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return arrays

    def forward(*arrays: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
        # Called while the function is differentiated, not at a plain call.
        on_forward()
        return arrays, None

    def backward(_: None, gradients: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(tensor.array for tensor in on_gradient(tuple(map(wrap, gradients))))

    identity.defvjp(forward, backward)
    # Leaves that are no arrays pass untouched.
    for place, array in zip(positions, identity(*(leaves[place] for place in positions)), strict=True):
        leaves[place] = array
    return jax.tree.unflatten(tree, leaves)


class Hooks:
    """The hooks of one tensor.

    Attributes:
        array: what the tensor held when the identity was put there; hooks of a Parameter need none.
    """

    def __init__(self) -> None:
        self.entries: dict[int, Hook] = {}
        self.array: Any = None

    def key(self, array: jax.Array) -> tuple[Hooks, tuple[int, ...]] | None:
        """What compiled programs of `array` depend on; None where the hooks are of an array that the Tensor had before."""
        return (self, tuple(self.entries)) if self.array is array and self.entries else None

    def of(self, array: jax.Array) -> Hooks:
        """The same hooks, of an array that stands for this one while a function is traced."""
        hooks = Hooks()
        hooks.entries, hooks.array = self.entries, array
        return hooks

    def run(self, gradient: Tensor) -> Tensor:
        """The gradient after all hooks, in the order of their registration.

        Raises:
            SporaxTypeError: a hook returns neither a Tensor nor None.
            SporaxValueError: a Tensor of another shape.
        """
        refuse = For("register_hook")
        # A copy: a hook may remove itself.
        for hook in list(self.entries.values()):
            replaced = refuse.typed("what the hook returns", hook(gradient), "a Tensor or None", Tensor | None)
            if replaced is None:
                continue
            if replaced.shape != gradient.shape:
                raise refuse.error(f"the hook must return a gradient of shape {gradient.shape}", replaced.shape)
            gradient = replaced.astype(gradient.dtype)
        return gradient


class _Number:
    """What a Tensor has in place of hooks that `mutable` made of a number: it has no gradient, as numbers have none."""

    def key(self, array: jax.Array) -> tuple[_Number, tuple[()]]:
        return self, ()

    def of(self, array: jax.Array) -> _Number:
        return self


NUMBER = _Number()


def is_number(value: object) -> bool:
    """Whether `mutable` made it of a number."""
    return getattr(value, "static_part", None) is NUMBER


class GradientHookHandle:
    """What registering returns; `remove` takes the hook away."""

    _numbers = itertools.count()

    def __init__(self, hooks: Hooks, hook: Hook) -> None:
        self._hooks = hooks
        self._number = next(self._numbers)
        hooks.entries[self._number] = hook
        # Compiled gradients have their hooks compiled in.
        frames.touch()

    def remove(self) -> None:
        """Take the hook away; doing it twice is fine."""
        self._hooks.entries.pop(self._number, None)
        frames.touch()


def register_hook(self: Tensor, hook: Hook) -> GradientHookHandle:
    """``hook(gradient)`` runs in the backward pass; what it returns (unless None) replaces the gradient of this tensor.

    The hook sees what comes from uses of the tensor after the registration; of an input, the whole gradient.

    Raises:
        SporaxTypeError: `hook` is not callable.
    """
    _check(hook)
    hooks: object = self.static_part
    # After an assignment the Tensor holds another array, which the identity does not see.
    if not isinstance(hooks, Hooks) or hooks.array is not self.array:
        hooks = Hooks()
        # Bound now: hooks that are registered later join the same list.
        run = hooks.run
        self._replace(watched(self.array, lambda gradients: (run(gradients[0]),)))
        hooks.array = self.array
        self.static_part = hooks
    return GradientHookHandle(hooks, hook)


def register_parameter_hook(self: Parameter, hook_fn: Hook) -> GradientHookHandle:
    """``hook_fn(gradient)`` runs when the gradient of this Parameter is complete; its result (unless None) replaces it.

    Raises:
        SporaxTypeError: `hook_fn` is not callable.
    """
    _check(hook_fn)
    hooks: Hooks | None = self.static_part
    if hooks is None:
        hooks = self.static_part = Hooks()
    return GradientHookHandle(hooks, hook_fn)


def _check(hook: object) -> None:
    For("register_hook").refuse_type(not callable(hook), "the hook must be a function", type(hook).__name__)


# Hooks stand above tensors, so these get their methods here.
for _class, _method in ((Tensor, register_hook), (Parameter, register_parameter_hook)):
    setattr(_class, "register_hook", _method)  # noqa: B010  # checkers know the method of the class


# Per thread: what one thread switches off must not stop the gradients of another one.
class _Switch(threading.local):
    on = True


_switch = _Switch()


def is_on() -> bool:
    """Whether gradients flow through the operators of this thread."""
    return _switch.on


def turn(on: bool) -> None:
    """Let gradients flow through the operators that follow, or not."""
    _switch.on = on
