"""Hooks on gradients, which see and may replace one at a place of a computation; calls whose gradients the user says.

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
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxError, SporaxTypeError
from sporax.ir.marks import LayoutMark, Side, next_number
from sporax.lowering import marks as trace_marks
from sporax.mindspore.common._pullback import dense, is_inexact, no_cotangent, take_apart
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.runtime.state import frames

Hook = Callable[..., Any]


def watched(
    value: Any,
    on_gradient: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]],
    on_forward: Callable[[], None] = lambda: None,
) -> Any:
    """`value` passed through an identity whose gradients go through `on_gradient`.

    Args:
        value: pytree with arrays in it.
        on_gradient: takes and returns the gradients of all arrays.
        on_forward: called when a gradient of this value will be taken.
    """
    leaves, tree = jax.tree.flatten(value)
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

    def run(self, gradient: Tensor) -> Tensor:
        """The gradient after all hooks, in the order of their registration."""
        # A copy: a hook may remove itself.
        for hook in list(self.entries.values()):
            replaced = hook(gradient)
            gradient = gradient if replaced is None else replaced
        return gradient


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

    The hook sees what comes from uses of the tensor after the registration.

    Raises:
        SporaxTypeError: `hook` is not callable.
    """
    _check(hook)
    hooks: Hooks | None = getattr(self, "gradient_hooks", None)
    # After an assignment the Tensor holds another array, which the identity does not see.
    if hooks is None or hooks.array is not self.array:
        hooks = Hooks()
        # Bound now: hooks that are registered later join the same list.
        run = hooks.run
        self._replace(watched(self.array, lambda gradients: (run(gradients[0]),)))
        hooks.array = self.array
        self.gradient_hooks = hooks
    return GradientHookHandle(hooks, hook)


def register_parameter_hook(self: Parameter, hook_fn: Hook) -> GradientHookHandle:
    """``hook_fn(gradient)`` runs when the gradient of this Parameter is complete; its result (unless None) replaces it.

    Raises:
        SporaxTypeError: `hook_fn` is not callable.
    """
    _check(hook_fn)
    hooks: Hooks | None = getattr(self, "gradient_hooks", None)
    if hooks is None:
        hooks = self.gradient_hooks = Hooks()
    return GradientHookHandle(hooks, hook_fn)


def _check(hook: object) -> None:
    SporaxTypeError.raise_if(not callable(hook), "register_hook", "the hook", "be a function", type(hook).__name__)


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


def own_gradient(
    name: str,
    run: Callable[..., Any],
    bprop: Callable[..., Any],
    inputs: tuple[Any, ...],
    parameters: Sequence[Parameter] = (),
    error: type[SporaxError] = SporaxTypeError,
) -> Any:
    """`run` of these inputs, with `bprop` in place of its derivative (`jax.custom_vjp`).

    Args:
        name: of what is called, for messages.
        run: gives a Tensor, or containers of Tensors and constants.
        bprop: ``bprop(*inputs, out, dout)`` gives one gradient per input, in containers like the input's.
        inputs: Tensors, containers of Tensors, and constants.
        parameters: what `run` and `bprop` may read besides; as in MindSpore their gradients are 0.
        error: what is raised where the gradients do not fit the inputs.
    """
    arrays, structure = take_apart(inputs)
    # Outside of any frame and transformation nothing is differentiated.
    if frames.current_frame() is None and not any(isinstance(array, jax.core.Tracer) for array in arrays):
        return run(*inputs)
    seen: dict[str, Any] = {}  # filled while the function is traced: these are no arrays

    def forward(arrays: list[jax.Array], held: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        values = dict(zip(parameters, held, strict=True))
        # Writes leave as outputs, so that JAX sees a pure function.
        (outputs, seen["result"]), updates = frames.isolate(lambda: take_apart(run(*structure.fill(arrays))), values)
        seen["written"] = tuple(updates)
        return outputs, list(updates.values())

    def keeping(arrays: list[jax.Array], held: list[jax.Array]) -> Any:
        results = forward(arrays, held)
        return results, (arrays, held, results[0])

    def backward(residuals: Any, cotangents: Any) -> tuple[list[Any], list[Any]]:
        arrays, held, outputs = residuals
        out = seen["result"].fill(outputs)
        dout = seen["result"].fill(list(map(dense, cotangents[0], outputs)))
        values = dict(zip(parameters, held, strict=True))
        gradients, _ = frames.isolate(lambda: bprop(*structure.fill(arrays), out, dout), values)
        found = _fitting(name, gradients, inputs, error)
        return list(map(_cotangent, found, arrays)), [_cotangent(0, array) for array in held]

    differentiable, number = jax.custom_vjp(forward), next_number()
    differentiable.defvjp(keeping, backward)
    held = [frames.read(parameter) for parameter in parameters]
    outputs, updates = differentiable(_marked(name, number, arrays, Side.IN), held)
    frames.commit(dict(zip(seen["written"], updates, strict=True)))
    return seen["result"].fill(_marked(name, number, outputs, Side.OUT))


def _marked(name: str, number: int, arrays: list[jax.Array], side: Side) -> list[jax.Array]:
    """The same arrays; what has a cotangent passes a mark of its own, where a plan counts the ranks that repeat it."""
    marks = (LayoutMark(name, number, (None,), bprop=(side, position)) for position in range(len(arrays)))
    pairs = zip(arrays, marks, strict=True)
    return [trace_marks.apply_mark([array], mark)[0] if is_inexact(array) else array for array, mark in pairs]


def _fitting(name: str, gradients: Any, inputs: tuple[Any, ...], error: type[SporaxError]) -> list[Any]:
    """The gradient of each array of the inputs: an array of as many elements, or a number."""
    gradients = gradients if isinstance(gradients, tuple | list) else (gradients,)
    if len(gradients) != len(inputs):
        raise error(
            f"For '{name}', 'bprop' must return {len(inputs)} gradients, one per input, but returned {len(gradients)}."
        )
    found: list[Any] = []
    for place, (gradient, value) in enumerate(zip(gradients, inputs, strict=True)):
        # What holds no Tensor has no gradient, whatever stands for it.
        if arrays := take_apart(value)[0]:
            leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(gradient)]
            shapes, expected = [leaf.shape for leaf in leaves], [array.shape for array in arrays]
            if len(leaves) != len(arrays) or any(
                leaf.ndim and leaf.size != array.size for leaf, array in zip(leaves, arrays, strict=True)
            ):
                raise error(
                    f"For '{name}', 'bprop' must return gradients of the shapes {expected} for input {place}, but got {shapes}."
                )
            found += leaves
    return found


def _cotangent(gradient: Any, like: jax.Array) -> Any:
    """What JAX expects of a gradient."""
    if not is_inexact(like):
        return no_cotangent(like)
    array = jnp.asarray(gradient, like.dtype)
    return array.reshape(like.shape) if array.ndim else jnp.full(like.shape, array)
