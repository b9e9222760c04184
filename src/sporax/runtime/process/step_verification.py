"""Runs compiled programs twice from the same inputs and compares the results, bit by bit: ``sporax run --verify-steps N``.

Problem: a compiled program must give the same results from the same inputs, and a defect in a library below (of collectives,
of buffers that are reused too early) breaks this at random, without an error: training goes on with wrong numbers. Method: when
the user requests it, every compiled program of a step is wrapped. At every N-th step its inputs are copied, it runs twice, and
all results are compared. Where they differ on any process, all of them replay the program with a checksum of every value
(`sporax.lowering.passes.checksums`) and each names the first operator whose value changed. When it is off, programs are not
wrapped and nothing is spent.

Programs that call back into Python with effects (prints, exchange with parameter servers) are not run twice: that would repeat
the effect. One line says so.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.base.errors import SporaxRuntimeError
from sporax.base.progress import activity
from sporax.cluster.environment import VERIFY_STEPS
from sporax.ir.variables import read
from sporax.lowering import passes
from sporax.runtime.session import SESSION

_REPLAYS = 20
"""How often a program is replayed to find the operator: a defect that was seen once in a step may be rare."""
_LISTED = 3  # results in a message: where one value is wrong, what follows from it is wrong as well
_AXIS = "device"
_log = logging.getLogger("sporax.verify")


@functools.cache
def every() -> int:
    """How many steps apart programs are run twice; 0: never. Read once per process.

    Raises:
        SporaxValueError: the environment variable is no number of steps.
    """
    return int(read(os.environ, VERIFY_STEPS))


class Steps:
    """Counts the steps of one or several programs that belong together."""

    def __init__(self) -> None:
        self.number = 0

    def begin(self) -> None:
        """A step begins."""
        self.number += 1

    @property
    def due(self) -> bool:
        """Whether the programs of this step run twice."""
        return self.number % every() == 0


def compiled(jitted: Any, name: str, arguments: Sequence[Any], steps: Steps | None = None) -> Any:
    """A jitted program, compiled for these arguments; verified where the user requests it.

    Args:
        arguments: arrays, or their shapes, dtypes and shardings.
        steps: counts the steps that the program is part of; None: each call is a step.
    """
    traced = jitted.trace(*arguments)
    # What is reported of a compilation that takes long: "compiling 'step': 193 operators, 12 s".
    with activity(f"{num_operators(traced.jaxpr)} operators"):
        executable = traced.lower().compile()
    SESSION.executables.add(executable)
    if not every():
        return executable
    if traced.jaxpr.effects:
        _log.warning("'%s' is not verified: it calls back into Python, and running it twice would repeat that.", name)
        return executable
    return VerifiedProgram(executable, name, traced.jaxpr, steps)


def num_operators(jaxpr: Any) -> int:
    """Equations of a program, those of loops and functions inside of it included."""
    inside = [value for equation in jaxpr.eqns for param in equation.params.values() for value in _programs(param)]
    return len(jaxpr.eqns) + sum(map(num_operators, inside))


def _programs(param: Any) -> list[Any]:
    """The programs that a parameter of an equation is, or has: a body, or the branches."""
    return [value for value in (param if isinstance(param, tuple) else (param,)) if hasattr(value, "eqns")]


@dataclass(frozen=True, slots=True)
class Difference:
    """A result that was not the same twice.

    Attributes:
        number: of the result, from 0.
        shape, dtype: of the slice on one device.
        count: how many of its values differ.
        where: index of the first of them.
        values: both values there.
    """

    number: int
    shape: tuple[int, ...]
    dtype: str
    count: int
    where: tuple[int, ...]
    values: tuple[Any, Any]

    def __str__(self) -> str:
        first, second = self.values
        return (
            f"result {self.number} ({self.dtype}{list(self.shape)}) differs in {self.count} of its values, first at "
            f"{list(self.where)}: {first} and {second}"
        )


class VerifiedProgram:
    """A compiled program that runs twice at every N-th step.

    Args:
        jaxpr: what it was compiled from.
        steps: counts the steps that the program is part of; None: each call is a step.
    """

    def __init__(self, executable: Any, name: str, jaxpr: Any, steps: Steps | None) -> None:
        self.executable = executable
        self.name = name
        self.jaxpr = jaxpr
        self.steps = steps
        self.own_steps = Steps()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)

    def __call__(self, *arguments: Any) -> Any:
        """Run the program.

        Raises:
            SporaxRuntimeError: two runs from the same inputs gave different results.
        """
        if self.steps is not None:
            return self._run(self.steps, arguments)
        self.own_steps.begin()
        try:
            return self._run(self.own_steps, arguments)
        except (TypeError, ValueError):
            # Nothing has run: the caller brings its arguments elsewhere and calls again. Other processes, whose arguments were
            # in place, count one call, and all must run the program twice at the same one.
            self.own_steps.number -= 1
            raise

    def _run(self, steps: Steps, arguments: tuple[Any, ...]) -> Any:
        if not steps.due:
            return self.executable(*arguments)
        saved = jax.tree.map(_copied, arguments)
        first = self.executable(*jax.tree.map(_copied, saved))
        jax.block_until_ready(first)  # programs with collectives run one after another
        second = jax.block_until_ready(self.executable(*arguments))
        found = differences(jax.tree.leaves(first), jax.tree.leaves(second))
        seen_on = _seen_on(bool(found), jax.tree.leaves(saved))
        if seen_on:
            raise self._error(found, seen_on, jax.tree.leaves(saved), steps.number)
        return second

    def _error(
        self, found: list[Difference], seen_on: list[int], saved: list[jax.Array], step: int
    ) -> SporaxRuntimeError:
        operator = self._first_operator(saved)
        more = f"; and {len(found) - _LISTED} more results" if len(found) > _LISTED else ""
        own = "; ".join(map(str, found[:_LISTED])) + more if found else "the results of this process were equal"
        where = f" (seen on processes {seen_on})" if jax.process_count() > 1 else ""
        return SporaxRuntimeError(
            f"For '{self.name}', one compiled program gave different results from the same inputs at step {step}{where}: {own}. "
            f"{operator} Nothing that this job computes can be trusted: look for the operator in docs/reliability.md, and use "
            "another version of jaxlib or another device."
        )

    def _first_operator(self, arguments: list[jax.Array]) -> str:
        """A sentence that names the first operator whose result changes when the program is replayed."""
        watched = passes.Checksums(self.jaxpr)
        program = jax.jit(watched)
        sums = [_local(jax.block_until_ready(program(*arguments))) for _ in range(_REPLAYS)]
        changed = [(run != sums[0]).any(axis=0) for run in sums[1:]]
        first = [int(np.argmax(run)) for run in changed if run.any()]
        if not first:
            return f"{_REPLAYS} replays with a checksum of every value were equal on this process, so the operator is unknown."
        times = f"in {len(first)} of {_REPLAYS - 1} replays"
        return f"The first result that changes is of {watched.values[min(first)]}: {times}."


def differences(first: Sequence[jax.Array], second: Sequence[jax.Array]) -> list[Difference]:
    """Where the arrays of two runs are not equal bit by bit, on the devices of this process; one entry per result."""
    found = []
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        for mine, again in zip(_slices(one), _slices(other), strict=True):
            unequal = (_bits(mine) != _bits(again)).any(axis=1)
            if unequal.any():
                count = int(unequal.sum())
                where = tuple(map(int, np.unravel_index(np.argmax(unequal), mine.shape))) if mine.ndim else ()
                found.append(Difference(number, mine.shape, str(mine.dtype), count, where, (mine[where], again[where])))
                break
    return found


def _slices(array: jax.Array) -> list[np.ndarray]:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return [np.asarray(shard.data) for shard in array.addressable_shards]


def _bits(array: np.ndarray) -> np.ndarray:
    """The bytes of every element, one row each: equal NaNs are equal."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, -1) if flat.size else np.zeros((0, 1), np.uint8)


