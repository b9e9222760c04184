"""Around a plan: the user's mesh, the names of its axes, and the settings that the call or the command line has.

Problem 1: users set a mesh for a whole program (`jax.set_mesh`, ``with mesh:``), and arrays on meshes with explicit axes have
their sharding in their type, while a planned function runs on a mesh of its own, with axes of prime sizes. Method: a plan
takes the mesh of the context, under which the function is traced; in the compiled function arguments lose their types, and
results get theirs again.

Problem 2: a search may shard an array over a part of the user's axis, which no `PartitionSpec` over the user's mesh can say.
Method (`NamedAxes`, `NamedMesh`): each named axis is a run of prime axes. The mesh that is given back keeps an axis whole where
every sharding uses all of it or none, and has its prime parts, ``data.0``, ``data.1``, …, where one does not.

`under_environment`, `requested_devices`: hardware, search, memory, devices, as the call, the mesh around it or the command line
set them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, did_you_mean
from sporax.ir.config.plan_settings import DEVICES, HARDWARE, MEMORY, MODE, SEMI_AUTO
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Input, OperatorGraph
from sporax.ir.hardware import SYMBOLIC
from sporax.ir.layout import Layout
from sporax.ir.marks import LayoutMark
from sporax.ir.placement import Placement, prime_mesh
from sporax.ir.plan import Plan
from sporax.lowering.ingest.constraints import Constraints
from sporax.lowering.jax_versions import entries_of
from sporax.planner.pins.strategies import layout_placement


@dataclass(frozen=True, slots=True)
class NamedAxes:
    """The user's axes, outermost first.

    Attributes:
        sizes: devices along each axis, by its name.
        types: of the axes; () where all are automatic.
    """

    sizes: tuple[tuple[str, int], ...]
    types: tuple[AxisType, ...] = ()

    @property
    def abstract(self) -> AbstractMesh:
        """The axes without devices; as if of the first ones here, where there are enough."""
        names, sizes = zip(*self.sizes, strict=True)
        abstract: AbstractMesh = _mesh(DeviceMatrix(sizes), sizes, names, self.types).abstract_mesh
        return abstract

    def runs(self) -> Mapping[str, tuple[int, ...]]:
        """The prime axes that each of them is made of, in ascending order."""
        counts = [prime_mesh(DeviceMatrix((size,))).num_axes for _, size in self.sizes]
        starts = [0, *accumulate(counts)]
        return {
            name: tuple(range(start, start + count))
            for (name, _), start, count in zip(self.sizes, starts, counts, strict=False)
        }

    def placement(self, spec: PartitionSpec, num_dims: int, whose: str, option: str = "fixed") -> Placement:
        """The sharding that a specification says.

        Args:
            spec: by dimension an axis, several or None.
            whose: what messages call the array.
            option: the argument of `sporax.plan` that says it.

        Raises:
            SporaxValueError: more dimensions than the array has, an axis that is none of the mesh, or an open dimension.
        """
        runs = self.runs()
        entries = entries_of(spec)
        For("plan").refuse(spec.unreduced, f"'{option}' must leave {whose} complete", spec)
        if any(entry is PartitionSpec.UNCONSTRAINED for entry in entries):
            raise SporaxValueError(
                f"For 'plan', '{option}' must say of each dimension of {whose} how it is sharded, as for `jax.jit`, but got "
                f"{spec}. None in place of it leaves the whole array to the search, a constraint in 'fn' one dimension."
            )
        if len(spec) > num_dims:
            raise SporaxValueError(
                f"For 'plan', '{option}' must fit {whose} of {num_dims} dimensions, but got {spec} with {len(spec)}."
            )
        dims: list[tuple[int, ...]] = []
        for entry in (*entries, *[None] * (num_dims - len(spec))):
            names = () if entry is None else entry if isinstance(entry, tuple) else (entry,)
            for name in names:
                if name not in runs:
                    raise SporaxValueError(
                        f"For 'plan', '{option}' must name axes of 'devices', {list(runs)}, but got {name!r} for {whose}."
                        f"{did_you_mean(name, runs)}"
                    )
            dims.append(tuple(axis for name in names for axis in runs[name]))
        return Placement(tuple(dims))

    def on_axes(self, placement: Placement, names: Collection[str]) -> PartitionSpec:
        """What a placement is on some of the user's axes: in each dimension up to the first part of an axis, or another axis."""
        runs = {run[0]: (name, run) for name, run in self.runs().items() if run and name in names}
        dims: list[tuple[str, ...]] = []
        for axes in placement.dims:
            found: list[str] = []
            while axes and axes[0] in runs and _uses_all(axes, runs[axes[0]][1]):
                name, run = runs[axes[0]]
                found, axes = [*found, name], axes[len(run) :]
            dims.append(tuple(found))
        return PartitionSpec(*(found or None for found in dims))

    def refined(self, mesh: DeviceMatrix, placements: Iterable[Placement]) -> NamedMesh:
        """The mesh that can say all these shardings, with the user's axes wherever they can."""
        dims = {axes for placement in placements for axes in placement.dims if axes}
        sizes: list[int] = []
        names: list[str] = []
        runs: list[tuple[int, ...]] = []
        for (name, size), run in zip(self.sizes, self.runs().values(), strict=True):
            if all(_uses_all(axes, run) for axes in dims):
                sizes, names, runs = [*sizes, size], [*names, name], [*runs, run]
                continue
            sizes += [mesh.shape[axis] for axis in run]
            names += [f"{name}.{number}" for number in range(len(run))]
            runs += [(axis,) for axis in run]
        # Types are those of the user's axes, not of parts of them.
        made = _mesh(mesh, sizes, names, self.types if len(names) == len(self.sizes) else ())
        return NamedMesh(made, tuple(zip(names, runs, strict=True)))


