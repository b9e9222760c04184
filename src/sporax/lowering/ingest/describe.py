"""An equation of a jaxpr, as the planner sees it: an `Operation`."""

from __future__ import annotations

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Literal

from sporax.ir.operation import Operation, TensorSpec
from sporax.lowering.jax_versions import known_params
from sporax.lowering.rewriter import Atom, aval_of


def describe(eqn: JaxprEqn) -> Operation:
    """What the planner sees of an equation."""
    return Operation(
        operation_name(eqn),
        tuple(_spec(var) for var in eqn.invars),
        tuple(_spec(var) for var in eqn.outvars),
        known_params(eqn),
    )


def operation_name(eqn: JaxprEqn) -> str:
    """The primitive's name; foreign code adds what it calls, so that rules can be registered for one target."""
    name = str(eqn.primitive.name)
    # Kernels written by hand all have the same primitive; their target tells them apart.
    target = eqn.params.get("target_name") if name == "ffi_call" else None
    if name == "pallas_call":
        target = getattr(eqn.params.get("name_and_src_info"), "name", None) or eqn.params.get("name")
    return f"{name}:{target}" if target else name


def _spec(var: Atom) -> TensorSpec:
    aval = var.aval
    constant = None
    # Rules ask for the value of scalars (a shift, a scale); keys of random generators have none.
    if isinstance(var, Literal) and np.ndim(var.val) == 0 and not hasattr(var.val, "_prng_key"):
        constant = complex(var.val) if aval_of(var).dtype != jax.dtypes.float0 else None
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", "token")
    return TensorSpec(tuple(shape), str(dtype), int(getattr(dtype, "itemsize", 0)), constant)
