"""Resilient backpropagation."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.optim._optimizer import Array, Optimizer, Step


class Rprop(Optimizer):
    """Resilient backpropagation (Riedmiller & Braun 1993): only the sign of the gradient counts.

    Each element has a step size of its own, which starts at the learning rate, grows while the sign of its gradient stays
    and shrinks when it turns; an element whose sign turned pauses for one step.

    Args:
        params: Parameters or groups; see `Optimizer`.
        learning_rate: first step size.
        etas: factors to shrink and to grow by, below and above 1.
        step_sizes: smallest and largest step size.
        weight_decay: L2 penalty.

    Raises:
        SporaxTypeError, SporaxValueError: no such factors or sizes.
    """

    slots = ("prev", "step_size")

    def __init__(
        self,
        params: Any,
        learning_rate: Any = 0.1,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay)
        for what, value in (("etas", etas), ("step_sizes", step_sizes)):
            check_type("Rprop", what, value, "a tuple", tuple)
            if len(value) != 2:
                raise SporaxValueError(f"For 'Rprop', '{what}' must have two elements, but got {len(value)}.")
        if step_sizes[0] > step_sizes[1]:
            raise SporaxValueError(f"For 'Rprop', 'step_sizes' must be in ascending order, but got {step_sizes}.")
        self.shrink = argument.exactly_float("Rprop", "etas[0]", etas[0], 0.0, 1.0, "()")
        self.grow = argument.exactly_float("Rprop", "etas[1]", etas[1], 1.0, math.inf, "()")
        self.smallest = argument.exactly_float("Rprop", "step_sizes[0]", step_sizes[0], -math.inf, math.inf)
        self.largest = argument.exactly_float("Rprop", "step_sizes[1]", step_sizes[1], -math.inf, math.inf)
        self.add_slot("prev")
        self.add_slot("step_size")

    def move(self, gradient: Array, parameter: Array, *slots: Array, at: Step) -> tuple[Array, ...]:
        """See the class."""
        before, size = slots
        # Every element starts with the learning rate.
        size = jnp.where(at.number == 0, at.rate, size)
        agreement = gradient * before
        factor = jnp.where(agreement > 0, self.grow, jnp.where(agreement < 0, self.shrink, 1.0)).astype(size.dtype)
        size = jnp.clip(size * factor, self.smallest, self.largest)
        # An element whose sign turned pauses, and its sign is forgotten.
        gradient = jnp.where(agreement < 0, 0.0, gradient).astype(gradient.dtype)
        return parameter - jnp.sign(gradient) * size, gradient, size