@dataclass(frozen=True, slots=True)
class NamedMesh:
    """A mesh of JAX, and the prime axes that each of its axes is made of.

    Attributes:
        mesh: with devices where this process sees enough of them, else an `AbstractMesh`.
        runs: prime axes by name.
    """

    mesh: Mesh | AbstractMesh
    runs: tuple[tuple[str, tuple[int, ...]], ...]

    def spec(self, placement: Placement) -> PartitionSpec:
        """What a placement is on this mesh."""
        firsts = {run[0]: name for name, run in self.runs if run}
        dims = [tuple(firsts[axis] for axis in axes if axis in firsts) for axes in placement.dims]
        return PartitionSpec(*(names[0] if len(names) == 1 else names or None for names in dims))


def _uses_all(axes: Sequence[int], run: tuple[int, ...]) -> bool:
    """Whether axes of a dimension hold all of a run, in order and next to each other, or nothing of it."""
    if not set(axes) & set(run):
        return True
    start = axes.index(run[0]) if run[0] in axes else 0
    return tuple(axes[start : start + len(run)]) == run


def _mesh(
    mesh: DeviceMatrix, sizes: Sequence[int], names: Sequence[str], types: tuple[AxisType, ...] = ()
) -> Mesh | AbstractMesh:
    # The default of abstract meshes differs between versions of JAX.
    types = types or (AxisType.Auto,) * len(names)
    if mesh.num_devices > jax.device_count():
        return AbstractMesh(tuple(sizes), tuple(names), axis_types=types)
    devices: Any = np.array(jax.devices(), dtype=object)[list(mesh.ranks)]
    return Mesh(devices.reshape(tuple(sizes)), tuple(names), axis_types=types)


def context_mesh() -> Mesh | AbstractMesh | None:
    """The mesh of `jax.set_mesh`, `jax.sharding.use_abstract_mesh` or ``with mesh:``; None outside of them."""
    abstract = jax.sharding.get_abstract_mesh()
    if not abstract.empty:
        mesh = jax.sharding.get_mesh()
        return mesh if mesh.abstract_mesh == abstract else abstract
    try:
        # The mesh of ``with mesh:`` has no other public way to it than a constraint that is made there.
        made = jax.make_jaxpr(lambda x: jax.lax.with_sharding_constraint(x, PartitionSpec()))(0.0)
    except (RuntimeError, ValueError):
        # Programs that put `jax.reshard` in place of the constraint, as MaxText does, get its error.
        return None
    mesh = made.eqns[0].params["sharding"].mesh
    return None if mesh.empty else mesh


def mesh_around(args: Any) -> Mesh | AbstractMesh | None:
    """The mesh that a plan is for where the user names none: that of the context, or of arguments whose types say one.

    Args:
        args: arrays, structs in their place, and shardings.
    """
    shardings = (leaf if isinstance(leaf, NamedSharding) else typed_sharding(leaf) for leaf in jax.tree.leaves(args))
    return context_mesh() or next((sharding.mesh for sharding in shardings if sharding is not None), None)


