"""One step on one device next to the planned one: `PlannedFunction.verify`, and ``sporax run --verify-plan``.

Problem: results on many devices must be those of one, and where a rule or a compiler is wrong, nothing shows it. Two runs never
agree bit by bit, since sums are added in another order, and how far they are apart depends on the program.

Method: both get equal arguments, and a third run, on one device, gets arguments that differ by one unit in the last place. A
value differs beyond rounding where it is farther from the one of one device than `_SPREADS` times what that changes, plus
sqrt(eps) of the largest value of its array. Where a result differs, every value of both programs is compared in the same way,
and the first operator that differs is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from sporax.base.errors import For, SporaxRuntimeError
from sporax.base.progress import activity
from sporax.cluster.environment import VERIFY_PLAN
from sporax.ir.graph import LITERAL, OperatorGraph
from sporax.ir.marks import LayoutMark
from sporax.ir.plan import Plan
from sporax.ir.variables import read
from sporax.lowering.ingest.ingest import Ingested
from sporax.runtime.devices.global_view import device_program, jax_mesh, outside_of_meshes, partition_spec
from sporax.runtime.planned.user_mesh import is_typed, mesh_around
from sporax.runtime.session import SESSION

_SPREADS = 64
"""How many times as far as by one unit in the last place of every argument a result may move: roundings inside add up."""
_LISTED = 5
"""Results in an error: where one is wrong, what follows from it is wrong as well."""

Alone = Callable[..., list[Any]]
"""A program of whole arrays, from its arguments to the list of its results."""


@dataclass(frozen=True, slots=True)
class VerifiedLeaf:
    """One result of a planned step, compared.

    Attributes:
        name: its path in the results, or the name of the variable.
        dtype, shape: of the whole array.
        difference: largest distance to the value of one device; inf where only one of them is a number.
        limit: what rounding may do.
        where: index of the largest distance.
        planned, alone: the values there.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    difference: float
    limit: float
    where: tuple[int, ...]
    planned: Any
    alone: Any

    @property
    def is_equal(self) -> bool:
        """Whether it differs by rounding only."""
        return self.difference <= self.limit

    def __str__(self) -> str:
        text = f"{self.name} ({self.dtype}{list(self.shape)})"
        if self.is_equal:
            return f"{text}: {self.difference:.3g} apart, of {self.limit:.3g} that rounding explains"
        where = f"{self.planned} where one device has {self.alone}, at {list(self.where)}"
        return f"{text}: {where} (rounding explains {self.limit:.3g})"


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found: every result of all steps is that of one device but for rounding. `leaves` are of the last step."""

    steps: int
    leaves: tuple[VerifiedLeaf, ...]

    def __str__(self) -> str:
        steps = "1 step is" if self.steps == 1 else f"{self.steps} steps are"
        results = "1 result" if len(self.leaves) == 1 else f"{len(self.leaves)} results"
        return "\n  ".join([f"{steps} equal to one device in {results}", *map(str, self.leaves)])


def is_requested() -> bool:
    """Whether the first run of every plan is verified: ``sporax run --verify-plan``."""
    return bool(read(os.environ, VERIFY_PLAN) == "1")


class VerifiedFirst:
    """A program of all devices whose first run is verified, and reported.

    Args:
        verify: verifies it under the arguments of the first call.
    """

    def __init__(self, program: Any, verify: Callable[..., Verification]) -> None:
        self.program = program
        self.verify: Callable[..., Verification] | None = verify

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def __call__(self, *arguments: Any) -> Any:
        """Run the program.

        Raises:
            SporaxRuntimeError: at the first call, results are not those of one device.
        """
        verify, self.verify = self.verify, None
        if verify is not None:
            SESSION.verified_plan = True
            print(f"sporax: verified: {verify(*arguments)}", file=sys.stderr, flush=True)
        return self.program(*arguments)


def verified(
    step: Ingested,
    plan: Plan,
    arguments: Sequence[Any],
    names: Sequence[str],
    alone: Alone | None = None,
    steps: int = 1,
) -> Verification:
    """As `verified_step` for several steps, each of which begins with what one device had at the end of the one before."""
    For("verify").refuse(not isinstance(steps, int) or steps < 1, "'steps' must be 1 or more", steps, show=repr)
    values, first = list(arguments), len(step.constants)
    leaves: tuple[VerifiedLeaf, ...] = ()
    for _ in range(steps):
        results, leaves = verified_step(step, plan, values, names, alone)
        for output, argument in step.graph.aliases:
            values[argument - first] = results[output]
    return Verification(steps, leaves)


def verified_step(
    step: Ingested, plan: Plan, arguments: Sequence[Any], names: Sequence[str], alone: Alone | None = None
) -> tuple[list[Any], tuple[VerifiedLeaf, ...]]:
    """Run one step on one device and as planned, and compare.

    Args:
        arguments: of the program, one after another.
        names: of its results.
        alone: the program as the user wrote it; by default, the ingested one.

    Returns:
        The results of one device, and what was compared.

    Raises:
        SporaxRuntimeError: something differs beyond rounding; with the first operator that does.
        SporaxValueError: the devices are of several processes.
    """
    if jax.process_count() > 1:
        raise For("verify").error(f"all devices must be of this process, but there are {jax.process_count()} processes")
    with activity("verifying a plan"):
        values, leaves = _compared(step, plan, arguments, names, alone)
        wrong = [leaf for leaf in leaves if not leaf.is_equal]
        if not wrong:
            return values, leaves
        more = f"; and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
        raise SporaxRuntimeError(
            f"For 'verify', results of the plan must be those of one device, but {len(wrong)} of {len(leaves)} differ beyond "
            f"rounding: {'; '.join(map(str, wrong[:_LISTED]))}{more}. {_first_operator(step, plan, arguments)} Please report the "
            "operator with its shapes; until then, keep it whole with a rule of your own (docs/rules.md)."
        )


def _compared(
    step: Ingested, plan: Plan, arguments: Sequence[Any], names: Sequence[str], alone: Alone | None = None
) -> tuple[list[Any], tuple[VerifiedLeaf, ...]]:
    mesh = jax_mesh(plan.mesh)
    # One device is not the devices of a mesh around the call, of an island or of a constraint: all run the program of one.
    on_all = mesh_around(arguments) is not None or _names_devices(step.graph)
    one = NamedSharding(mesh, PartitionSpec()) if on_all else jax.devices()[0]
    # What the user wrote for explicit axes is for arguments of these types.
    here = list(arguments) if alone and is_typed(arguments) else jax.device_put(list(arguments), one)
    single = jax.jit(alone or _ingested(step, plan, arguments))
    expected, moved = single(*here), single(*map(outside_of_meshes(_moved), here))
    placements = plan.inputs[len(step.constants) :]
    shardings = [NamedSharding(mesh, partition_spec(place, plan.mesh)) for place in placements]
    found = jax.jit(device_program(step, plan, "verified"))(*jax.device_put(list(arguments), shardings))
    coarsest = max((_epsilon(tensor.dtype) for tensor in step.graph.tensors), default=0.0)
    leaves = (_leaf(*item, coarsest) for item in zip(names, found, expected, moved, strict=True))
    return expected, tuple(leaves)


def _names_devices(graph: OperatorGraph) -> bool:
    """Whether it has islands, or bodies with constraints, which are run as they were written."""
    inside = (operator for control in graph.operators for body in control.bodies for operator in body.walk())
    constrained = any(isinstance(operator.mark, LayoutMark) for operator in inside)
    return constrained or any(operator.name == "shard_map" for operator in graph.walk())


def _ingested(step: Ingested, plan: Plan, arguments: Sequence[Any]) -> Alone:
    """The program as it was read, for one device."""
    graph = step.graph

    def run(*leaves: Any) -> list[Any]:
        values = dict(zip((entry.tensor for entry in graph.inputs), [*step.constants, *leaves], strict=True))
        for operator, equation in zip(graph.operators, step.equations, strict=True):
            operands = [
                equation.literals[place] if tensor == LITERAL else values[tensor]
                for place, tensor in enumerate(operator.operands)
            ]
            primitive = equation.primitive
            results = primitive.bind(*operands, **primitive.get_bind_params(equation.params))
            results = results if primitive.multiple_results else [results]
            values.update(zip(operator.results, results, strict=True))
        return [
            step.literal_outputs[place] if tensor == LITERAL else values[tensor]
            for place, tensor in enumerate(graph.outputs)
        ]

    if mesh_around(arguments) is None or _names_devices(graph):
        return run
    # Operators do not say any more how they are typed on explicit axes, as the user's mesh may have them.
    every = PartitionSpec()
    return outside_of_meshes(
        jax.shard_map(run, mesh=jax_mesh(plan.mesh), in_specs=every, out_specs=every, check_vma=False)
    )


def _first_operator(step: Ingested, plan: Plan, arguments: Sequence[Any]) -> str:
    """A sentence that names the first operator whose result differs; both programs hand out all of their values."""
    graph = step.graph
    if is_typed(arguments) and _names_devices(graph):
        return "Operators next to islands on explicit axes are not compared one by one."
    made = [
        (number, tensor, place.complete())
        for number, (operator, planned) in enumerate(zip(graph.operators, plan.operators, strict=True))
        for tensor, place in zip(operator.results, planned.results, strict=True)
        # What is scaled while it is reduced has no complete value before.
        if graph.tensors[tensor].itemsize and getattr(plan.reshardings.get(tensor), "scale", 1.0) == 1.0
    ]
    numbers, tensors, complete = zip(*made, strict=True)
    watched = replace(step, graph=replace(graph, outputs=tensors, aliases=()), literal_outputs={})
    outputs = replace(plan, outputs=complete, graph=watched.graph.fingerprint())
    names = [f"'{graph.operators[number]}'" for number in numbers]
    _, values = _compared(watched, outputs, arguments, names)
    wrong = next(((number, leaf) for number, leaf in zip(numbers, values, strict=True) if not leaf.is_equal), None)
    if wrong is None:
        return "No operator differs by itself: the compiled program does, or what was read is not the function."
    number, leaf = wrong
    path = graph.operators[number].path
    operands, results = plan.operators[number].operands, plan.operators[number].results
    sharded = f"{', '.join(map(str, operands))} -> {', '.join(map(str, results))}"
    return (
        f"The first operator that differs is number {number}{f' in {path}' if path else ''}: {leaf}, sharded {sharded}."
    )


def _moved(array: Any) -> Any:
    """An array whose floats differ by one unit in the last place, up or down."""
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    signs = np.random.default_rng(0).choice((-1.0, 1.0), array.shape)
    return array * (1 + signs * float(jnp.finfo(array.dtype).eps)).astype(array.dtype)


def _leaf(name: str, planned: Any, alone: Any, moved: Any, coarsest: float) -> VerifiedLeaf:
    one, other, third = map(_numbers, (planned, alone, moved))
    spread = _distances(other, third)
    # Where one unit in the last place decides whether there is a number, neither says anything.
    distances = np.where(np.isfinite(spread), _distances(one, other), 0.0)
    place = int(np.argmax(distances)) if distances.size else 0
    finite = np.abs(other)[np.isfinite(other)]
    share = float(np.sqrt(coarsest)) if jnp.issubdtype(alone.dtype, jnp.inexact) else 0.0
    limit = share * float(finite.max(initial=0)) + _SPREADS * float(spread[np.isfinite(spread)].max(initial=0))
    return VerifiedLeaf(
        name,
        str(alone.dtype),
        tuple(alone.shape),
        float(distances.max(initial=0)),
        limit,
        tuple(map(int, np.unravel_index(place, one.shape))) if one.size else (),
        one.reshape(-1)[place] if one.size else None,
        other.reshape(-1)[place] if one.size else None,
    )


def _numbers(array: Any) -> Any:
    """Any array in a type that numpy subtracts."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array).astype(np.complex128 if jnp.issubdtype(array.dtype, jnp.complexfloating) else np.float64)


def _distances(one: Any, other: Any) -> Any:
    """How far values are apart: NaN and NaN, or two equal infinities, not at all; a number and NaN, by inf."""
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        return np.where(equal, 0.0, np.nan_to_num(np.abs(one - other), nan=np.inf, posinf=np.inf))


def _epsilon(dtype: str) -> float:
    """Relative distance of neighbouring numbers; 0 for types without fractions."""
    known = dtype.startswith(("float", "bfloat", "complex")) and dtype != "float0"
    return float(jnp.finfo(dtype).eps) if known else 0.0
