"""Shardings that users write into programs, as marks: the planner keeps what marks say.

`jax.lax.with_sharding_constraint`, `jax.reshard` and `jax.device_put` are identities that place a tensor; an inner `jax.jit`
places its arguments and results; on a mesh with explicit axes an operator says where its result is (``out_sharding``). All of
them name axes of a mesh, which must be those of the plan.

`jax.shard_map` in a program: what plans must know of it, and its body as a graph of one device's slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.base.errors import SporaxNotImplementedError, SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.island import Island, IslandCollective, Names
from sporax.ir.layout import Layout
from sporax.ir.marks import LayoutMark, next_number
from sporax.lowering.jax_versions import entries_of
from sporax.lowering.rewriter import aval_of
from sporax.planner.communication.moves import COLLECTIVES, named_axes
from sporax.planner.loops.inline import inline_loops
from sporax.planner.rules import local_flops, rule_for, unsharded
from sporax.planner.rules.elementwise import CASTS

_IDENTITIES = {"sharding_constraint": "with_sharding_constraint", "reshard": "reshard", "device_put": "device_put"}
"""Primitives that place tensors and do nothing else, and the functions that users call."""
_IN_DEVICES = (None, "device", "unpinned_host")
"""Kinds of memory that are the device's own; CPUs say the last."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Makes marks of the shardings in a program.

    Attributes:
        axes: the axes of the plan by name, with their sizes; none where they have no names, and any mesh of as many devices does.
        ranks: the devices of the plan, by their places among all; none where nothing is known of them.
    """

    axes: Mapping[str, int] = field(default_factory=dict)
    ranks: Sequence[int] = ()

    def mark(self, sharding: NamedSharding, num_dims: int, requester: str) -> LayoutMark:
        """The mark of a tensor.

        Args:
            requester: what messages call the constraint.

        Raises:
            SporaxValueError: it is about another mesh than the plan's, about partial sums or about host memory.
        """
        matrix, spec = self.matrix(sharding.mesh, requester), sharding.spec
        _check_on_devices(sharding, requester)
        entries = [*entries_of(spec), *[None] * (num_dims - len(spec))]
        # A type says nothing of automatic axes next to explicit ones.
        is_partial = AxisType.Explicit in sharding.mesh.axis_types and AxisType.Auto in sharding.mesh.axis_types
        open_ones = (PartitionSpec.UNCONSTRAINED, *([None] if is_partial else []))
        free = tuple(dim for dim, entry in enumerate(entries) if entry in open_ones)
        names = [() if entry is None or dim in free else entry for dim, entry in enumerate(entries)]
        dims = tuple(
            tuple(matrix.axis(name) for name in ((entry,) if isinstance(entry, str) else entry) if name in matrix.names)
            for entry in names
        )
        return LayoutMark(requester, next_number(), (Layout(matrix, dims),), free, is_stored=False)

    def matrix(self, mesh: Mesh | AbstractMesh, requester: str, any_names: bool = False) -> DeviceMatrix:
        """A mesh with its axes in the order of the plan's, those of one device left out.

        Args:
            mesh: what the user says.
            requester: what messages call who says it.
            any_names: whether it may have other axes than the plan.

        Raises:
            SporaxValueError: it is another mesh than the plan's.
        """
        there, own = _sizes(mesh.shape), _sizes(self.axes)
        devices, count = _ranks_of(mesh), len(self.ranks) or mesh.size
        for expected, received, agrees in (
            (_text(own), _text(there), any_names or not self.axes or own == there),
            (f"of {count} devices", f"{mesh.size} devices", mesh.size == count),
            (
                f"of the devices {sorted(self.ranks)}",
                sorted(devices),
                not (devices and self.ranks) or devices == {*self.ranks},
            ),
        ):
            if not agrees:
                raise SporaxValueError(
                    f"For '{requester}', the mesh must be that of the plan, {expected}, but got {received}. "
                    "Plan with `devices=` this mesh, or constrain on the mesh of the plan. `jax.pmap` is such a mesh; `jax.vmap` "
                    "with its axis_name is none."
                )
        order = tuple(own if own == there else there)
        return DeviceMatrix(tuple(there[name] for name in order) or (1,), order)


ANY_MESH = Constraints()
"""Those of programs that no plan with names is made of."""


def _check_on_devices(sharding: NamedSharding, requester: str) -> None:
    """Raise `SporaxValueError` where a sharding says of an array what a plan decides."""
    must, got = "complete, since plans decide where sums are partial", str(sharding.spec)
    if sharding.memory_kind not in _IN_DEVICES:
        must, got = (
            "in the memory of devices (`jax.device_put` in the function sends it to hosts)",
            sharding.memory_kind,
        )
    elif not sharding.spec.unreduced:
        return
    raise SporaxValueError(f"For '{requester}', the array must be {must}, but got {got}.")


def _sizes(axes: Mapping[Any, int]) -> dict[str, int]:
    """The axes of more than one device."""
    return {str(name): size for name, size in axes.items() if size > 1}


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "one device"


def _ranks_of(mesh: Mesh | AbstractMesh) -> set[int]:
    """The places of a mesh's devices among all; none of an abstract mesh."""
    ranks = {device: rank for rank, device in enumerate(jax.devices())}
    return {ranks.get(device, -1) for device in mesh.devices.flat} if isinstance(mesh, Mesh) else set()


