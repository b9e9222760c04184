"""`sporax.plan`: automatic parallelism for any JAX function, without the facade.

planned = sporax.plan(train_step, params, batch, devices=64, hardware="h100", carry={0: 0})
print(planned.summary())                    on a laptop with one device
step = planned.function()                   on the devices themselves
"""

from __future__ import annotations

import os
import reprlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.base.progress import doing, shown
from sporax.base.units import parse_bytes
from sporax.ir.config.plan_settings import DEVICES, HARDWARE, MEMORY, MODE, SEMI_AUTO, SYMBOLIC
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.hardware import load_profile
from sporax.ir.layout import Layout
from sporax.ir.placement import Placement, prime_mesh
from sporax.ir.plan import Plan
from sporax.lowering.ingest.ingest import Ingested, ingest
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.kernel_cost import kernel_seconds
from sporax.planner.cost.link_rates import link_costs
from sporax.planner.cost.model import Roofline
from sporax.planner.plan_check import check_plan
from sporax.planner.search import SearchOptions, SearchResult, search
from sporax.report.plan_warnings import plan_warnings
from sporax.report.questions import Answers
from sporax.runtime import world
from sporax.runtime.devices.device_program import device_program
from sporax.runtime.devices.global_view import fitting_hardware, sharding_of
from sporax.runtime.process.defects import defects_told
from sporax.runtime.session import SESSION


@dataclass(frozen=True, repr=False)
class PlannedFunction(Answers):
    """A function, and how to cut it over devices. Made by `plan`.

    Attributes:
        step: the traced function and its graph.
        search: how the plan was found: predicted seconds, lower bound, time of the search.
        model: what priced it.
        options: the options of the search.
        in_tree, out_tree: structures of the arguments (a tuple) and of the result.
    """

    step: Ingested
    search: SearchResult
    model: Roofline
    options: SearchOptions
    in_tree: Any
    out_tree: Any

    @property
    def plan(self) -> Plan:
        """Where everything is."""
        return self.search.plan

    @property
    def graph(self) -> OperatorGraph:
        """The operators of the function."""
        return self.step.graph

    @cached_property
    def predicted_seconds(self) -> float:
        """Predicted time of one call of the compiled function: of its kernels, where the search priced operators."""
        return kernel_seconds(self.graph, self.plan, self.model)

    @cached_property
    def in_shardings(self) -> Any:
        """Where the arguments must be, as a tuple of their structure; `jax.device_put` brings them there.

        Raises:
            SporaxValueError: this process sees fewer devices than the plan is for.
        """
        return jax.tree.unflatten(self.in_tree, self._shardings(self._argument_places))

    @cached_property
    def out_shardings(self) -> Any:
        """Where the results are, in their structure. Raises as `in_shardings`."""
        return jax.tree.unflatten(self.out_tree, self._shardings(self.plan.outputs))

    def function(self, donate: Sequence[int] = ()) -> Callable[..., Any]:
        """The function of whole arrays, compiled for all devices at its first call.

        Args:
            donate: positions of arguments whose memory may be used for results.

        Raises:
            SporaxValueError: this process sees fewer devices than the plan is for.
        """
        self._check_devices()
        mapped = device_program(self.step, self.plan, "planned")

        def call(*args: Any) -> Any:
            leaves, tree = jax.tree.flatten(args)
            # Compiled for this structure: another one would be another plan.
            if tree != self.in_tree:
                raise SporaxTypeError(
                    f"For 'plan', the arguments must have the structure {self.in_tree}, but got {tree}."
                )
            return jax.tree.unflatten(self.out_tree, mapped(*leaves))

        return jax.jit(
            call, in_shardings=self.in_shardings, out_shardings=self.out_shardings, donate_argnums=tuple(donate)
        )

    @property
    def _argument_places(self) -> tuple[Placement, ...]:
        return self.plan.inputs[len(self.step.constants) :]

    def _shardings(self, places: Sequence[Placement]) -> list[NamedSharding]:
        self._check_devices()
        return [sharding_of(place, self.plan.mesh) for place in places]

    def _check_devices(self) -> None:
        needed, there = self.plan.mesh.num_devices, jax.device_count()
        if needed > there:
            raise SporaxValueError(
                f"For 'plan', running needs the {needed} devices of the plan, but this process sees {there}."
            )
        if max(self.plan.mesh.ranks) >= there:
            raise SporaxValueError(
                f"For 'plan', the ranks of the plan must be below {there}, which are here, but got {list(self.plan.mesh.ranks)}."
            )


