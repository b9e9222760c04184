"""How a table of operator cases is checked.

A case says how the operator is called, what numpy or scipy gives for the same arrays (None: its values are among those
recorded with MindSpore, see `test_recorded.py`), and the arrays. Its gradient is compared with a finite difference along a
random direction, in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sporax.mindspore as ms
from sporax.mindspore.common.tensor import wrap

STEP = 1e-6
FORWARD = 1e-9
GRADIENT = 2e-6


class Case(NamedTuple):
    """One call of an operator, its reference and its inputs."""

    call: Any
    reference: Any
    inputs: tuple[Any, ...]
    differentiable: bool = True


def case(call, reference, *inputs, grad=True):
    """A case; plain floats become arrays of that many standard normal numbers only where a shape is given."""
    return Case(call, reference, inputs, grad)


def numbers(*shape, seed=0, low=None, high=None):
    """Float64 numbers that are neither near each other nor near whole numbers: normal, or uniform in [low, high)."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=shape) if low is None else generator.uniform(low, high, size=shape)


def outputs(result):
    """The tensors (or plain values) of a result as arrays."""
    parts = result if isinstance(result, tuple | list) else (result,)
    return [part.asnumpy() if isinstance(part, ms.Tensor) else np.asarray(part) for part in parts]


def check(one: Case, rtol: float = FORWARD) -> None:
    """Compare values with the reference and the gradient with a finite difference."""
    values = outputs(one.call(*map(tensor, one.inputs)))
    if one.reference is not None:
        expected = one.reference(*one.inputs)
        parts = expected if isinstance(expected, tuple | list) else (expected,)
        assert len(values) == len(parts)
        for ours, theirs in zip(values, parts, strict=True):
            assert ours.shape == np.shape(theirs)
            tolerance = rtol if ours.dtype in (np.float64, np.complex128) else 1e-5
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    if one.differentiable:
        check_gradient(one.call, one.inputs)


def tensor(value):
    """Arrays as Tensors; anything else as it is."""
    return ms.Tensor(value) if isinstance(value, np.ndarray) else value


def linear(x, axis, size, align):
    """Interpolation along one dimension with numpy, coordinates limited to the pixels."""
    old = x.shape[axis]
    at = np.linspace(0, old - 1, size) if align else np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
    return np.apply_along_axis(lambda row: np.interp(at, np.arange(old), row), axis, x)


def bilinear(x, size, align=False):
    """Interpolation along all spatial dimensions."""
    for axis, item in zip(range(2, x.ndim), size, strict=True):
        x = linear(x, axis, item, align)
    return x


def check_gradient(call, inputs) -> None:
    """The derivative along a random direction, against a central difference; both in one compiled program.

    Calls whose result depends on values that a compiled program does not know run eagerly, under `ms.grad`.
    """
    generator = np.random.default_rng(1)
    places = [at for at, value in enumerate(inputs) if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    directions = [generator.normal(size=inputs[at].shape) for at in places]
    weights: list[Any] = []

    def total(*floats):
        given = dict(zip(places, floats, strict=True))
        parts = call(*(given.get(at, tensor(value)) for at, value in enumerate(inputs)))
        parts = parts if isinstance(parts, tuple | list) else (parts,)
        parts = [part for part in parts if str(part.dtype).startswith("Float")]
        if not weights:
            weights.extend(generator.normal(size=part.shape) for part in parts)
        return sum((part * ms.Tensor(weight)).sum() for part, weight in zip(parts, weights, strict=True))

    def compiled(*arrays):
        value, pullback = jax.vjp(lambda *gradient: total(*map(wrap, gradient)).array, *arrays)
        return value, pullback(jnp.ones_like(value))

    def eager(*arrays):
        gradients = ms.grad(total, tuple(range(len(arrays))))(*map(ms.Tensor, arrays))
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        return total(*map(ms.Tensor, arrays)).array, [gradient.array for gradient in gradients]

    def along(run, step):
        moved = (inputs[at] + step * way for at, way in zip(places, directions, strict=True))
        return run(*(np.asarray(gradient) for gradient in moved))

    run = jax.jit(compiled)
    try:
        gradients = along(run, 0)[1]
    except TypeError as error:
        if "not known while" not in str(error):
            raise
        run = eager
        gradients = along(run, 0)[1]
    difference = float(along(run, STEP)[0] - along(run, -STEP)[0]) / (2 * STEP)
    slope = float(sum((np.asarray(gradient) * way).sum() for gradient, way in zip(gradients, directions, strict=True)))
    assert np.isfinite(slope)
    np.testing.assert_allclose(slope, difference, rtol=GRADIENT, atol=GRADIENT * max(1.0, abs(difference)) * 5)
