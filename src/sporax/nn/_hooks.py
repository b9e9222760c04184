"""Hooks of a Cell: functions that see (and may replace) what goes in, what comes out, and the gradients of both."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from sporax.common.tensor import Tensor, wrap
from sporax.ir.errors import SporaxTypeError
from sporax.runtime import state

if TYPE_CHECKING:
    from sporax.nn.cell import Cell

Hook = Callable[..., Any]


class HookHandle:
    """What registering returns; `remove` takes the hook away."""

    _numbers = itertools.count()

    def __init__(self, hooks: dict[int, Hook], hook: Hook) -> None:
        self._hooks = hooks
        self._number = next(self._numbers)
        hooks[self._number] = hook
        state.touch()

    def remove(self) -> None:
        """Take the hook away; doing it twice is fine."""
        self._hooks.pop(self._number, None)
        state.touch()


class CellHooks:
    """Hooks of a Cell. Mixed into `Cell`.

    Attributes:
        _hooks: None until the first hook is registered, so Cells without hooks pay nothing.
    """

    _hooks: dict[str, dict[int, Hook]] | None

    def _register(self, kind: str, hook: Hook) -> HookHandle:
        if not callable(hook):
            raise SporaxTypeError(
                f"For 'register_{kind}_hook', the hook must be a function, but got {type(hook).__name__}."
            )
        if self._hooks is None:
            self._hooks = {}
        return HookHandle(self._hooks.setdefault(kind, {}), hook)

    def register_forward_pre_hook(self, hook_fn: Hook) -> HookHandle:
        """``hook_fn(cell, inputs)`` runs before construct; what it returns (unless None) replaces the inputs."""
        return self._register("forward_pre", hook_fn)

    def register_forward_hook(self, hook_fn: Hook) -> HookHandle:
        """``hook_fn(cell, inputs, output)`` runs after construct; what it returns (unless None) replaces the output."""
        return self._register("forward", hook_fn)

    def register_backward_hook(self, hook_fn: Hook) -> HookHandle:
        """``hook_fn(cell, grad_input, grad_output)`` runs in the backward pass; its result replaces `grad_input`.

        Both gradients are tuples of Tensors.
        """
        return self._register("backward", hook_fn)

    def register_backward_pre_hook(self, hook_fn: Hook) -> HookHandle:
        """``hook_fn(cell, grad_output)`` runs in the backward pass before the Cell's; its result replaces `grad_output`."""
        return self._register("backward_pre", hook_fn)


def run_hooked(cell: Cell, construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``construct(*args, **kwargs)`` with the Cell's hooks around it."""
    hooks = cell._hooks or {}
    for hook in hooks.get("forward_pre", {}).values():
        replaced = hook(cell, args)
        if replaced is not None:
            args = replaced if isinstance(replaced, tuple) else (replaced,)
    watch = _Backward(cell, hooks) if hooks.get("backward") or hooks.get("backward_pre") else None
    if watch:
        args = watch.enter(args)
    output = construct(*args, **kwargs)
    if watch:
        output = watch.leave(output)
    for hook in hooks.get("forward", {}).values():
        replaced = hook(cell, args, output)
        if replaced is not None:
            output = replaced
    return output


class _Backward:
    """Identity operators at a Cell's inputs and outputs whose gradients call the hooks.

    The backward pass meets the outputs first; their gradient is kept for the hooks that want both.
    """

    def __init__(self, cell: Cell, hooks: dict[str, dict[int, Hook]]) -> None:
        self.cell = cell
        self.hooks = hooks
        self.grad_output: tuple[Tensor, ...] = ()

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs, watched."""

        def at_inputs(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            for hook in self.hooks.get("backward", {}).values():
                replaced = hook(self.cell, gradients, self.grad_output)
                if replaced is not None:
                    gradients = replaced if isinstance(replaced, tuple) else (replaced,)
            return gradients

        return _watched(args, at_inputs)

    def leave(self, output: Any) -> Any:
        """The outputs, watched."""

        def at_outputs(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            for hook in self.hooks.get("backward_pre", {}).values():
                replaced = hook(self.cell, gradients)
                if replaced is not None:
                    gradients = replaced if isinstance(replaced, tuple) else (replaced,)
            self.grad_output = gradients
            return gradients

        return _watched(output, at_outputs)


def _watched(value: Any, on_gradient: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]) -> Any:
    """`value` passed through an identity whose gradients go through `on_gradient`."""
    leaves, tree = jax.tree.flatten(value)
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    @jax.custom_vjp
    def identity(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return arrays

    def backward(_: None, gradients: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(tensor.array for tensor in on_gradient(tuple(map(wrap, gradients))))

    identity.defvjp(lambda *arrays: (arrays, None), backward)
    for place, array in zip(places, identity(*(leaves[place] for place in places)), strict=True):
        leaves[place] = array
    return jax.tree.unflatten(tree, leaves)