def plan(
    fn: Callable[..., Any],
    *args: Any,
    devices: int | Sequence[jax.Device] | Mesh | AbstractMesh | None = None,
    hardware: str = "",
    mode: str = "dynamic",
    fixed: Mapping[int, Any] | None = None,
    memory: int | str | None = None,
    carry: Mapping[int, int] | None = None,
    overlap: float | None = None,
    saved: str | None = None,
) -> PlannedFunction:
    """Search for the fastest way to cut a JAX function over devices.

    Args:
        fn: any function of pytrees of arrays; a whole training step, too.
        args: its arguments, or `jax.ShapeDtypeStruct` in place of their arrays: nothing is run.
        devices: how many, which need not be there to plan; or which, as a list or a `jax.sharding.Mesh`, whose shape says in what
            numbers they are next to each other; all that JAX sees by default.
        hardware: name of a profile (`sporax.ir.hardware.known_profiles`) or a JSON file; by default what JAX runs on. The
            environment (``SPORAX_HARDWARE``, ``SPORAX_PLAN_MODE``, ``SPORAX_PLAN_MEMORY``) and flags of `sporax plan` win over
            this, `mode` and `memory`, as they do in training scripts.
        mode: ``"dynamic"`` (exact where it says so), ``"ilp"`` (the optimum, or the best found with a bound),
            ``"recursive"`` (fast), ``"propagation"`` (spreads from `fixed`), ``"repeated_blocks"`` (layers that look alike
            are planned once, with a bound).
        fixed: how arguments are sharded: position of the argument -> number of slices per dimension, for all its arrays (a
            tuple) or in its structure; None leaves an array to the search.
        memory: limit of one device, in bytes or as ``"80GB"``.
        carry: results that take an argument's place at the next step, ``{position of result: position of argument}``, such
            as updated parameters; both are then sharded alike.
        overlap: share of the time of collectives on gradients, and on all else that is made in the backward pass or after it,
            that hides behind computing and is not counted; 0 to 1. What the profile says by default.
        saved: a plan of this function, as ``planned.plan.to_json()`` wrote it. It is checked and taken: nothing is searched, and
            `devices`, `fixed` and `memory` have nothing to say.

    Raises:
        SporaxTypeError: `fn` is no function, or something that it takes or returns is neither an array nor a number.
        SporaxValueError: no devices, or devices that this process does not see; an unknown mode or profile; a sharding that does
            not fit; a function that changes its arguments in place; a memory limit or share that cannot be read; or a saved plan
            that is not a plan of this function.
        SporaxRuntimeError: nothing fits the memory.
    """
    with shown(speaks=jax.process_index() == 0), doing("planning a function"):
        planned = _planned(fn, args, devices, hardware, mode, fixed or {}, memory, carry or {}, overlap, saved)
    # Where plans are only shown, their heads say it.
    if not SESSION.plan_only and jax.process_index() == 0:
        for text in plan_warnings(planned.graph, planned.plan, planned.model):
            warnings.warn(text, stacklevel=2)
    SESSION.announce(planned)
    return planned