def is_typed(args: Any) -> bool:
    """Whether that mesh has axes that are a part of the type of arrays."""
    mesh = mesh_around(args)
    return mesh is not None and AxisType.Explicit in mesh.axis_types


def typed_sharding(leaf: Any) -> NamedSharding | None:
    """The sharding that the type of an array says, or a struct in its place; None where it says none, and while it is traced."""
    # A tracer searches the whole trace for the words of its refusal.
    sharding = None if isinstance(leaf, jax.core.Tracer) else getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding):
        return None
    return sharding if isinstance(leaf, jax.ShapeDtypeStruct) or is_explicit(sharding) else None


def is_explicit(sharding: NamedSharding | None) -> bool:
    """Whether it is on axes that are a part of the type of arrays."""
    return sharding is not None and AxisType.Explicit in sharding.mesh.axis_types


def with_types(
    placements: Mapping[int, Placement],
    marks: Sequence[LayoutMark | None],
    inputs: Sequence[Input],
    graph: OperatorGraph,
    mesh: DeviceMatrix,
) -> dict[int, Placement]:
    """The placements of fixed inputs, and of those arguments whose types say how they are sharded.

    Raises:
        SporaxValueError: a type says something else than what is fixed.
    """
    found = {**placements}
    for entry, mark in zip(inputs, marks, strict=True):
        if mark is None:
            continue
        (layout,) = mark.layouts
        assert isinstance(layout, Layout)
        placement = layout_placement(mark.requester, 0, layout, graph.tensors[entry.tensor].shape, mesh)
        if found.setdefault(entry.tensor, placement) != placement:
            raise SporaxValueError(
                f"For 'plan', {mark.requester} must be sharded as its type says, {layout}, but 'fixed' or 'in_shardings' has "
                f"{found[entry.tensor].on(mesh)}."
            )
    return found


def types_of(args: Any, constraints: Constraints) -> list[LayoutMark | None]:
    """What the types of arguments say, by array.

    Raises:
        SporaxValueError: one is of another mesh than the plan's.
    """
    leaves = jax.tree_util.tree_flatten_with_path(args)[0]
    typed = [(typed_sharding(leaf), leaf, f"args{jax.tree_util.keystr(path)}") for path, leaf in leaves]
    return [None if one is None else constraints.mark(one, len(leaf.shape), name) for one, leaf, name in typed]


def traced_under(axes: NamedAxes | None, trace: Callable[[], ClosedJaxpr]) -> ClosedJaxpr:
    """A trace under the user's mesh; where there is none, under the axes of the plan, so that constraints may name them."""
    if axes is None or context_mesh() is not None:
        return trace()
    try:
        with jax.sharding.use_abstract_mesh(axes.abstract):
            return trace()
    except ValueError as error:
        # An island on another mesh cannot be in this context.
        if "mesh" not in str(error):
            raise
        return trace()


def on_typed_arrays(
    program: Callable[..., list[Any]],
    leaves: Sequence[Any],
    results: Sequence[Placement],
    plan: DeviceMatrix,
    axes: NamedAxes | None,
) -> list[Any]:
    """The results of a program of all devices; they have types where the arguments, or the mesh of the context, have them.

    Args:
        program: takes and gives arrays without such types.
        leaves: its arguments, while it is traced.
        results: where its results are. A part of an axis is no type: such a result is whole along the axis.
        plan: the devices, with axes of prime sizes.
        axes: of the plan, where they have names.

    Raises:
        SporaxTypeError: the types are of a mesh that is not the plan's.
    """
    meshes = [jax.typeof(leaf).sharding.mesh for leaf in leaves]
    explicit = (mesh for mesh in (jax.sharding.get_abstract_mesh(), *meshes) if AxisType.Explicit in mesh.axis_types)
    mesh = next(explicit, None)
    if mesh is None:
        return program(*leaves)
    there = NamedAxes(tuple(mesh.shape.items()))
    named = axes if axes is not None and dict(axes.sizes) == dict(there.sizes) else there
    if named is there and prime_mesh(DeviceMatrix(mesh.axis_sizes)).shape != plan.shape:
        raise SporaxTypeError(
            f"For 'plan', arrays must be on the mesh of the plan, {axes or plan}, but got one on {mesh}. "
            "`jax.device_put(args, planned.in_shardings)` brings them there."
        )
    typing = [name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind is AxisType.Explicit]
    shardings = [NamedSharding(mesh, named.on_axes(place, typing)) for place in results]
    typed: list[Any] = jax.sharding.auto_axes(program, out_sharding=shardings)(*leaves)
    return typed


