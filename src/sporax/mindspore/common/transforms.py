"""Derivatives of functions and Cells: `value_and_grad`, `grad`, `jvp`, `vjp`, `GradOperation`.

What differentiates is in `_pullback`; here are MindSpore's ways of requesting it and the forms it answers in. Outputs that
are not scalars are differentiated as their sum, as MindSpore does.

Functions over a further dimension, and whole Jacobians: `vmap`, `jacfwd`, `jacrev`.

Like the gradients of `transforms`, they run the user's function in a frame of its own as a pure function, and hand that to
JAX's transformation of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError, named
from sporax.mindspore.common._pullback import Call, Pullback, Updates, is_differentiable, pushforward, zeros_like
from sporax.mindspore.common.gradient_hooks import is_number
from sporax.mindspore.common.jit import compiled_in_graph_mode, returning_values
from sporax.mindspore.common.one_forward import pullback_of
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor, is_tensor, wrap
from sporax.runtime.ranks import ReverseModeNeeded, forward_mode_refused
from sporax.runtime.state import frames

Positions = tuple[int, ...]
_Axes: TypeAlias = "int | tuple[_Axes, ...] | None"
Position = int | tuple[int, ...] | None


def value_and_grad(
    fn: Callable[..., Any],
    grad_position: Position = 0,
    weights: object = None,
    has_aux: bool = False,
    return_ids: bool = False,
    sens_param: bool = False,
) -> Callable[..., Any]:
    """A function that returns ``(fn's outputs, gradients)``.

    Args:
        fn: function or Cell of Tensors.
        grad_position: which arguments to differentiate: one, several, or None for none. Arguments given by name count
            after the others.
        weights: Parameter, or a list or tuple of them, to differentiate. One that does not require a gradient gets zeros.
        has_aux: only the first output is differentiated; the others come back as they are.
        return_ids: each gradient comes as ``(position or name, gradient)``.
        sens_param: the last positional argument of the call, or the one called ``sens``, is the sensitivity (cotangent) of
            the output.

    Returns:
        A function with the arguments of `fn`. Its gradients: those of the inputs (the gradient itself when there is one,
        else a tuple), those of the weights (a tuple, or the gradient itself for a single Parameter), or the pair of both.

    Raises:
        SporaxTypeError, SporaxValueError: wrong kinds of arguments, or nothing to differentiate.
        SporaxIndexError: when called: `grad_position` is beyond the arguments.

    Example:
        >>> grad_fn = value_and_grad(forward, None, net.trainable_params())
        >>> loss, grads = grad_fn(x, y)
    """
    return _differentiated(fn, grad_position, weights, has_aux, return_ids, sens_param, lambda *both: both)


def grad(
    fn: Callable[..., Any],
    grad_position: Position = 0,
    weights: object = None,
    has_aux: bool = False,
    return_ids: bool = False,
    sens_param: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradients of `fn`; with `has_aux` the pair of gradients and further outputs.

    Arguments and errors as `value_and_grad`.
    """

    def answer(outputs: Any, gradients: Any) -> Any:
        return (gradients, tuple(outputs[1:])) if has_aux else gradients

    return _differentiated(fn, grad_position, weights, has_aux, return_ids, sens_param, answer)


def get_grad(gradients: object, identifier: int | Parameter) -> Tensor:
    """The gradient of one input or Parameter among those computed with ``return_ids=True``.

    Raises:
        SporaxTypeError: `identifier` is neither an int nor a Parameter.
        SporaxRuntimeError: it is not among them.
    """
    For("get_grad").typed("identifier", identifier, "int or Parameter", int | Parameter)
    key = identifier.name if isinstance(identifier, Parameter) else identifier
    gradient = _find_grad(gradients, key)
    if gradient is None:
        raise SporaxRuntimeError(f"Can not find the gradient for position or Parameter {key}.")
    return gradient


def _find_grad(gradients: object, key: int | str) -> Tensor | None:
    if not isinstance(gradients, tuple):
        return None
    # A pair of name and gradient, not a tuple of gradients.
    if len(gradients) == 2 and isinstance(gradients[0], int | str):
        return gradients[1] if gradients[0] == key else None
    return next((match for gradient in gradients if (match := _find_grad(gradient, key)) is not None), None)


class GradOperation:
    """Older way to request gradients: ``GradOperation(…)(net)(x)`` or ``GradOperation(…)(net, weights)(x)``.

    Args:
        get_all: gradients of all inputs (a tuple), those by name last, not of the first only.
        get_by_list: gradients of the weights given with the network.
        sens_param: the last argument of the call is the sensitivity (cotangent) of the output.

    Raises:
        SporaxTypeError: an argument is not a bool.
    """

    def __init__(self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False) -> None:
        _check_flags(get_all=get_all, get_by_list=get_by_list, sens_param=sens_param)
        self.get_all = get_all
        self.get_by_list = get_by_list
        self.sens_param = sens_param

    def __call__(self, fn: Callable[..., Any], weights: object = None) -> Callable[..., Any]:
        """The gradient function of `fn`."""
        if self.get_by_list and weights is None:
            if not hasattr(fn, "trainable_params"):
                raise SporaxTypeError("For 'GradOperation', 'get_by_list' needs the 'weights' as second argument.")
            weights = fn.trainable_params()
        chosen, single = _weights(weights) if self.get_by_list else (None, False)

        def gradients(*args: object, **kwargs: Any) -> Any:
            args, kwargs, sens = _without_sens(args, kwargs, self.sens_param)
            # Numbers and other arguments have no gradient.
            inputs = (*args, *kwargs.values())
            positions = tuple(index for index, value in enumerate(inputs) if is_differentiable(value))
            if not self.get_all:
                # With weights alone no input is differentiated, as in MindSpore.
                positions = () if self.get_by_list else positions[:1]
            pullback = pullback_of(Call(fn, args, kwargs, positions, chosen or ()))
            by_input, by_weight = pullback(sens)
            every = _with_numbers(by_input, positions, range(len(inputs)) if self.get_all else (), inputs)
            shaped = tuple(every.values()) if self.get_all else next(iter(by_input), ())
            if chosen is None:
                return shaped
            weighted = _shaped_weights(by_weight, chosen, single, False)
            return (shaped, weighted) if self.get_all else weighted

        return compiled_in_graph_mode("grad", gradients, fn)


def jvp(fn: Callable[..., Any], inputs: object, v: object, has_aux: bool = False) -> tuple[Any, ...]:
    """Outputs of ``fn(*inputs)`` and their derivative in direction `v`; with `has_aux` further outputs third, one by itself.

    Args:
        fn: function or Cell of Tensors.
        inputs: Tensor, or tuple or list of Tensors.
        v: directions: as many, of the same shapes.
        has_aux: only the first output is differentiated.

    Raises:
        SporaxTypeError: inputs or directions are not Tensors.
        SporaxValueError: not one direction of the same shape per input.
    """
    # One Tensor and a tuple of one are the same.
    primals, directions = _tensor_tuple("jvp", inputs), _tensor_tuple("jvp", v)
    if len(primals) != len(directions):
        raise SporaxValueError(f"For 'jvp', v has invalid length: should be {len(primals)}, but got {len(directions)}.")
    for index, (primal, direction) in enumerate(zip(primals, directions, strict=True)):
        if primal.shape != direction.shape:
            raise SporaxValueError(
                f"For 'jvp', v[{index}] has shape {direction.shape}, but input {index} has shape {primal.shape}."
            )
    call = Call(fn, primals, {}, tuple(range(len(primals))), has_aux=has_aux)
    outputs, slopes, rest = pushforward(call, [direction.array for direction in directions])
    return (outputs, slopes, _alone(rest)) if has_aux else (outputs, slopes)


def vjp(fn: Callable[..., Any], *inputs: object, weights: object = None, has_aux: bool = False) -> tuple[Any, ...]:
    """Outputs of ``fn(*inputs)`` and the function that maps their cotangents to those of inputs (and weights).

    Args:
        fn: function or Cell of Tensors.
        inputs: Tensors.
        weights: Parameter, or a list or tuple of them.
        has_aux: only the first output is differentiated; the others come third, a single one by itself.

    Returns:
        ``(outputs, backward)``: ``backward(*cotangents)`` gives a tuple with one gradient per input; with `weights` the
        pair of that and the gradients of the weights.

    Raises:
        SporaxTypeError: an input is not a Tensor, or `weights` holds something else than Parameters.
        SporaxValueError: when called back: cotangents that do not match the outputs.
    """
    primals = _tensor_tuple("vjp", inputs)
    chosen, single = _weights(weights)
    pullback = Pullback(Call(fn, primals, {}, tuple(range(len(primals))), chosen or (), has_aux))

    def backward(*cotangents: object) -> Any:
        by_input, by_weight = pullback(cotangents)
        first = tuple(by_input)
        return first if chosen is None else (first, _shaped_weights(by_weight, chosen, single, False))

    results = pullback.outputs, backward
    return (*results, _alone(pullback.rest)) if has_aux else results


def _differentiated(
    fn: Callable[..., Any],
    grad_position: Position,
    weights: object,
    has_aux: bool,
    return_ids: bool,
    sens_param: bool,
    answer: Callable[[Any, Any], Any],
) -> Callable[..., Any]:
    """The function behind `value_and_grad` and `grad`; `answer` makes its result of the outputs and the gradients."""
    positions = _positions(grad_position)
    chosen, single = _weights(weights)
    if positions is None and chosen is None:
        raise SporaxValueError("For 'grad', 'grad_position' and 'weights' can not be None at the same time.")
    _check_flags(has_aux=has_aux, return_ids=return_ids, sens_param=sens_param)

    def differentiate(*args: object, **kwargs: Any) -> Any:
        args, kwargs, sens = _without_sens(args, kwargs, sens_param)
        call = Call(fn, args, kwargs, positions or (), chosen or (), has_aux)
        pullback = pullback_of(call)
        input_grads, weight_grads = pullback(sens)
        outputs = (pullback.outputs, *pullback.rest) if has_aux else pullback.outputs
        every = _with_numbers(input_grads, call.positions, positions or (), call.values)
        by_input = _shaped_inputs(tuple(every.values()), tuple(every), return_ids)
        by_weight = None if chosen is None else _shaped_weights(weight_grads, chosen, single, return_ids)
        # MindSpore leaves the inputs out where none was requested.
        if positions is None:
            return answer(outputs, by_weight)
        return answer(outputs, by_input if chosen is None else (by_input, by_weight))

    return compiled_in_graph_mode("grad", differentiate, fn)


def _without_sens(
    args: tuple[Any, ...], kwargs: dict[str, Any], present: bool
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """The arguments of the function, and the sensitivity: the argument called ``sens``, else the last positional one."""
    if not present:
        return args, kwargs, None
    if "sens" in kwargs:
        return args, {name: value for name, value in kwargs.items() if name != "sens"}, kwargs["sens"]
    For("sens_param").refuse_type(not args, "the last argument must be the sensitivity, but the call has none")
    return args[:-1], kwargs, args[-1]


def _alone(rest: tuple[Any, ...]) -> Any:
    return rest[0] if len(rest) == 1 else rest


def _with_numbers(
    gradients: Sequence[Tensor], positions: Positions, requested: Iterable[int], inputs: Sequence[Any]
) -> dict[int, Tensor | complex]:
    """Gradients by position; in compiled functions those of mutable numbers are Python's zeros, eagerly there are none."""
    found: dict[int, Tensor | complex] = dict(zip(positions, gradients, strict=True))
    if frames.current_frame() is None:
        return found
    zeros = {i: np.zeros((), inputs[i].raw.dtype).item() for i in requested if is_number(inputs[i])}
    return {i: (zeros | found)[i] for i in requested if i in zeros or i in found} or found


def _shaped_inputs(gradients: Sequence[Tensor | complex], positions: Positions, ids: bool) -> Any:
    """One gradient itself, several as a tuple."""
    labelled = tuple(zip(positions, gradients, strict=True)) if ids else tuple(gradients)
    return labelled[0] if len(labelled) == 1 else labelled


def _shaped_weights(
    gradients: Mapping[Parameter, Tensor], weights: Sequence[Parameter], single: bool, ids: bool
) -> Any:
    # Weights that do not require a gradient get zeros.
    tensors = [gradients[weight] if weight in gradients else zeros_like(weight) for weight in weights]
    labelled = tuple(zip((weight.name for weight in weights), tensors, strict=True)) if ids else tuple(tensors)
    return labelled[0] if single else labelled


def _positions(value: object) -> Positions | None:
    if value is None:
        return None
    values = value if isinstance(value, tuple) else (value,)
    if any(isinstance(position, bool) or not isinstance(position, int) for position in values):
        raise SporaxTypeError(f"For 'grad', 'grad_position' must be int, tuple of ints or None, but got {value!r}.")
    For("grad").refuse_state(not values, "'grad_position' must not be empty", value)
    if any(position < 0 for position in values) or len(set(values)) < len(values):
        raise SporaxValueError(f"For 'grad', 'grad_position' must hold distinct numbers >= 0, but got {value}.")
    return values


def _weights(value: object) -> tuple[tuple[Parameter, ...] | None, bool]:
    if value is None:
        return None, False
    if isinstance(value, Parameter):
        return (value,), True
    if not isinstance(value, tuple | list) or any(not isinstance(weight, Parameter) for weight in value):
        raise For("grad").type_error("'weights' must be a Parameter or a list or tuple of them", repr(value))
    return tuple(value), False


def _check_flags(**flags: object) -> None:
    for name, value in flags.items():
        For("grad").typed(name, value, "a bool", bool)


def _tensor_tuple(what: str, values: object) -> tuple[Tensor, ...]:
    items = tuple(values) if isinstance(values, tuple | list) else (values,)
    if any(not isinstance(item, Tensor) for item in items):
        raise SporaxTypeError(f"For '{what}', the inputs must be a Tensor, or a tuple or list of Tensors.")
    return items


def vmap(fn: Callable[..., Any], in_axes: object = 0, out_axes: object = 0) -> Callable[..., Any]:
    """A function that applies `fn` to every member along one dimension of its arguments, as one computation.

    Args:
        fn: function or Cell of Tensors; or a CellList of Cells of one kind, each of which gets one member.
        in_axes: which dimension of the arguments is mapped: an int for all, or a tuple with, per argument, an int, None (the
            argument is the same for every member) or such a tuple again.
        out_axes: at which dimension results are stacked: likewise. None: the result is the same for every member.

    Raises:
        SporaxTypeError: `fn` is not callable, or axes are neither ints, None nor tuples of them.
        SporaxRuntimeError: when called: axes that do not fit the arguments or results, members of different number, nothing
            that is mapped, or a Parameter that would get one value per member.

    Example:
        >>> vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(matrix, vector)
    """
    # By name: CellList is above this module.
    if type(fn).__name__ == "CellList":
        return _over_cells(fn, _axes("in_axes", in_axes), _axes("out_axes", out_axes))
    in_axes, out_axes = _axes("in_axes", in_axes), _axes("out_axes", out_axes)
    values = returning_values(fn)

    def pure(*args: object) -> tuple[Any, Updates]:
        result, updates = frames.isolate(lambda: _tensors(values(*args)))
        return result, Updates(updates)

    # Writes are not mapped: one value per member has no place in a Parameter.
    mapped = jax.vmap(pure, in_axes=in_axes, out_axes=(out_axes, None))

    def over_members(*args: object) -> Any:
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


def _tensors(results: object) -> Any:
    """`results` with Tensors in place of numbers, of which the members' are stacked as well."""
    return jax.tree.map(lambda leaf: leaf if is_tensor(leaf) else Tensor(leaf), results, is_leaf=is_tensor)


def _over_cells(cells: Any, in_axes: _Axes, out_axes: _Axes) -> Callable[..., Any]:
    """`vmap` over the Cells of a CellList: each runs its own member, as they may differ in more than their Parameters."""

    def member(axes: _Axes, value: Any, number: int) -> Any:
        if isinstance(value, tuple | list):
            each = axes if isinstance(axes, tuple) else (axes,) * len(value)
            return tuple(member(axis, part, number) for axis, part in zip(each, value, strict=True))
        return wrap(jnp.take(value.array, number, axes)) if isinstance(axes, int) else value

    def stacked(axes: _Axes, results: Sequence[Any]) -> Any:
        if isinstance(results[0], tuple | list):
            each = axes if isinstance(axes, tuple) else (axes,) * len(results[0])
            return tuple(stacked(axis, parts) for axis, *parts in zip(each, *results, strict=True))
        return wrap(jnp.stack([result.array for result in results], axes)) if isinstance(axes, int) else results[0]

    def over_members(*args: Any) -> Any:
        return stacked(out_axes, [_tensors(cell(*member(in_axes, args, place))) for place, cell in enumerate(cells)])

    return compiled_in_graph_mode("vmap", over_members, cells)


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
    what: str, transform: Callable[..., Any], fn: Callable[..., Any], grad_position: object, has_aux: Any
) -> Callable[..., Any]:
    positions = grad_position if isinstance(grad_position, tuple) else (grad_position,)
    if any(isinstance(position, bool) or not isinstance(position, int) for position in positions):
        raise SporaxTypeError(f"For '{what}', 'grad_position' must be int or tuple of ints, but got {grad_position!r}.")
    if not positions or any(position < 0 for position in positions) or len(set(positions)) < len(positions):
        raise For(what).error("'grad_position' must hold distinct numbers >= 0", grad_position)
    For(what).typed("has_aux", has_aux, "a bool", bool)

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call = Call(fn, args, kwargs, positions, has_aux=has_aux)
        if len(call.positions) < len(positions):
            wrong = next(position for position in positions if position not in call.positions)
            raise For(what).type_error(f"the argument {wrong} must be a Tensor", type(call.values[wrong]).__name__)
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


def _axes(what: str, axes: object) -> _Axes:
    """The axes, lists among them as tuples."""
    if isinstance(axes, tuple | list):
        return tuple(_axes(what, axis) for axis in axes)
    if isinstance(axes, bool) or not (axes is None or isinstance(axes, int)):
        raise For("vmap").type_error(f"{named(what)} must be an int, None or a tuple of these", type(axes).__name__)
    return axes
