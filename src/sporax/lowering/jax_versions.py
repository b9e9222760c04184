"""Where the supported versions of JAX differ in what Sporax reads from programs and calls. Nothing else reads a version.

Primitives that only some versions have are in `sporax.ir.operation`.

* ``scan`` says how many of its operands are constants, carries and rows: by two numbers before JAX 0.11, by the structures
  of its operands and results since. Sporax reads numbers (`scan_numbers`; the planner, `known_params`) and writes either form.
* ``compute_on`` was a context, and is a function of a function since JAX 0.11.1. Sporax needs the context, since a derivative
  must be computed where its function is; it takes it from an equation that was traced inside of such a function.
* XLA of JAX 0.11.2 crashes (SIGSEGV) when it compiles a scatter into a scalar in a `shard_map` over several CPU devices. Sporax
  writes none: in planned programs (`execute.local_equations`) and between collectives (`runtime.ranks.collective_order`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jax.experimental import compute_on
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.sharding import PartitionSpec

_NUMBERS = ("num_consts", "num_carry")

Arrays: TypeAlias = list[jax.Array]


class Structure(Protocol):
    """How JAX since 0.11 groups the operands of a loop: constants, carries and rows."""

    def unpack(self) -> Iterable[Sequence[object]]:
        """The groups."""


def known_params(eqn: JaxprEqn) -> Mapping[str, Any]:
    """The parameters of an equation as the planner reads them: those of ``scan`` with ``num_consts`` and ``num_carry``."""
    if str(eqn.primitive.name) != "scan" or "num_carry" in eqn.params:
        return eqn.params
    return {**eqn.params, **dict(zip(_NUMBERS, scan_numbers(eqn.params), strict=True))}


def scan_numbers(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a ``scan`` are constants, and how many are carried; the others are read row by row."""
    if "num_carry" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def scan_params(eqn: JaxprEqn, body: ClosedJaxpr, num_consts: int, num_carry: int) -> dict[str, Any]:
    """The parameters of a ``scan`` as `eqn` with another body.

    Args:
        eqn: the loop whose length and direction are taken.
        body: the new body: constants, carries and rows to carries and rows.
        num_consts, num_carry: how many of its arguments are constants, and carries.
    """
    params = {**eqn.params, "jaxpr": body}
    if "num_carry" in eqn.params:
        return {**params, "num_consts": num_consts, "num_carry": num_carry}
    num_rows, num_made = len(body.jaxpr.invars) - num_consts - num_carry, len(body.jaxpr.outvars) - num_carry
    structures = _scan_structures(num_consts, num_carry, num_rows, num_made)
    return {**params, "ft_in": structures[0], "ft_out": structures[1]}


@lru_cache(maxsize=1024)
def _scan_structures(num_consts: int, num_carry: int, num_rows: int, num_made: int) -> tuple[Structure, Structure]:
    """The structures of a loop with so many constants, carries, rows that it reads and rows that it makes.

    JAX has no public way to make one, so it has to trace such a loop.
    """

    def loop(consts: Arrays, carry: Arrays, rows: Arrays) -> tuple[Arrays, Arrays]:
        def body(carried: Arrays, row: Arrays) -> tuple[Arrays, Arrays]:
            # Every constant is read, every carry changes and no two results are equal: JAX takes out what need not be.
            total = sum([*consts, *row], jnp.ones(()))
            return [total + value for value in carried], [total + number for number in range(num_made)]

        return jax.lax.scan(body, carry, rows, length=1)

    scalars = [jnp.zeros(())] * max(num_consts, num_carry, num_rows)
    rows = [jnp.zeros((1,))] * num_rows
    traced = jax.make_jaxpr(loop)(scalars[:num_consts], scalars[:num_carry], rows)
    (eqn,) = [eqn for eqn in traced.jaxpr.eqns if str(eqn.primitive.name) == "scan"]
    operands, results = eqn.params["ft_in"], eqn.params["ft_out"]
    assert list(map(len, operands.unpack())) == [num_consts, num_carry, num_rows]
    assert list(map(len, results.unpack())) == [num_carry, num_made]
    return operands, results


_IS_CONTEXT = "out_memory_spaces" not in inspect.signature(compute_on.compute_on).parameters
"""Whether `compute_on` is a context."""


def computed_on(place: str) -> AbstractContextManager[object]:
    """Context in which operations, and derivatives of them, are computed at a place such as ``"device_host"``."""
    function: Any = compute_on.compute_on
    if _IS_CONTEXT:
        return function(place)
    placed = function(jax.lax.neg, compute_type=place, out_memory_spaces=jax.memory.Space.Device)
    # Traced at every call, since an equation's context has all that its trace was under: the mesh, for one.
    (call,) = jax.make_jaxpr(placed)(0.0).jaxpr.eqns
    return call.params["jaxpr"].eqns[0].ctx.manager


def entries_of(spec: PartitionSpec) -> tuple[Any, ...]:
    """What a spec says of each dimension; newer versions refuse to iterate over one that names reduced or unreduced axes."""
    partitions = getattr(spec, "partitions", None)
    return tuple(spec) if partitions is None else tuple(partitions)