def named_axes(devices: Any) -> NamedAxes | None:
    """The axes of the devices, where they have names."""
    if isinstance(devices, Mapping):
        return NamedAxes(tuple(devices.items()))
    if isinstance(devices, Mesh | AbstractMesh) and devices.axis_names:
        return NamedAxes(tuple((str(name), size) for name, size in devices.shape.items()), devices.axis_types)
    return None


def under_environment(
    environ: Mapping[str, str], hardware: str, mode: str, memory: int | str | None
) -> tuple[str, str, int | str | None]:
    """Hardware, mode and memory, with what the environment says instead, as for training scripts.

    Raises:
        SporaxValueError: it says what holds for training scripts alone.
    """
    # Both values belong to training scripts: symbolic costs and strategies by marks.
    for variable, value in {HARDWARE: SYMBOLIC, MODE: SEMI_AUTO}.items():
        if environ.get(variable, "").lower() == value:
            raise SporaxValueError(
                f"For 'plan', {variable} must be left out or say something else for functions of plain JAX, but got '{value}'."
            )
    return environ.get(HARDWARE) or hardware, environ.get(MODE) or mode, environ.get(MEMORY) or memory


def requested_devices(environ: Mapping[str, str], devices: Any, saved: str | None, args: Any) -> Any:
    """The devices of the call or else of the mesh around it, or the number that `sporax plan --devices` was given instead.

    Raises:
        SporaxValueError: the call brings a saved plan, which is for the devices it was made for.
    """
    wanted = environ.get(DEVICES)
    if not wanted:
        return mesh_around(args) if devices is None and saved is None else devices
    if saved is not None:
        count = Plan.from_json(saved).mesh.num_devices
        For("plan").refuse(
            count != int(wanted), f"the saved plan is for {count} devices, but `sporax plan --devices` has {wanted}"
        )
        return devices
    return int(wanted)


def device_matrix(devices: Any) -> DeviceMatrix:
    """The devices of a plan, by their places among those that JAX sees."""
    if isinstance(devices, Mapping):
        return _named_matrix(devices)
    # An abstract mesh has a shape and no devices.
    if isinstance(devices, AbstractMesh):
        return DeviceMatrix(tuple(devices.axis_sizes) or (1,))
    if isinstance(devices, Mesh):
        return _of_these(devices.devices)
    if isinstance(devices, list | tuple) and devices:
        return _of_these(np.array(devices, dtype=object))
    count = jax.device_count() if devices is None else int(devices) if isinstance(devices, np.integer) else devices
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SporaxValueError(
            f"For 'plan', 'devices' must be a number of devices, 1 or more, but got {reprlib.repr(devices)}. A list of some, as "
            "`jax.devices()` gives them, or a mesh will do as well."
        )
    return DeviceMatrix((count,))


def _named_matrix(devices: Mapping[str, int]) -> DeviceMatrix:
    """So many devices along each axis."""
    wrong = [size for size in devices.values() if not isinstance(size, int) or isinstance(size, bool) or size < 1]
    if wrong or not devices or not all(isinstance(name, str) for name in devices):
        raise SporaxValueError(
            f"For 'plan', 'devices' must say how many devices are along each axis, {{'data': 8}}, but got {devices!r}."
        )
    return DeviceMatrix(tuple(devices.values()))


def _of_these(devices: Any) -> DeviceMatrix:
    """These devices, an array."""
    ranks = {device: rank for rank, device in enumerate(jax.devices())}
    chosen = devices.reshape(-1).tolist()
    # The device itself is looked up, since another backend's devices may have equal numbers.
    strange = [entry for entry in chosen if not isinstance(entry, jax.Device) or entry not in ranks]
    if strange or len(set(chosen)) < len(chosen):
        twice = next((entry for entry in chosen if chosen.count(entry) > 1), None)
        got = f"{strange[0]!r}" if strange else f"{twice!r} twice"
        raise SporaxValueError(
            f"For 'plan', 'devices' must be different ones of the {len(ranks)} that `jax.devices()` has, but got {got}."
        )
    return DeviceMatrix(tuple(devices.shape) or (1,), (), tuple(ranks[entry] for entry in chosen))
