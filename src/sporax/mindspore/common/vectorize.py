"""Functions over a further dimension, and whole Jacobians: `vmap`, `jacfwd`, `jacrev`.

Like the gradients of `transforms`, they run the user's function in a frame of its own as a pure function, and hand that to
JAX's transformation of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax

from sporax.base.errors import (
    SporaxNotImplementedError,
    SporaxRuntimeError,
    SporaxTypeError,
    SporaxValueError,
    check_type,
)
from sporax.mindspore.common._pullback import Call, Updates
from sporax.mindspore.common.jit import compiled_in_graph_mode, returning_values
from sporax.mindspore.common.tensor import wrap
from sporax.runtime.ranks.exchanges import ReverseModeNeeded, forward_mode_refused
from sporax.runtime.state import frames


def vmap(fn: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function that applies `fn` to every member along one dimension of its arguments, as one computation.

    Args:
        fn: function or Cell of Tensors.
        in_axes: which dimension of the arguments is mapped: an int for all, or a tuple with, per argument, an int, None (the
            argument is the same for every member) or such a tuple again.
        out_axes: at which dimension results are stacked: likewise. None: the result is the same for every member.

    Raises:
        SporaxTypeError: `fn` is not callable, or axes are neither ints, None nor tuples of them.
        SporaxNotImplementedError: `fn` is a CellList (MindSpore's way to map over networks).
        SporaxRuntimeError: when called: axes that do not fit the arguments or results, members of different number, nothing
            that is mapped, or a Parameter that would get one value per member.

    Example:
        >>> vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(matrix, vector)
    """
    # By name: CellList is above this module.
    if type(fn).__name__ == "CellList":
        raise SporaxNotImplementedError("For 'vmap', 'fn' must be one function or Cell, but got a CellList.")
    _check_axes("in_axes", in_axes)
    _check_axes("out_axes", out_axes)

    values = returning_values(fn)

    def pure(*args: Any) -> tuple[Any, Updates]:
        result, updates = frames.isolate(lambda: values(*args))
        return result, Updates(updates)

    # Writes are not mapped: one value per member has no place in a Parameter.
    mapped = jax.vmap(pure, in_axes=in_axes, out_axes=(out_axes, None))

    def over_members(*args: Any) -> Any:
        try:
            result, updates = mapped(*args)
        except ValueError as error:
            # JAX's own messages about axes start so.
            if not str(error).startswith(("vmap ", "at vmap ", "axis ")):
                raise
            raise SporaxRuntimeError(
                f"For 'vmap', 'in_axes' {in_axes} and 'out_axes' {out_axes} must fit the arguments and results of the function, "
                f"and a Parameter must get one value for all members, but: {error}"
            ) from None
        frames.commit(updates)
        return result

    return compiled_in_graph_mode("vmap", over_members, fn)


def jacfwd(
    fn: Callable[..., Any], grad_position: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `fn`, computed forwards: fast when inputs are smaller than outputs.

    Args:
        fn: function or Cell of Tensors.
        grad_position: which arguments to differentiate: one or several.
        has_aux: only the first output is differentiated; the others come back as they are.

    Returns:
        A function with the arguments of `fn`. A Jacobian has the shape of the output followed by that of the input. Several
        inputs give a tuple, several outputs a tuple of that; with `has_aux` the pair of this and the further outputs.

    Raises:
        SporaxTypeError, SporaxValueError: wrong kinds of arguments.
        SporaxIndexError: when called: `grad_position` is beyond the arguments.
    """
    return _jacobian("jacfwd", jax.jacfwd, fn, grad_position, has_aux)


def jacrev(
    fn: Callable[..., Any], grad_position: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `fn`, computed backwards: fast when outputs are smaller than inputs.

    Arguments, results and errors as `jacfwd`.
    """
    return _jacobian("jacrev", jax.jacrev, fn, grad_position, has_aux)


def _jacobian(
    what: str, transform: Callable[..., Any], fn: Callable[..., Any], grad_position: Any, has_aux: Any
) -> Callable[..., Any]:
    positions = grad_position if isinstance(grad_position, tuple) else (grad_position,)
    if any(isinstance(position, bool) or not isinstance(position, int) for position in positions):
        raise SporaxTypeError(f"For '{what}', 'grad_position' must be int or tuple of ints, but got {grad_position!r}.")
    if not positions or any(position < 0 for position in positions) or len(set(positions)) < len(positions):
        raise SporaxValueError.must(what, "grad_position", "hold distinct numbers >= 0", grad_position)
    check_type(what, "has_aux", has_aux, "a bool", bool)

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call = Call(fn, args, kwargs, positions, has_aux=has_aux)
        if len(call.positions) < len(positions):
            wrong = next(position for position in positions if position not in call.positions)
            raise SporaxTypeError(
                f"For '{what}', the argument {wrong} must be a Tensor, but got {type(call.values[wrong]).__name__}."
            )
        # All inputs of the call are to be differentiated.
        numbers = tuple(range(len(positions)))

        def pure(*inputs: jax.Array) -> tuple[list[jax.Array], Any]:
            return call.pure(inputs, [])

        try:
            # Some operators, such as collectives, have a reverse mode only; the Jacobian is the same.
            with forward_mode_refused() if transform is jax.jacfwd else nullcontext():
                by_output, (updates, _, rest) = transform(pure, argnums=numbers, has_aux=True)(*call.inputs)
        except ReverseModeNeeded:
            by_output, (updates, _, rest) = jax.jacrev(pure, argnums=numbers, has_aux=True)(*call.inputs)
        frames.commit(updates)
        rows = _shaped([_shaped([wrap(column) for column in by_input]) for by_input in by_output])
        return (rows, _shaped(rest[1].fill(rest[0]))) if has_aux else rows

    return compiled_in_graph_mode(what, jacobian, fn)


def _shaped(values: Any) -> Any:
    """One value itself, several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


def _check_axes(what: str, axes: object) -> None:
    if isinstance(axes, tuple):
        for axis in axes:
            _check_axes(what, axis)
    elif isinstance(axes, bool) or not (axes is None or isinstance(axes, int)):
        raise SporaxTypeError.must("vmap", what, "be an int, None or a tuple of these", type(axes).__name__)
