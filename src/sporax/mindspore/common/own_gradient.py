"""Calls whose gradients the user says: `bprop` of Cells, of `Custom` and of operators that a class declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxError, SporaxTypeError
from sporax.ir import LayoutMark, Side, next_number
from sporax.lowering import marks as trace_marks
from sporax.mindspore.common import _integer_gradients as integers
from sporax.mindspore.common._pullback import dense, is_inexact, no_cotangent, take_apart
from sporax.mindspore.common.parameter import Parameter
from sporax.runtime.state import frames


def own_gradient(
    name: str,
    run: Callable[..., Any],
    bprop: Callable[..., Any],
    inputs: tuple[Any, ...],
    parameters: Sequence[Parameter] = (),
    error: type[SporaxError] = SporaxTypeError,
    is_cell: bool = False,
) -> Any:
    """`run` of these inputs, with `bprop` in place of its derivative (`jax.custom_vjp`).

    Args:
        name: of what is called, for messages.
        run: gives a Tensor, or containers of Tensors and constants.
        bprop: ``bprop(*inputs, out, dout)`` gives one gradient per input, in containers like the input's.
        inputs: Tensors, containers of Tensors, and constants.
        parameters: what `run` and `bprop` may read besides; as in MindSpore their gradients are 0.
        error: what is raised where the gradients do not fit the inputs.
        is_cell: whether MindSpore's ranks run `bprop` as they run that of a Cell, each by itself (`_marked`).
    """
    arrays, structure = take_apart(inputs)
    # Outside of any frame and transformation nothing is differentiated.
    if frames.current_frame() is None and not any(isinstance(array, jax.core.Tracer) for array in arrays):
        return run(*inputs)
    seen: dict[str, Any] = {}  # filled while the function is traced: these are no arrays
    # Integers are differentiated through their slopes, which are operands and results of their own.
    slopes = {place: slope for place, slope in enumerate(map(integers.find, arrays)) if slope is not None}

    def forward(arrays: list[jax.Array], held: list[jax.Array], _: list[jax.Array]) -> tuple[list[jax.Array], ...]:
        values = dict(zip(parameters, held, strict=True))
        # Writes leave as outputs, so that JAX sees a pure function.
        with integers.hidden():
            (outputs, seen["result"]), updates = frames.isolate(
                lambda: take_apart(run(*structure.fill(arrays))), values
            )
        seen["written"] = tuple(updates)
        seen["integers"] = [place for place, output in enumerate(outputs) if slopes and not is_inexact(output)]
        return outputs, list(updates.values()), [outputs[place].astype(jnp.float64) for place in seen["integers"]]

    def keeping(arrays: list[jax.Array], held: list[jax.Array], slopes: list[jax.Array]) -> Any:
        results = forward(arrays, held, slopes)
        return results, (arrays, held, results[0])

    def backward(residuals: Any, cotangents: Any) -> tuple[list[Any], ...]:
        arrays, held, outputs = residuals
        out = seen["result"].fill(outputs)
        complete = list(map(dense, cotangents[0], outputs))
        for place, cotangent in zip(seen["integers"], cotangents[2], strict=True):
            complete[place] = integers.as_integers(cotangent, outputs[place].dtype)
        dout = seen["result"].fill(complete)
        values = dict(zip(parameters, held, strict=True))
        gradients, _ = frames.isolate(lambda: bprop(*structure.fill(arrays), out, dout), values)
        found = _fitting(name, gradients, inputs, error)
        by_slope = [_cotangent(found[place], slope) for place, slope in slopes.items()]
        return list(map(_cotangent, found, arrays)), [_cotangent(0, array) for array in held], by_slope

    differentiable, number = jax.custom_vjp(forward), next_number()
    differentiable.defvjp(keeping, backward)
    held = [frames.read(parameter) for parameter in parameters]
    marked = _marked(name, number, arrays, Side.IN) if is_cell else arrays
    outputs, updates, smooth = differentiable(marked, held, list(slopes.values()))
    frames.commit(dict(zip(seen["written"], updates, strict=True)))
    for place, slope in zip(seen["integers"], smooth, strict=True):
        integers.note(outputs[place], slope)
    return seen["result"].fill(_marked(name, number, outputs, Side.OUT) if is_cell else outputs)


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
