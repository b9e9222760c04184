"""Hooks of a Cell: functions that see (and may replace) what goes in, what comes out, and the gradients of both."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import jax

from sporax.base.errors import SporaxTypeError
from sporax.base.lazy_members import dataclass
from sporax.mindspore.common.gradient_hooks import watched
from sporax.mindspore.common.tensor import Tensor
from sporax.runtime.state import frames

Hook = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A registered hook and how it wants to be called."""

    hook: Hook
    with_kwargs: bool = False
    always: bool = False


class HookHandle:
    """What registering returns; `remove` takes the hook away."""

    _numbers = itertools.count()

    def __init__(self, hooks: dict[int, _Entry], entry: _Entry, prepend: bool = False) -> None:
        self._hooks = hooks
        self._number = next(self._numbers)
        others = dict(hooks) if prepend else {}
        # The new hook first: dicts keep the order in which keys came.
        if prepend:
            hooks.clear()
        hooks[self._number] = entry
        hooks.update(others)
        frames.touch()

    def remove(self) -> None:
        """Take the hook away; doing it twice is fine."""
        self._hooks.pop(self._number, None)
        frames.touch()


class CellHooks:
    """Hooks of a Cell. Mixed into `Cell`.

    In GRAPH_MODE hooks run while the program is compiled and become part of it; they see traced Tensors.

    Attributes:
        _hooks: None until the first hook is registered, so Cells without hooks pay nothing.
    """

    _hooks: dict[str, dict[int, _Entry]] | None

    def _register(self, kind: str, entry: _Entry, prepend: bool = False) -> HookHandle:
        if not callable(entry.hook):
            raise SporaxTypeError.must(f"register_{kind}_hook", "the hook", "be a function", type(entry.hook).__name__)
        if self._hooks is None:
            self._hooks = {}
        return HookHandle(self._hooks.setdefault(kind, {}), entry, prepend)

    def register_forward_pre_hook(
        self, hook_fn: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """``hook_fn(cell, inputs)`` runs before construct; what it returns (unless None) replaces the inputs.

        Args:
            hook_fn: the hook; with `with_kwargs` it is called ``hook_fn(cell, args, kwargs)`` and returns both, or None.
            prepend: run it before the hooks that are there already.
            with_kwargs: whether the hook sees keyword arguments.
        """
        return self._register("forward_pre", _Entry(hook_fn, with_kwargs), prepend)

    def register_forward_hook(
        self, hook_fn: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> HookHandle:
        """``hook_fn(cell, inputs, output)`` runs after construct; what it returns (unless None) replaces the output.

        Args:
            hook_fn: the hook; with `with_kwargs` it is called ``hook_fn(cell, args, kwargs, output)``.
            prepend: run it before the hooks that are there already.
            with_kwargs: whether the hook sees keyword arguments.
            always_call: call it also when construct raises, with None for the output.
        """
        return self._register("forward", _Entry(hook_fn, with_kwargs, always_call), prepend)

    def register_backward_hook(self, hook_fn: Hook) -> HookHandle:
        """``hook_fn(cell, grad_input, grad_output)`` runs in the backward pass; its result replaces `grad_input`.

        Both gradients are tuples of Tensors. Where no input of the Cell is differentiated, `grad_input` holds None.
        """
        return self._register("backward", _Entry(hook_fn))

    def register_backward_pre_hook(self, hook_fn: Hook) -> HookHandle:
        """``hook_fn(cell, grad_output)`` runs in the backward pass before the Cell's; its result replaces `grad_output`."""
        return self._register("backward_pre", _Entry(hook_fn))


def run_hooked(cell: CellHooks, construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``construct(*args, **kwargs)`` with the Cell's hooks around it."""
    hooks = cell._hooks or {}
    # A copy: a hook may remove itself.
    for entry in list(hooks.get("forward_pre", {}).values()):
        args, kwargs = _before(entry, cell, args, kwargs)
    # Identities cost something in every step, so they are there only for such hooks.
    watch = _Backward(cell, hooks) if hooks.get("backward") or hooks.get("backward_pre") else None
    try:
        output = construct(*(watch.enter(args) if watch else args), **kwargs)
    except Exception:
        _after_failure(cell, hooks, args, kwargs)
        raise
    for entry in list(hooks.get("forward", {}).values()):
        replaced = _call_forward(entry, cell, args, kwargs, output)
        if replaced is not None:
            output = replaced
    # Gradients are those of the Cell with its forward hooks, as in MindSpore.
    return watch.leave(output) if watch else output


def _before(entry: _Entry, cell: CellHooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    replaced = entry.hook(cell, args, kwargs) if entry.with_kwargs else entry.hook(cell, args)
    if replaced is None:
        return args, kwargs
    if not entry.with_kwargs:
        # One value replaces all inputs, as in MindSpore.
        return (replaced if isinstance(replaced, tuple) else (replaced,)), kwargs
    if not (isinstance(replaced, tuple) and len(replaced) == 2 and isinstance(replaced[1], dict)):
        raise SporaxTypeError(
            "For 'register_forward_pre_hook', a hook with 'with_kwargs' must return None or (args, kwargs), "
            f"but got {type(replaced).__name__}."
        )
    replacement = replaced[0]
    return (replacement if isinstance(replacement, tuple) else (replacement,)), replaced[1]


def _call_forward(entry: _Entry, cell: CellHooks, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    return entry.hook(cell, args, kwargs, output) if entry.with_kwargs else entry.hook(cell, args, output)


def _after_failure(cell: CellHooks, hooks: dict[str, dict[int, _Entry]], args: tuple[Any, ...], kwargs: Any) -> None:
    """Call the hooks that want to be called always; what goes wrong in them must not hide the first error."""
    for entry in list(hooks.get("forward", {}).values()):
        if entry.always:
            try:
                _call_forward(entry, cell, args, kwargs, None)
            except Exception as error:
                warnings.warn(f"For 'register_forward_hook', a hook failed after construct had: {error}", stacklevel=2)


class _Backward:
    """Identity operators at a Cell's inputs and outputs whose gradients call the hooks.

    The backward pass meets the outputs first; their gradient is kept for the hooks that want both.
    """

    def __init__(self, cell: CellHooks, hooks: dict[str, dict[int, _Entry]]) -> None:
        self.cell = cell
        self.hooks = hooks
        self.grad_output: tuple[Tensor, ...] = ()
        self.inputs_have_gradients = False
        self.count = 0

    def _note_inputs(self) -> None:
        self.inputs_have_gradients = True

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs, watched."""
        # Counted now: without gradients of inputs, hooks get as many Nones.
        self.count = len(jax.tree.leaves(args))

        def at_inputs(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            for entry in self.hooks.get("backward", {}).values():
                replaced = entry.hook(self.cell, gradients, self.grad_output)
                if replaced is not None:
                    gradients = replaced if isinstance(replaced, tuple) else (replaced,)
            return gradients

        return watched(args, at_inputs, self._note_inputs)

    def leave(self, output: Any) -> Any:
        """The outputs, watched."""

        def at_outputs(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            for entry in self.hooks.get("backward_pre", {}).values():
                replaced = entry.hook(self.cell, gradients)
                if replaced is not None:
                    gradients = replaced if isinstance(replaced, tuple) else (replaced,)
            # Kept for the hooks at the inputs, which see both gradients.
            self.grad_output = gradients
            # Without differentiated inputs the backward pass ends here, so the hooks run now.
            if not self.inputs_have_gradients:
                for entry in self.hooks.get("backward", {}).values():
                    entry.hook(self.cell, (None,) * self.count, gradients)
            return gradients

        return watched(output, at_outputs)
