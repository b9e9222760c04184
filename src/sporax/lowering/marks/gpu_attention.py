"""Attention of cuDNN where there is no GPU: programs that request it are planned on other machines.

`jax.nn.dot_product_attention(implementation="cudnn")` fails while it is traced unless a GPU is there. While a program is traced
for a plan, primitives of our own stand for its forward and its backward pass; the planner has a rule for them
(`planner.rules.kernels`). Where they run, on devices without cuDNN, they compute what the XLA implementation does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

Settings = tuple[tuple[str, Any], ...]
"""Keywords of attention that are no arrays."""

forward_p, backward_p = Primitive("cudnn_attention_fwd"), Primitive("cudnn_attention_bwd")
_xla: Callable[..., Any] = jax.nn.dot_product_attention
_NUM_INPUTS = 3
"""Queries, keys and values come before what is optional."""


@contextmanager
def attention_of_gpus() -> Iterator[None]:
    """Context in which the attention of cuDNN can be traced without a GPU."""
    if jax.default_backend() == "gpu":
        yield
        return
    original = jax.nn.dot_product_attention
    setattr(jax.nn, "dot_product_attention", partial(_attention, original))  # noqa: B010 -- its type has overloads
    try:
        yield
    finally:
        setattr(jax.nn, "dot_product_attention", original)  # noqa: B010


def _attention(original: Callable[..., Any], *arrays: Any, implementation: Any = None, **keywords: Any) -> Any:
    if implementation != "cudnn" or keywords.get("return_residual"):
        return original(*arrays, implementation=implementation, **keywords)
    names = ("query", "key", "value", "bias", "mask", "query_seq_lengths", "key_value_seq_lengths")
    keywords |= dict(zip(names, arrays, strict=False))
    present = {name: jnp.asarray(keywords[name]) for name in names if keywords.get(name) is not None}
    settings = {name: value for name, value in keywords.items() if name not in names and value is not None}
    # The arguments are checked as JAX does it.
    made = jax.eval_shape(lambda arrays: original(**arrays, **settings, implementation="xla"), present)
    inputs = [array if array.ndim != _NUM_INPUTS else array[None] for array in present.values()]
    return _attend((*present,), (*settings.items(),), *inputs).reshape(made.shape)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(names: tuple[str, ...], settings: Settings, *inputs: Array) -> Array:
    return forward_p.bind(*inputs, **_params(names, settings))[0]


def _attend_forward(names: tuple[str, ...], settings: Settings, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
    return _attend(names, settings, *inputs), inputs


def _attend_backward(
    names: tuple[str, ...], settings: Settings, inputs: tuple[Array, ...], gradient: Array
) -> tuple[Array | None, ...]:
    gradients = backward_p.bind(*inputs, gradient, **_params(names, settings))
    return (*gradients, *[None] * (len(inputs) - len(gradients)))


_attend.defvjp(_attend_forward, _attend_backward)


def _params(names: tuple[str, ...], settings: Settings) -> dict[str, Any]:
    return {"names": names, "settings": settings, "is_causal": bool(dict(settings).get("is_causal"))}


def _num_differentiated(names: tuple[str, ...]) -> int:
    """Inputs that have gradients: the bias has one, too."""
    return _NUM_INPUTS + ("bias" in names)


def _run(*inputs: Array, names: tuple[str, ...], settings: Settings, is_causal: bool) -> list[Array]:
    return [_xla(**dict(zip(names, inputs, strict=True)), **dict(settings), implementation="xla")]


def _run_backward(*inputs: Array, names: tuple[str, ...], settings: Settings, is_causal: bool) -> list[Array]:
    *arrays, gradient = inputs
    count = _num_differentiated(names)

    def attend(*differentiated: Array) -> Array:
        return _run(*differentiated, *arrays[count:], names=names, settings=settings, is_causal=is_causal)[0]

    return list(jax.vjp(attend, *arrays[:count])[1](gradient))


def _batched(primitive: Primitive, arrays: Sequence[Array], dims: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """`jax.vmap` makes the batch larger."""
    size = next(array.shape[dim] for array, dim in zip(arrays, dims, strict=True) if dim is not None)
    inner = arrays[0].shape[0 if dims[0] is None else 1 if dims[0] == 0 else 0]

    def merged(array: Array, dim: int | None) -> Array:
        front = jnp.broadcast_to(array, (size, *array.shape)) if dim is None else jnp.moveaxis(array, dim, 0)
        return jnp.broadcast_to(front, (size, inner, *front.shape[2:])).reshape(size * inner, *front.shape[2:])

    results = primitive.bind(*map(merged, arrays, dims), **params)
    return [result.reshape(size, inner, *result.shape[1:]) for result in results], [0] * len(results)


def _abstract(*avals: Any, **_: Any) -> list[Any]:
    return [avals[0].update(shape=(*avals[0].shape[:-1], avals[2].shape[-1]))]


def _abstract_backward(*avals: Any, names: tuple[str, ...], **_: Any) -> list[Any]:
    return list(avals[: _num_differentiated(names)])


for _primitive, _of_values, _of_shapes in (
    (forward_p, _run, _abstract),
    (backward_p, _run_backward, _abstract_backward),
):
    _primitive.multiple_results = True
    _primitive.def_impl(_of_values)
    _primitive.def_abstract_eval(_of_shapes)
    batching.primitive_batchers[_primitive] = partial(_batched, _primitive)
    mlir.register_lowering(_primitive, mlir.lower_fun(_of_values, multiple_results=True))