def _planned(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    devices: Any,
    hardware: str,
    mode: str,
    fixed: Mapping[int, Any],
    memory: int | str | None,
    carry: Mapping[int, int],
    overlap: float | None,
    saved: str | None,
) -> PlannedFunction:
    """As `plan`, without announcing it to listeners."""
    # The environment first: `sporax plan` and `sporax run` set it for scripts that they do not change.
    hardware, mode, memory = _under(os.environ, hardware, mode, memory)
    devices = _asked_devices(os.environ, devices, saved)
    if not callable(fn):
        raise SporaxTypeError(f"For 'plan', 'fn' must be a function, but got {reprlib.repr(fn)}.")
    # A bool is an int in Python, but never a share.
    is_share = isinstance(overlap, int | float) and not isinstance(overlap, bool) and 0.0 <= overlap <= 1.0
    if overlap is not None and not is_share:
        raise SporaxValueError(f"For 'plan', 'overlap' must be between 0 and 1, but got {overlap!r}.")
    if not isinstance(mode, str):
        raise SporaxTypeError(f"For 'plan', 'mode' must be a text, but got {reprlib.repr(mode)}.")
    matrix = _matrix(devices)
    limit = None if memory is None else parse_bytes(memory, "For 'plan', 'memory'")
    profile = load_profile(hardware or fitting_hardware(jax.default_backend()))
    profile = profile if overlap is None else replace(profile, overlap=overlap)
    step, in_tree, out_tree = _traced(fn, args, carry)
    scatters = world.has_reduce_scatter()
    if saved is not None:
        # A saved plan settles all three, so a second word on them would be ignored without notice.
        for name, value in {"devices": devices, "fixed": fixed or None, "memory": memory}.items():
            if value is not None:
                raise SporaxValueError(
                    f"For 'plan', '{name}' must be left out together with 'saved', but got {value!r}."
                )
        # The devices at hand decide how sums are scattered, not those of the process that saved the plan.
        plan = Plan.from_json(saved).on_devices(scatters)
        # The file may be of an older version of the function.
        check_plan(step.graph, plan)
        model = Roofline(profile, link_costs(profile, plan.mesh, has_reduce_scatter=scatters))
        return PlannedFunction(step, _as_found(step.graph, plan, model), model, SearchOptions(), in_tree, out_tree)
    mesh = prime_mesh(matrix)
    options = SearchOptions(fixed=_fixed(fixed, args, step, mesh), memory_bytes=limit)
    model = Roofline(profile, link_costs(profile, mesh, has_reduce_scatter=scatters))
    with defects_told("planning", "plan"):
        result = search(step.graph, mesh, model, mode, options)
    return PlannedFunction(step, result, model, options, in_tree, out_tree)


def _under(
    environ: Mapping[str, str], hardware: str, mode: str, memory: int | str | None
) -> tuple[str, str, int | str | None]:
    """Hardware, mode and memory, with what the environment says instead, as for training scripts.

    Raises:
        SporaxValueError: it says what holds for training scripts alone.
    """
    # Both values belong to training scripts: symbolic costs and strategies by marks.
    for variable, value in {HARDWARE: SYMBOLIC, MODE: SEMI_AUTO}.items():
        if environ.get(variable) == value:
            raise SporaxValueError(
                f"For 'plan', {variable} must be left out or say something else for functions of plain JAX, but got '{value}'."
            )
    return environ.get(HARDWARE) or hardware, environ.get(MODE) or mode, environ.get(MEMORY) or memory


def _asked_devices(environ: Mapping[str, str], devices: Any, saved: str | None) -> Any:
    """The devices of the call, or the number that `sporax plan --devices` was given instead.

    Raises:
        SporaxValueError: the call brings a saved plan, which is for the devices it was made for.
    """
    asked = environ.get(DEVICES)
    if not asked:
        return devices
    if saved is not None:
        count = Plan.from_json(saved).mesh.num_devices
        if count != int(asked):
            raise SporaxValueError(
                f"For 'plan', the saved plan is for {count} devices, but `sporax plan --devices` asks for {asked}."
            )
        return devices
    return int(asked)


def _matrix(devices: Any) -> DeviceMatrix:
    """The devices of a plan, by their places among those that JAX sees."""
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


def _of_these(devices: Any) -> DeviceMatrix:
    """These devices, an array."""
    ranks = {device: rank for rank, device in enumerate(jax.devices())}
    given = devices.reshape(-1).tolist()
    # The device itself is looked up, since another backend's devices may have equal numbers.
    strange = [entry for entry in given if not isinstance(entry, jax.Device) or entry not in ranks]
    if strange or len(set(given)) < len(given):
        twice = next((entry for entry in given if given.count(entry) > 1), None)
        got = f"{strange[0]!r}" if strange else f"{twice!r} twice"
        raise SporaxValueError(
            f"For 'plan', 'devices' must be different ones of the {len(ranks)} that `jax.devices()` has, but got {got}."
        )
    return DeviceMatrix(tuple(devices.shape) or (1,), (), tuple(ranks[entry] for entry in given))


