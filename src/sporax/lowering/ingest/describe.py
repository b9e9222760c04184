"""An equation of a jaxpr, as the planner sees it: an `Operation`."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.extend.core import JaxprEqn, Literal, jaxpr_as_fun

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
    # Kernels written by hand all have the same primitive; their target distinguishes them.
    target = eqn.params.get("target_name") if name == "ffi_call" else None
    if name == "pallas_call":
        target = eqn.params.get("name") or getattr(getattr(eqn.params["jaxpr"], "debug_info", None), "func_name", None)
    return f"{name}:{target}" if target else name


def with_one_answer(eqn: JaxprEqn) -> JaxprEqn:
    """A `while` whose condition has one answer; all other equations as they are.

    After `jax.vmap` it has one for each element of a batch: JAX goes on while any element does, and leaves finished ones as they
    are. Devices with different elements must run equally many rounds, so both are written into the loop.
    """
    if str(eqn.primitive.name) != "while" or not eqn.params["cond_jaxpr"].out_avals[0].shape:
        return eqn
    condition, body, count = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"], eqn.params["cond_nconsts"]
    goes_on, round_of = jaxpr_as_fun(condition), jaxpr_as_fun(body)
    num_dims, num_consts = len(condition.out_avals[0].shape), count + eqn.params["body_nconsts"]

    def any_goes_on(*operands: jax.Array) -> jax.Array:
        return jax.lax.reduce_or(goes_on(*operands)[0], range(num_dims))

    def selected(*operands: jax.Array) -> list[jax.Array]:
        carried: Sequence[jax.Array] = operands[num_consts:]
        chosen = goes_on(*operands[:count], *carried)[0]
        pairs = zip(carried, round_of(*operands[count:]), strict=True)
        return [
            jax.lax.select_n(jax.lax.broadcast_in_dim(chosen, old.shape, range(num_dims)), old, new)
            for old, new in pairs
        ]

    changed = {
        "cond_jaxpr": jax.make_jaxpr(any_goes_on)(*condition.in_avals),
        "body_jaxpr": jax.make_jaxpr(selected)(*condition.in_avals[:count], *body.in_avals),
        "body_nconsts": num_consts,
    }
    return eqn.replace(invars=[*eqn.invars[:count], *eqn.invars], params={**eqn.params, **changed})


def _spec(var: Atom) -> TensorSpec:
    aval = var.aval
    constant = None
    # Rules need the value of scalars (a shift, a scale); keys of random generators have none.
    if isinstance(var, Literal) and np.ndim(var.val) == 0 and not hasattr(var.val, "_prng_key"):
        constant = complex(var.val) if aval_of(var).dtype != jax.dtypes.float0 else None
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", "token")
    return TensorSpec(tuple(shape), str(dtype), int(getattr(dtype, "itemsize", 0)), constant)
