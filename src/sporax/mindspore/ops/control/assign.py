"""Operators that write Parameters: a new value, a sum, a difference.

JAX's arrays do not change, so the kernel gives the new value and the Parameter's variable is set to it; a step returns
the variables that were set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from sporax.base.errors import SporaxValueError, check_type
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.ops._core.operator import Array, Operand, export, operator


@operator(function="")
def _new_value(variable: Array, value: Operand, how: str) -> Array:
    """What a Parameter holds after an assignment."""
    # MindSpore converts the value to the Parameter's dtype.
    update = jnp.asarray(value, variable.dtype)
    if update.shape not in ((), variable.shape):
        raise SporaxValueError(
            f"For 'Assign', 'variable' and 'value' must have one shape, but got {variable.shape} and {update.shape}."
        )
    if how == "set":
        # A copy: the Parameter must not share a buffer with the value, since steps donate it.
        return jnp.array(jnp.broadcast_to(update, variable.shape), copy=True)
    return variable + update if how == "add" else variable - update


def _assignment(name: str, how: str, doc: str) -> Callable[..., Any]:
    def assign(variable: Any, value: Any) -> Any:
        check_type(name, "variable", variable, "a Parameter", Parameter)
        # Composed: the write is a new value of a variable and no part of the kernel.
        variable._replace(_new_value(variable, value, how).array)
        return variable

    assign.__doc__ = doc
    return assign


assign = _assignment("Assign", "set", "Give a Parameter a new value; returns the Parameter.")
assign_add = _assignment("AssignAdd", "add", "Add to a Parameter in place; returns the Parameter.")
assign_sub = _assignment("AssignSub", "sub", "Subtract from a Parameter in place; returns the Parameter.")

for _name, _function in (("assign", assign), ("assign_add", assign_add), ("assign_sub", assign_sub)):
    _function.__name__ = _name


for _name, _function in (("Assign", assign), ("AssignAdd", assign_add), ("AssignSub", assign_sub)):
    operator(f"{_name}()", function="", composed=True)(_function)
export(assign, assign_add, assign_sub)