def _traced(fn: Callable[..., Any], args: tuple[Any, ...], carry: Mapping[int, int]) -> tuple[Ingested, Any, Any]:
    """The graph of a function, and the structures of its arguments and of its result."""
    leaves, in_tree = jax.tree.flatten(args)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(args)[0]]
    structs = list(map(_struct, leaves, paths))
    out_tree: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        given = jax.tree.unflatten(in_tree, values)
        outputs = fn(*given)
        results, tree = jax.tree.flatten(outputs)
        _check_nothing_is_lost(given, in_tree, values, results)
        for path, result in jax.tree_util.tree_flatten_with_path(outputs)[0]:
            # Checked here, where the path of the result is known.
            _struct(result, jax.tree_util.keystr(path), "the results", "result")
        out_tree.append(tree)
        return results

    flat.__name__ = getattr(fn, "__name__", "fn")  # what JAX's messages call it
    jaxpr = jax.make_jaxpr(flat)(*structs)
    aliases = _aliases(carry, in_tree, out_tree[0])
    # A carried result takes the buffer of its argument, so both must have one shape and dtype.
    for result, argument in aliases:
        expected, got = structs[argument], jaxpr.out_avals[result]
        if (expected.shape, expected.dtype) != (got.shape, got.dtype):
            raise SporaxValueError(
                f"For 'plan', 'carry' needs a result that is like args{paths[argument]}, {expected.dtype}{list(expected.shape)}, "
                f"but got {got.dtype}{list(got.shape)}."
            )
    kept = {argument for _, argument in aliases}
    roles = [(Role.PARAMETER if number in kept else Role.DATA, path) for number, path in enumerate(paths)]
    return ingest(jaxpr, roles, aliases), in_tree, out_tree[0]


def _struct(leaf: Any, path: str, whose: str = "the arguments", what: str = "args") -> jax.ShapeDtypeStruct:
    """Shape and dtype of an argument's array; Python numbers are arrays without dimensions."""
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        try:
            leaf = jax.typeof(leaf)
        except TypeError:
            raise SporaxTypeError(
                f"For 'plan', {whose} must hold arrays or numbers, but got {reprlib.repr(leaf)} at {what}{path}."
            ) from None
    # As JAX itself converts arguments: int64 is int32 unless x64 is enabled.
    dtype = jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct(tuple(leaf.shape), dtype, weak_type=getattr(leaf, "weak_type", False))


def _check_nothing_is_lost(args: Any, tree: Any, values: Sequence[Any], results: Sequence[Any]) -> None:
    """Raise if a function has changed its arguments (objects of flax.nnx, dictionaries) in place: a plan has results alone.

    A new value that is a result, too, is not lost: what `nnx.merge` makes of an argument shares its variables.

    Raises:
        SporaxValueError: it has.
    """
    paths, now = jax.tree_util.tree_flatten_with_path(args)
    kept = {id(result) for result in results}
    other = [
        path for (path, leaf), value in zip(paths, values, strict=False) if leaf is not value and id(leaf) not in kept
    ]
    if other or now != tree:
        where = f"args{jax.tree_util.keystr(other[0])}" if other else "the structure of its arguments"
        raise SporaxValueError(
            f"For 'plan', 'fn' must leave its arguments as they are, but it changes {where} in place, and the change would be "
            "lost. Return what changes and name it in 'carry'; nnx.split makes values of a flax.nnx object, nnx.merge an object."
        )


def _as_found(graph: OperatorGraph, plan: Plan, model: Roofline) -> SearchResult:
    """A plan that no one searched for here, with its price."""
    return SearchResult(plan, "saved", cost_of(graph, plan, model).seconds, None, False, 0.0)


def _positions(tree: Any) -> list[range]:
    """For every child of a structure the positions of its leaves."""
    positions, start = [], 0
    for child in tree.children():
        positions.append(range(start, start + child.num_leaves))
        start += child.num_leaves
    return positions


