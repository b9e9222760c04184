"""Any `optax.GradientTransformation` as an optimizer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For
from sporax.mindspore.common import Parameter, wrap
from sporax.mindspore.nn.optim._optimizer import Optimizer, _decay_at, _rate_at
from sporax.runtime.state import frames


class OptaxOptimizer(Optimizer):
    """An optimizer whose formula is an optax transformation. MindSpore has no counterpart.

    The transformation sees the Parameters as a dict by name. Its state becomes Parameters called ``optax.<path>``, so it
    is saved with checkpoints and updated in place by compiled steps.

    Args:
        params, loss_scale: see `Optimizer`.
        transformation: e.g. ``optax.adamw(1e-3)`` or ``optax.chain(optax.clip_by_global_norm(1.0), optax.lion(1e-4))``.
        learning_rate: the updates are multiplied by it. Leave it at 1 when the transformation has a rate of its own; give
            a number, list or schedule when it was made with rate 1.
        weight_decay: L2 penalty through the gradient; for decoupled decay use a transformation that has it.

    Raises:
        SporaxTypeError: `transformation` has no ``init`` and ``update``.

    Example:
        >>> optimizer = nn.OptaxOptimizer(net.trainable_params(), optax.adamw(1e-3))
    """

    def __init__(
        self,
        params: Any,
        transformation: Any,
        learning_rate: Any = 1.0,
        weight_decay: Any = 0.0,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if not callable(getattr(transformation, "init", None)) or not callable(getattr(transformation, "update", None)):
            raise For("OptaxOptimizer").type_error(
                "'transformation' must be an optax.GradientTransformation", type(transformation).__name__
            )
        self._transformation = transformation
        # By name, so that transformations can choose Parameters by it.
        start = transformation.init({parameter.name: parameter.array for parameter in self.parameters})
        # The paths give the state's Parameters stable names.
        leaves, self._state_tree = jax.tree_util.tree_flatten_with_path(start)
        self._state = []
        for path, leaf in leaves:
            name = f"optax.{jax.tree_util.keystr(path, simple=True, separator='.')}"
            parameter = Parameter(wrap(jnp.asarray(leaf)), name=name)
            self._state.append(parameter)
            self.insert_param_to_cell(name, parameter, check_name_contain_dot=False)

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        """Update all Parameters."""
        number = self.global_step.array[0]
        values = {parameter.name: parameter.array for parameter in self.parameters}
        prepared = {
            parameter.name: self._prepared(
                gradient, values[parameter.name], _decay_at(setting.decay, number), setting.centralize
            )
            for gradient, parameter, setting in zip(
                self._checked(gradients), self.parameters, self.settings, strict=True
            )
        }
        before = jax.tree.unflatten(self._state_tree, [holder.array for holder in self._state])
        updates, after = self._transformation.update(prepared, before, values)
        for holder, value in zip(self._state, jax.tree.leaves(after), strict=True):
            frames.write(holder, value)
        for parameter, setting in zip(self.parameters, self.settings, strict=True):
            rate = _rate_at(self.rates[setting.rate], number)
            moved = values[parameter.name] + rate * updates[parameter.name]
            frames.write(parameter, moved.astype(values[parameter.name].dtype))
        # Counted for schedules, which the transformation does not see.
        frames.write(self.global_step, self.global_step.array + 1)
        return (True,) * len(self.parameters)
