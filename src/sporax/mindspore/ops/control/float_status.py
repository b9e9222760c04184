"""The register of overflows that step classes for Ascend read: allocated, cleared and read as tensors.

Problem: such steps ask a hardware register whether anything overflowed since it was cleared. XLA has none. What they ask
about is written in the program all the same, because the order is fixed with `depend`::

    status = ops.NPUAllocFloatStatus()()
    status = ops.depend(status, grads)            # after the gradients …
    read = ops.NPUGetFloatStatus()(status)        # … read the register
    status = ops.depend(status, read)
    overflow = status.sum() > 0

Method: `depend` remembers with a tensor of the register's size what it waits for; reading looks for values among these
that are not finite. An overflow whose infinity has gone by then (``1 / inf``) is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.ops._core.operator import PRIMITIVES, Array, Primitive, operator

REGISTER_SIZE = 8
"""Elements of the tensor that stands for the register; the first says whether there was an overflow."""


class StatusTensor(Tensor):
    """A tensor of the register's size, with what has been computed before it.

    Attributes:
        watched: tensors that `depend` was given.
    """

    __slots__ = ("watched",)

    watched: tuple[Tensor, ...]


def is_tensor(value: object) -> bool:
    """Whether `value` is a Tensor; for `jax.tree.leaves`."""
    return isinstance(value, Tensor)


def remember(value: Tensor, expr: Any) -> Tensor:
    """`value`, the result of `depend`, with the tensors of `expr` where it may stand for the register."""
    if value.shape != (REGISTER_SIZE,):
        return value
    status = StatusTensor(value)
    status.watched = tuple(leaf for leaf in jax.tree.leaves(expr, is_leaf=is_tensor) if isinstance(leaf, Tensor))
    return status


@operator(function="")
def _overflow(inputs: tuple[Array, ...]) -> Array:
    """1.0 where any element of any of the tensors is not finite, else 0.0. Float32 of shape (1,)."""
    floating = [value for value in inputs if jnp.issubdtype(value.dtype, jnp.inexact)]
    bad = [jnp.any(~jnp.isfinite(value)) for value in floating] or [jnp.asarray(False)]
    return jnp.any(jnp.stack(bad)).astype(jnp.float32).reshape(1)


@operator("FloatStatus()", function="")
def float_status(x: Array) -> Array:
    """1.0 where any element is infinite or not a number, else 0.0. Float32 of shape (1,)."""
    return jnp.any(~jnp.isfinite(x)).astype(jnp.float32).reshape(1)


class NPUAllocFloatStatus(Primitive):
    """Makes the tensor that stands for the register: zeros of shape (8,)."""

    def __call__(self) -> Tensor:
        """Float32 zeros."""
        # A Tensor: zero everywhere says no overflow.
        return Tensor([0.0] * REGISTER_SIZE)


class NPUClearFloatStatus(Primitive):
    """Forgets overflows so far."""

    def __call__(self, status: Tensor) -> Tensor:
        """Zeros of shape (8,); `status` is zeros as well.

        Raises:
            SporaxTypeError, SporaxValueError: `status` is not a tensor of shape (8,).
        """
        return _write("NPUClearFloatStatus", status, lambda: jnp.zeros_like(status.array))


class NPUGetFloatStatus(Primitive):
    """Reads whether what `status` depends on overflowed."""

    def __call__(self, status: Tensor) -> Tensor:
        """(1, 0, …) of shape (8,) after an overflow, else zeros; `status` gets the same values.

        Raises:
            SporaxTypeError, SporaxValueError: `status` is not a tensor of shape (8,).
        """

        def register() -> jax.Array:
            watched = getattr(status, "watched", ())
            # Without `depend` in front nothing is known to have been computed.
            if not watched:
                return status.array
            flag = _overflow(watched).array.astype(status.array.dtype)
            return jnp.concatenate([flag, jnp.zeros(REGISTER_SIZE - 1, flag.dtype)])

        return _write("NPUGetFloatStatus", status, register)


def _write(name: str, status: Any, register: Callable[[], jax.Array]) -> Tensor:
    check_type(name, "the input", status, "a Tensor", Tensor)
    if status.shape != (REGISTER_SIZE,):
        raise SporaxValueError(f"For '{name}', the input's shape must be ({REGISTER_SIZE},), but got {status.shape}.")
    values = register()
    # Read or cleared: earlier tensors do not count any more.
    if isinstance(status, StatusTensor):
        status.watched = ()
    # MindSpore's operators write to their argument as well.
    status._replace(values)
    return wrap(values)


PRIMITIVES.update(
    NPUAllocFloatStatus=NPUAllocFloatStatus,
    NPUClearFloatStatus=NPUClearFloatStatus,
    NPUClearFloatStatusV2=NPUClearFloatStatus,
    NPUGetFloatStatus=NPUGetFloatStatus,
    NPUGetFloatStatusV2=NPUGetFloatStatus,
)