def placed_by(eqn: JaxprEqn) -> tuple[str, Sequence[NamedSharding | None]]:
    """What users call an identity that places tensors on devices, and the sharding of each; ("", ()) for other equations."""
    name = _IDENTITIES.get(str(eqn.primitive.name), "")
    found = [value for value in _values(eqn.params) if isinstance(value, NamedSharding)] if name else []
    # What goes to host memory is a transfer.
    if len(found) != len(eqn.outvars) or any(sharding.memory_kind not in _IN_DEVICES for sharding in found):
        return "", ()
    return name, [_if_typed(sharding) for sharding in found] if name == "reshard" else [
        _if_complete(one) for one in found
    ]


def without_shardings(eqn: JaxprEqn) -> tuple[JaxprEqn, NamedSharding | None]:
    """An operator that does not say where its result is, and where it said so: slices are computed on meshes of their own."""
    for name in ("out_sharding", "sharding"):
        sharding = eqn.params.get(name)
        if isinstance(sharding, NamedSharding):
            result = aval_of(eqn.outvars[0])
            # JAX's rule for conversions under `vmap` adds a dimension twice; the type of the result is right.
            typed = sharding if len(sharding.spec) <= result.ndim else result.sharding
            return eqn.replace(params={**eqn.params, name: None}), _if_typed(typed)
    return eqn, None


def _if_typed(sharding: NamedSharding) -> NamedSharding | None:
    """The sharding of a type; of automatic axes it says nothing."""
    return _if_complete(sharding) if AxisType.Explicit in sharding.mesh.axis_types else None


def _if_complete(sharding: NamedSharding) -> NamedSharding | None:
    """A sharding; None where it leaves partial sums (``unreduced``), for which the plan finds a place."""
    return None if sharding.spec.unreduced else sharding


def _values(params: Mapping[str, Any]) -> Iterator[Any]:
    """The values of parameters, those of tuples one by one."""
    for value in params.values():
        yield from value if isinstance(value, tuple | list) else (value,)


SHARD_MAP = "shard_map"
_ONE_DEVICE = DeviceMatrix((1,))


def body_of(eqn: JaxprEqn) -> ClosedJaxpr:
    """The program of one device."""
    body: Jaxpr | ClosedJaxpr = eqn.params["jaxpr"]
    return body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())


def island_of(eqn: JaxprEqn, body: OperatorGraph, constraints: Constraints) -> Island:
    """What a plan must know of an island.

    Raises:
        SporaxValueError: it is for other devices than the plan, or takes or gives partial sums.
    """
    mesh = eqn.params["mesh"]
    matrix = constraints.matrix(mesh, SHARD_MAP, any_names=True)
    manual = eqn.params.get("newly_manual_axes", eqn.params.get("manual_axes", mesh.axis_names))
    axes = tuple(name for name in map(str, mesh.axis_names) if name in manual and name in matrix.names)

    def names(spec: PartitionSpec, num_dims: int) -> Names:
        if spec.unreduced:
            raise SporaxValueError(
                f"For 'shard_map', what passes its border must be complete, but got {spec}: reduce it inside (`jax.lax.psum`)."
            )
        entries = [*entries_of(spec), *[None] * (num_dims - len(spec))]
        each = (() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in entries)
        return tuple(tuple(name for name in entry if name in axes) for entry in each)

    return Island(
        matrix,
        axes,
        tuple(
            names(spec, len(aval_of(var).shape)) for spec, var in zip(eqn.params["in_specs"], eqn.invars, strict=True)
        ),
        tuple(
            names(spec, len(aval_of(var).shape)) for spec, var in zip(eqn.params["out_specs"], eqn.outvars, strict=True)
        ),
        *_work(body),
        body,
    )


NAMING = frozenset([*COLLECTIVES, *CASTS, "axis_index"])
"""Primitives that name axes."""


def _work(body: OperatorGraph) -> tuple[float, tuple[IslandCollective, ...]]:
    """Arithmetic and collectives of one device.

    Raises:
        SporaxNotImplementedError: a primitive names axes that has no meaning along those of a plan.
    """
    flops, collectives = 0.0, []
    for operator in inline_loops(body).graph.operators:
        rule = rule_for(operator.operation)
        flops += operator.times * local_flops(rule, unsharded(rule), _ONE_DEVICE)
        axes = named_axes(operator.operation.params)
        if operator.name in COLLECTIVES and axes:
            num_bytes = sum(spec.num_bytes for spec in operator.operation.operands)
            kind, _ = COLLECTIVES[operator.name]
            collectives.append(IslandCollective(kind.value, axes, num_bytes, operator.times))
        elif (inner := operator.operation.params.get("island")) is not None:
            collectives += inner.collectives
        elif axes and operator.name not in NAMING:
            raise SporaxNotImplementedError(
                f"For 'shard_map', '{operator.name}' over {', '.join(axes)} cannot be planned."
            )
    return flops, tuple(collectives)


def value_of(literal: Literal) -> Any:
    """The value of a literal; what was traced under a mesh, as in islands, has it in its type, which is left out."""
    aval: Any = literal.aval
    is_on_mesh = getattr(aval, "sharding", None) is not None and not aval.sharding.mesh.empty
    return np.asarray(literal.val, aval.dtype) if is_on_mesh else literal.val