def _aliases(carry: Mapping[int, int], in_tree: Any, out_tree: Any) -> list[tuple[int, int]]:
    _check_mapping("carry", carry, "{position of result: position of argument}")
    wrong = next((item for item in carry.values() if not isinstance(item, int) or isinstance(item, bool)), None)
    if wrong is not None:
        raise SporaxTypeError(f"For 'plan', 'carry' must name positions of arguments, but got {reprlib.repr(wrong)}.")
    if len(set(carry.values())) < len(carry):
        # A dict of arguments is one argument: positions count the children of the outermost structure.
        raise SporaxValueError(f"For 'plan', 'carry' must name every argument once at most, but got {dict(carry)}.")
    arguments = _positions(in_tree)
    # A single array has no children and is result 0 itself.
    results = _positions(out_tree) if out_tree.node_data() is not None else [range(1)]
    aliases: list[tuple[int, int]] = []
    for result, argument in carry.items():
        if result not in range(len(results)) or argument not in range(len(arguments)):
            raise SporaxValueError(
                f"For 'plan', 'carry' must name one of {len(results)} results and {len(arguments)} arguments, but got "
                f"{{{result}: {argument}}}."
            )
        if len(results[result]) != len(arguments[argument]):
            raise SporaxValueError(
                f"For 'plan', 'carry' needs result {result} to have the structure of argument {argument}, but got "
                f"{len(results[result])} arrays for {len(arguments[argument])}."
            )
        aliases += zip(results[result], arguments[argument], strict=True)
    return aliases


def _fixed(fixed: Mapping[int, Any], args: tuple[Any, ...], step: Ingested, mesh: DeviceMatrix) -> dict[int, Placement]:
    _check_mapping("fixed", fixed, "{position of argument: slices per dimension}")
    placements: dict[int, Placement] = {}
    inputs = step.graph.inputs[len(step.constants) :]
    ranges = _positions(jax.tree.structure(args))
    for argument, said in fixed.items():
        if argument not in range(len(args)):
            raise SporaxValueError(f"For 'plan', 'fixed' must name one of {len(args)} arguments, but got {argument!r}.")
        # One tuple may stand for all arrays of an argument.
        one = said is None or _is_cut(said)
        cuts = [said] * len(ranges[argument]) if one else jax.tree.leaves(said, is_leaf=_is_cut_or_none)
        wrong = [cut for cut in cuts if not _is_cut_or_none(cut)]
        if wrong or len(cuts) != len(ranges[argument]):
            received = f"{wrong[0]!r} for a sharding" if wrong else str(len(cuts))
            raise SporaxValueError(
                f"For 'plan', 'fixed' must have a sharding for each of the {len(ranges[argument])} arrays of argument "
                f"{argument}, a tuple with a number of slices per dimension, but got {received}."
            )
        for position, cut in zip(ranges[argument], cuts, strict=True):
            entry = inputs[position]
            if cut is not None:
                placements[entry.tensor] = _cut_as_said(
                    cut, step.graph.tensors[entry.tensor].shape, f"args{entry.name}", mesh
                )
    return placements


def _cut_as_said(cut: tuple[int, ...], shape: tuple[int, ...], name: str, mesh: DeviceMatrix) -> Placement:
    if len(cut) != len(shape):
        raise SporaxValueError(
            f"For 'plan', 'fixed' must fit {name} of shape {shape}, with a number of slices per dimension, but got {cut}."
        )
    try:
        layout = Layout.from_split(cut, mesh.num_devices, ranks=mesh.ranks)
        layout.slice_shape(shape)
        return Placement.from_layout(layout, mesh)
    except SporaxValueError as error:
        # Layout's own message says which number is wrong; this one adds the argument's name.
        raise SporaxValueError(
            f"For 'plan', 'fixed' must fit {name} of shape {shape}, but got {cut}. {error}"
        ) from None


def _check_mapping(name: str, value: Any, form: str) -> None:
    if not isinstance(value, Mapping):
        raise SporaxTypeError(f"For 'plan', '{name}' must be a mapping, {form}, but got {value!r}.")


def _is_cut(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(axis, int) and not isinstance(axis, bool) for axis in value)


def _is_cut_or_none(value: Any) -> bool:
    return value is None or _is_cut(value)
