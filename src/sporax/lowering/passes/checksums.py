"""A program that gives a checksum of every value it computes: for finding the operator whose result changes between runs.

Problem: a compiled program that is run twice from equal inputs must give equal results, bit by bit. Where it does not, people
want to know which operator was the first to differ, and not that the loss did. Method: the traced program is evaluated equation
by equation inside of the same `shard_map`, and the bits of every result are summed as unsigned integers, each times an odd
number that depends on its place. One sum per value is small enough to keep for all of them, and a flipped bit changes
it. Sums are per device, since devices hold different slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var
from jax.sharding import PartitionSpec

from sporax.lowering.ingest.ingest import path_of
from sporax.lowering.rewriter import Atom, run_equation

_UNSIGNED = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32, 64: jnp.uint64}
_LONG, _HALF = 64, 32
"""Bits of the types that are folded into 32, and of a half of them."""
_MIXER = np.uint32(2654435761)
"""The upper half is multiplied by an odd number before it is added, so that equal halves do not look like any others."""


@dataclass(frozen=True, slots=True)
class Computed:
    """One value of a program.

    Attributes:
        primitive: what computes it.
        operator: the name of the operator that it is part of; "" where none is known.
        path: of the Cell that it belongs to; "" where none is known.
        backward: whether it is part of a derivative.
        shape, dtype: on one device.
    """

    primitive: str
    operator: str
    path: str
    backward: bool
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        place = f" in '{self.path}'" if self.path else ""
        direction = ", backward" if self.backward else ""
        return (
            f"'{self.operator or self.primitive}'{place} ({self.primitive}, {self.dtype}{list(self.shape)} on a device"
            f"{direction})"
        )


class Checksums:
    """A traced program that gives checksums of its values, in place of its results.

    Args:
        closed: the program; its values may be computed inside of `shard_map`.

    Attributes:
        values: what the checksums belong to, in their order; complete once the program has been traced.
    """

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.closed = closed
        self.values: list[Computed] = []
        self._sums: list[jax.Array] = []

    def __call__(self, *arguments: jax.Array) -> jax.Array:
        """The checksums of one run: a vector of uint32, of which every device has its own values.

        Args:
            arguments: of the program, one after another.
        """
        self.values.clear()  # a function may be traced more than once
        sums, _ = self._noting(self.closed, arguments, _Place())
        return sums

    def _noting(
        self, closed: ClosedJaxpr, arguments: Sequence[jax.Array], place: _Place
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Run a program; gives the checksums of what it computes as one vector, and its results."""
        outer, self._sums = self._sums, []
        try:
            results = self._run(closed, arguments, place)
            return jnp.concatenate([jnp.zeros(0, jnp.uint32), *self._sums]), results
        finally:
            self._sums = outer

    def _run(self, closed: ClosedJaxpr, arguments: Sequence[jax.Array], place: _Place) -> list[jax.Array]:
        env: dict[Var, jax.Array] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        env.update(zip(closed.jaxpr.invars, arguments, strict=True))

        def read(atom: Atom) -> jax.Array:
            return atom.val if isinstance(atom, Literal) else env[atom]

        for eqn in closed.jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            results = self._equation(eqn, operands, place.within(eqn))
            env.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in closed.jaxpr.outvars]

    def _equation(self, eqn: JaxprEqn, operands: Sequence[jax.Array], place: _Place) -> Sequence[jax.Array]:
        name = str(eqn.primitive.name)
        if name == "shard_map":
            return self._on_devices(eqn, operands, place)
        # Calls are entered, so that values inside of an operator are seen.
        if name in ("jit", "pjit"):
            return self._run(eqn.params["jaxpr"], operands, place)
        results = run_equation(eqn, operands)
        for result in results:
            bits = _bits(result)
            if bits is not None:
                self.values.append(place.of(name, result))
                self._sums.append(_sum(bits)[None])
        return results

    def _on_devices(self, eqn: JaxprEqn, operands: Sequence[jax.Array], place: _Place) -> Sequence[jax.Array]:
        """A `shard_map` whose body gives checksums as well: of each device its own, under one shape."""
        body = ClosedJaxpr(eqn.params["jaxpr"], ())

        def noting(*arguments: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
            return self._noting(body, arguments, place)

        mapped: Callable[..., tuple[jax.Array, list[jax.Array]]] = jax.shard_map(
            noting,
            mesh=eqn.params["mesh"],
            in_specs=tuple(eqn.params["in_specs"]),
            # Devices have different sums; nothing is exchanged for them, so each keeps its own.
            out_specs=(PartitionSpec(), list(eqn.params["out_specs"])),
            check_vma=False,
        )
        sums, results = mapped(*operands)
        self._sums.append(sums)
        return results


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the user's program an equation is: name stack of the calls around it, and the innermost named call."""

    stack: str = ""
    operator: str = ""

    def within(self, eqn: JaxprEqn) -> _Place:
        """The place of an equation, or of what it calls."""
        # JAX counts name stacks from the innermost call, so the stack of the caller is put before.
        stack = "/".join(part for part in (self.stack, str(eqn.source_info.name_stack)) if part)
        return _Place(stack, str(eqn.params.get("name", "")) or self.operator)

    def of(self, primitive: str, value: jax.Array) -> Computed:
        """A value that is computed here."""
        path, backward = path_of(self.stack)
        return Computed(primitive, self.operator, path, backward, tuple(value.shape), str(value.dtype))


def _bits(value: jax.Array) -> jax.Array | None:
    """An array's bits as unsigned integers of at most 32 bits; None of what has no values."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or dtype == jax.dtypes.float0:
        return None
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return _bits(jax.random.key_data(value))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return _bits(jnp.stack([value.real, value.imag]))
    if dtype == jnp.bool_:
        return jnp.asarray(value, jnp.uint32)
    is_integer = jnp.issubdtype(dtype, jnp.integer)
    bits = (jnp.iinfo if is_integer else jnp.finfo)(dtype).bits
    if bits not in _UNSIGNED:  # types of less than a byte
        return _bits(value.astype(jnp.int32 if is_integer else jnp.float32))
    unsigned = jax.lax.bitcast_convert_type(value, _UNSIGNED[bits])
    if bits < _LONG:
        return unsigned
    return unsigned.astype(jnp.uint32) + (unsigned >> _HALF).astype(jnp.uint32) * _MIXER


def _sum(bits: jax.Array) -> jax.Array:
    """A number that changes when one value changes, or two change places."""
    flat = bits.astype(jnp.uint32).reshape(-1)
    # Odd factors have inverses modulo 2**32, so no change of a single value is lost.
    factors = 2 * jax.lax.iota(jnp.uint32, flat.size) + 1
    return jnp.sum(flat * factors, dtype=jnp.uint32)
