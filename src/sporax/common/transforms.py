"""Derivatives of functions and Cells: `value_and_grad`, `grad`, `jvp`, `vjp`, `GradOperation`.

Each is JAX's transformation applied to a pure function made by running the user's function in a frame: Parameters that
are differentiated get their tracers from that frame, Parameters that are written leave as auxiliary results. Outputs that
are not scalars are differentiated as their sum, as MindSpore does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax import context
from sporax.common.jit import Compiled
from sporax.common.parameter import Parameter
from sporax.common.tensor import Tensor, wrap
from sporax.ir.errors import SporaxIndexError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.runtime import state

Positions = tuple[int, ...]


def value_and_grad(
    fn: Callable[..., Any],
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Any = None,
    has_aux: bool = False,
    return_ids: bool = False,
) -> Callable[..., Any]:
    """A function that returns ``(fn's outputs, gradients)``.

    Args:
        fn: function or Cell of Tensors.
        grad_position: which inputs to differentiate: one, several, or None for none.
        weights: Parameter, or a list or tuple of them, to differentiate.
        has_aux: only the first output is differentiated; the others come back as they are.
        return_ids: each gradient comes as ``(position or name, gradient)``.

    Returns:
        A function with the arguments of `fn`. Gradients: those of the inputs (one, or a tuple for a tuple of positions),
        those of the weights (a tuple, or one for a single Parameter), or the pair of both.

    Raises:
        SporaxTypeError, SporaxValueError: wrong kinds of arguments, or nothing to differentiate.

    Example:
        >>> grad_fn = value_and_grad(forward, None, net.trainable_params())
        >>> loss, grads = grad_fn(x, y)
    """
    positions = _positions(grad_position)
    chosen, single_weight = _weights(weights)
    if positions is None and chosen is None:
        raise SporaxValueError("For 'value_and_grad', 'grad_position' and 'weights' can not be None at the same time.")
    _check_flags(has_aux=has_aux, return_ids=return_ids)

    def differentiate(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        outputs, input_grads, weight_grads = _pullback_of_ones(fn, args, kwargs, positions or (), chosen or (), has_aux)
        by_input = _shaped_inputs(input_grads, grad_position, return_ids)
        by_weight = _shaped_weights(weight_grads, chosen, single_weight, return_ids)
        if positions is None:
            return outputs, by_weight
        return outputs, by_input if chosen is None else (by_input, by_weight)

    return _compiled_in_graph_mode(differentiate, fn)


def grad(
    fn: Callable[..., Any],
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Any = None,
    has_aux: bool = False,
    return_ids: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradients of `fn`; with `has_aux` the pair of gradients and further outputs.

    Arguments and errors as `value_and_grad`.
    """
    both = value_and_grad(fn, grad_position, weights, has_aux, return_ids)

    def gradients(*args: Any, **kwargs: Any) -> Any:
        outputs, grads = both(*args, **kwargs)
        return (grads, tuple(outputs[1:])) if has_aux else grads

    return gradients


def get_grad(gradients: Any, identifier: int | Parameter) -> Tensor:
    """The gradient of one input or Parameter among those computed with ``return_ids=True``.

    Raises:
        SporaxTypeError: `gradients` has no ids, or `identifier` is neither an int nor a Parameter.
        SporaxRuntimeError: it is not among them.
    """
    if not isinstance(identifier, int | Parameter):
        raise SporaxTypeError(
            f"For 'get_grad', 'identifier' must be int or Parameter, but got {type(identifier).__name__}."
        )
    wanted = identifier.name if isinstance(identifier, Parameter) else identifier
    found = _find_grad(gradients, wanted)
    if found is None:
        raise SporaxRuntimeError(f"Can not find the gradient for position or Parameter {wanted}.")
    return found


def _find_grad(gradients: Any, wanted: int | str) -> Tensor | None:
    if not isinstance(gradients, tuple):
        return None
    if len(gradients) == 2 and isinstance(gradients[0], int | str):
        return gradients[1] if gradients[0] == wanted else None
    return next((found for each in gradients if (found := _find_grad(each, wanted)) is not None), None)


class GradOperation:
    """Older way to ask for gradients: ``GradOperation(…)(net)(x)`` or ``GradOperation(…)(net, weights)(x)``.

    Args:
        get_all: gradients of all inputs (a tuple), not of the first only.
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

    def __call__(self, fn: Callable[..., Any], weights: Any = None) -> Callable[..., Any]:
        """The gradient function of `fn`."""
        chosen, single = _weights(weights) if self.get_by_list else (None, False)
        if self.get_by_list and chosen is None:
            raise SporaxTypeError("For 'GradOperation', 'get_by_list' needs the 'weights' as second argument.")

        def gradients(*args: Any, **kwargs: Any) -> Any:
            sens = None
            if self.sens_param:
                *rest, sens = args
                args = tuple(rest)
            positions = tuple(index for index, arg in enumerate(args) if isinstance(arg, Tensor))
            if self.get_by_list and not self.get_all:
                positions = ()
            elif not self.get_all:
                positions = positions[:1]
            _, by_input, by_weight = _pullback_of_ones(fn, args, kwargs, positions, chosen or (), False, sens)
            shaped = tuple(map(wrap, by_input)) if self.get_all else next(map(wrap, by_input), None)
            if not self.get_by_list:
                return shaped
            weighted = _shaped_weights(by_weight, chosen, single, False)
            return (shaped, weighted) if self.get_all else weighted

        return _compiled_in_graph_mode(gradients, fn)


def jvp(fn: Callable[..., Any], inputs: Any, v: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Outputs of ``fn(*inputs)`` and their derivative in direction `v`; with `has_aux` further outputs third.

    Raises:
        SporaxTypeError: inputs or directions are not Tensors.
        SporaxValueError: not one direction of the same shape per input.
    """
    primals, directions = _tensor_tuple("jvp", inputs), _tensor_tuple("jvp", v)
    if len(primals) != len(directions):
        raise SporaxValueError(f"For 'jvp', v has invalid length: should be {len(primals)}, but got {len(directions)}.")
    for index, (primal, direction) in enumerate(zip(primals, directions, strict=True)):
        if primal.shape != direction.shape:
            raise SporaxValueError(
                f"For 'jvp', v[{index}] has shape {direction.shape}, but input {index} has shape {primal.shape}."
            )
    pure = _pure(fn, primals, {}, tuple(range(len(primals))), (), has_aux)
    arrays = [primal.array for primal in primals]
    tangents = [direction.array.astype(array.dtype) for direction, array in zip(directions, arrays, strict=True)]
    outputs, slopes, (updates, tree, rest) = jax.jvp(lambda *a: pure(list(a), []), arrays, tangents, has_aux=True)
    state.commit(updates)
    results = jax.tree.unflatten(tree, outputs), jax.tree.unflatten(tree, slopes)
    return (*results, rest) if has_aux else results


def vjp(fn: Callable[..., Any], *inputs: Any, weights: Any = None, has_aux: bool = False) -> tuple[Any, ...]:
    """Outputs of ``fn(*inputs)`` and the function that maps their cotangents to those of inputs (and weights).

    Raises:
        SporaxTypeError: an input is not a Tensor, or `weights` holds something else than Parameters.
    """
    primals = _tensor_tuple("vjp", inputs)
    chosen, single = _weights(weights)
    pure = _pure(fn, primals, {}, tuple(range(len(primals))), chosen or (), has_aux)
    arrays = [primal.array for primal in primals]
    values = [state.read(weight) for weight in chosen or ()]
    outputs, pull, (updates, tree, rest) = jax.vjp(pure, arrays, values, has_aux=True)
    state.commit(updates)

    def backward(*cotangents: Any) -> Any:
        given = jax.tree.leaves(cotangents)
        matched = [jnp.asarray(c, o.dtype) for c, o in zip(given, outputs, strict=True)]
        by_input, by_weight = pull(matched)
        first = tuple(wrap(_dense(g, a)) for g, a in zip(by_input, arrays, strict=True))
        if chosen is None:
            return first
        return first, _shaped_weights(
            [_dense(g, a) for g, a in zip(by_weight, values, strict=True)], chosen, single, False
        )

    out = jax.tree.unflatten(tree, outputs)
    return (out, backward, rest) if has_aux else (out, backward)


# ------------------------------------------------------------------------------------------------------------ machinery


def _pure(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    positions: Positions,
    weights: Sequence[Parameter],
    has_aux: bool,
) -> Callable[..., Any]:
    """`fn` as a function of the arrays that are differentiated.

    Returns the differentiated outputs (a list of arrays), and beside them what was written, the structure of the
    outputs, and the outputs that are not differentiated.
    """

    def pure(inputs: list[jax.Array], values: list[jax.Array]) -> tuple[list[jax.Array], Any]:
        full = list(args)
        for position, value in zip(positions, inputs, strict=True):
            full[position] = wrap(value)
        outputs, updates = state.isolate(lambda: fn(*full, **kwargs), dict(zip(weights, values, strict=True)))
        rest: tuple[Any, ...] = ()
        if has_aux:
            if not isinstance(outputs, tuple) or len(outputs) < 2:
                raise SporaxValueError("For 'has_aux', the function must return at least two outputs.")
            outputs, rest = outputs[0], tuple(outputs[1:])
        leaves, tree = jax.tree.flatten(outputs)
        return leaves, (_Updates(updates), _Static(tree), rest)

    return pure


class _Static:
    """A value that passes a JAX transformation untouched: part of the structure, and itself again afterwards."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Updates(dict[Any, Any]):
    """Written variables and their values; a pytree whose structure keeps the order of writing."""


jax.tree_util.register_pytree_node(_Static, lambda static: ((), static.value), lambda value, _: value)
jax.tree_util.register_pytree_node(
    _Updates,
    lambda updates: (tuple(updates.values()), tuple(updates)),
    lambda keys, values: _Updates(zip(keys, values, strict=True)),
)


def _pullback_of_ones(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    positions: Positions,
    weights: Sequence[Parameter],
    has_aux: bool,
    sens: Any = None,
) -> tuple[Any, list[jax.Array], list[jax.Array]]:
    """Outputs, and gradients of their sum (or of their product with `sens`) for inputs at `positions` and `weights`."""
    for position in positions:
        if position >= len(args):
            raise SporaxIndexError(
                f"For 'grad', 'grad_position' is {position}, but the call has {len(args)} arguments."
            )
    positions = tuple(position for position in positions if isinstance(args[position], Tensor))
    inputs = [args[position].array for position in positions]
    values = [state.read(weight) for weight in weights]
    pure = _pure(fn, args, kwargs, positions, weights, has_aux)
    leaves, pull, (updates, tree, rest) = jax.vjp(pure, inputs, values, has_aux=True)
    state.commit(updates)
    by_input, by_weight = pull(_cotangents(leaves, sens))
    out = jax.tree.unflatten(tree, leaves)
    outputs = (out, *rest) if has_aux else out
    return (
        outputs,
        [_dense(g, a) for g, a in zip(by_input, inputs, strict=True)],
        [_dense(g, a) for g, a in zip(by_weight, values, strict=True)],
    )


def _cotangents(outputs: Sequence[Any], sens: Any) -> list[Any]:
    given = [None] * len(outputs) if sens is None else jax.tree.leaves(sens)
    if len(given) != len(outputs):
        raise SporaxValueError(
            f"For 'grad', the sensitivities must match the {len(outputs)} outputs, but got {len(given)}."
        )

    def one(output: Any, value: Any) -> Any:
        if not jnp.issubdtype(jnp.result_type(output), jnp.inexact):
            return np.zeros(jnp.shape(output), jax.dtypes.float0)
        if value is None:
            return jnp.ones_like(output)
        if jnp.shape(value) != jnp.shape(output):
            raise SporaxValueError(
                f"For 'grad', the sensitivity must have the output's shape {jnp.shape(output)}, but got {jnp.shape(value)}."
            )
        return jnp.asarray(value, output.dtype)

    return [one(output, value) for output, value in zip(outputs, given, strict=True)]


def _dense(gradient: Any, like: jax.Array) -> jax.Array:
    """Integers have no tangent space in JAX; MindSpore answers with zeros of their dtype."""
    return jnp.zeros(like.shape, like.dtype) if gradient.dtype == jax.dtypes.float0 else gradient


def _shaped_inputs(gradients: list[jax.Array], position: Any, ids: bool) -> Any:
    tensors = [wrap(gradient) for gradient in gradients]
    if isinstance(position, tuple):
        return tuple(zip(position, tensors, strict=False)) if ids else tuple(tensors)
    if not tensors:
        return ()
    return (position, tensors[0]) if ids else tensors[0]


def _shaped_weights(gradients: list[jax.Array], weights: Sequence[Parameter] | None, single: bool, ids: bool) -> Any:
    tensors: list[Any] = [wrap(gradient) for gradient in gradients]
    if ids and weights is not None:
        tensors = [(weight.name, tensor) for weight, tensor in zip(weights, tensors, strict=True)]
    return tensors[0] if single else tuple(tensors)


def _positions(value: Any) -> Positions | None:
    if value is None:
        return None
    values = value if isinstance(value, tuple) else (value,)
    if any(isinstance(each, bool) or not isinstance(each, int) for each in values):
        raise SporaxTypeError(f"For 'grad', 'grad_position' must be int, tuple of ints or None, but got {value!r}.")
    if any(each < 0 for each in values) or len(set(values)) < len(values):
        raise SporaxValueError(f"For 'grad', 'grad_position' must hold distinct numbers >= 0, but got {value}.")
    return values


def _weights(value: Any) -> tuple[tuple[Parameter, ...] | None, bool]:
    if value is None:
        return None, False
    if isinstance(value, Parameter):
        return (value,), True
    if not isinstance(value, tuple | list) or any(not isinstance(each, Parameter) for each in value):
        raise SporaxTypeError(
            f"For 'grad', 'weights' must be a Parameter or a list or tuple of them, but got {value!r}."
        )
    return tuple(value), False


def _check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise SporaxTypeError(f"For 'grad', '{name}' must be a bool, but got {type(value).__name__}.")


def _tensor_tuple(what: str, values: Any) -> tuple[Tensor, ...]:
    items = tuple(values) if isinstance(values, tuple | list) else (values,)
    if any(not isinstance(item, Tensor) for item in items):
        raise SporaxTypeError(f"For '{what}', the inputs must be a Tensor, or a tuple or list of Tensors.")
    return items


def _compiled_in_graph_mode(differentiate: Callable[..., Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the whole gradient in GRAPH_MODE, or when `fn` is compiled; run it eagerly otherwise."""
    name = f"grad_of_{getattr(fn, '__name__', type(fn).__name__)}"
    differentiate.__name__ = name
    compiled = Compiled(differentiate)

    @functools.wraps(differentiate)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.current_frame() is None and (context.graph_mode() or isinstance(fn, Compiled)):
            return compiled(*args, **kwargs)
        return differentiate(*args, **kwargs)

    call.program = compiled.program  # type: ignore[attr-defined]
    return call