def _local(sums: jax.Array) -> np.ndarray:
    """One row of checksums for each device of this process."""
    return np.stack([np.asarray(shard.data) for shard in sums.addressable_shards])


def _copied(array: Any) -> Any:
    return jax.device_put(array, array.sharding, may_alias=False) if isinstance(array, jax.Array) else array


def _seen_on(here: bool, arguments: Sequence[Any]) -> list[int]:
    """The processes that saw a difference: those that take part in a program must go on in the same way."""
    devices = next((_devices(array) for array in arguments if not array.is_fully_addressable), None)
    if devices is None:
        return [jax.process_index()] if here else []
    program, sharding = _gathering(devices)
    own = [device for device in devices if device.process_index == jax.process_index()]
    shards = [jax.device_put(np.asarray([here]), device) for device in own]
    flags = program(jax.make_array_from_single_device_arrays((len(devices),), sharding, shards))
    seen = np.asarray(flags.addressable_data(0))
    return sorted({device.process_index for device, flag in zip(devices, seen, strict=True) if flag})


def _devices(array: jax.Array) -> tuple[Any, ...]:
    return tuple(sorted(array.sharding.device_set, key=lambda device: device.id))


@functools.cache
def _gathering(devices: tuple[Any, ...]) -> tuple[Callable[..., jax.Array], NamedSharding]:
    """A program that shows one truth value per device to all of them."""
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    split = PartitionSpec(_AXIS)

    def gather(flag: jax.Array) -> jax.Array:
        gathered: jax.Array = lax.all_gather(flag, _AXIS, tiled=True)
        return gathered

    mapped = jax.shard_map(gather, mesh=mesh, in_specs=split, out_specs=PartitionSpec(), check_vma=False)
    return jax.jit(mapped), NamedSharding(mesh, split)
