"""`sporax.plan`: automatic parallelism for any JAX function, without the facade.

planned = sporax.plan(train_step, params, batch, devices=64, hardware="h100", carry={0: 0})
print(planned.summary())                    on a laptop with one device
step = planned.function()                   on the devices themselves
"""

from __future__ import annotations

import inspect
import os
import reprlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from typing import Any, Never

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.base.progress import activity, reported
from sporax.base.suggestions import did_you_mean
from sporax.base.units import parse_bytes
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import DEVICES, HARDWARE, MEMORY, MODE, SEMI_AUTO, PlanSettings
from sporax.ir.config.search_names import full_name
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.hardware import SYMBOLIC, HardwareProfile, load_profile, profile_name
from sporax.ir.operation import Shape
from sporax.ir.placement import Placement, prime_mesh
from sporax.ir.plan import Plan
from sporax.lowering.execute.host_calls import HOST_CALLS
from sporax.lowering.ingest.constraints import Constraints
from sporax.lowering.ingest.ingest import Ingested
from sporax.planner import Measure, PlanRequest, PlanResult, SearchOptions, SearchResult, fitting_hardware, peak_bytes
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.cost.kernel_cost import kernel_seconds
from sporax.planner.cost.model import CostModel, Roofline
from sporax.planner.plan_check import check_plan
from sporax.report.console import show_plan
from sporax.report.plan_warnings import beyond_the_chip, plan_warnings
from sporax.report.questions import Answers
from sporax.runtime import world
from sporax.runtime.devices.agreed_plan import agreed_plan
from sporax.runtime.devices.device_program import device_program
from sporax.runtime.devices.global_view import axis_names, jax_mesh
from sporax.runtime.planned.compiled_plans import CompiledPlans, FunctionForArguments, are_here
from sporax.runtime.planned.fixed_arguments import check_mapping, fixed_placements, leaves_of
from sporax.runtime.planned.fixed_results import FixedResults
from sporax.runtime.planned.named_mesh import NamedAxes, NamedMesh
from sporax.runtime.planned.nnx_objects import NnxObjects
from sporax.runtime.planned.resized import OfOneShape, check_shapes, of_any_shape
from sporax.runtime.planned.traced_function import donated_positions, traced
from sporax.runtime.planned.user_mesh import mesh_around, on_typed_arrays, types_of, with_types
from sporax.runtime.planned.verification import Verification, VerifiedFirst, is_asked, verified
from sporax.runtime.process.defects import defects_told
from sporax.runtime.session import SESSION, StepRecorder

OF_HARDWARE = "hardware"
"""The memory limit where the user says nothing: the memory of the hardware."""


@dataclass(frozen=True, slots=True)
class Called:
    """How a function is called.

    Attributes:
        names: keywords of its last arguments.
        donated: positions of arguments whose memory results may use.
        is_wrapped: whether the function takes all by position.
    """

    names: tuple[str, ...] = ()
    donated: tuple[int, ...] = ()
    is_wrapped: bool = False

    def wrapped(self) -> Called:
        """For a function whose arguments are by position already."""
        return replace(self, is_wrapped=True)

    def by_position(self, fn: Callable[..., Any], count: int) -> Callable[..., Any]:
        """The function of so many positional arguments."""
        if not self.names or self.is_wrapped:
            return fn
        first = count - len(self.names)

        @wraps(fn)
        def call(*args: Any) -> Any:
            return fn(*args[:first], **dict(zip(self.names, args[first:], strict=True)))

        return call


@dataclass(frozen=True, repr=False)
class PlannedFunction(Answers):
    """A function, and its sharding over devices. Made by `plan`.

    Attributes:
        step: the traced function and its graph.
        result: the plan, and how it was found.
        in_tree, out_tree: structures of the arguments (a tuple, those by keyword last) and of the result.
        names: keywords of the last arguments.
        donated: positions of arguments that `function` donates by default.
        axes: the axes of `devices`, where they have names.
        objects: the arguments that hold objects of flax.nnx.
        programs: what a memory limit had compiled, by the positions of donated arguments.
        plan_again: plans the function for other arguments: by position, by keyword, and what is fixed.
        alone: the function itself, of arguments by position and of states in place of objects.
    """

    step: Ingested
    result: PlanResult
    in_tree: Any
    out_tree: Any
    names: tuple[str, ...] = ()
    donated: tuple[int, ...] = ()
    axes: NamedAxes | None = None
    objects: NnxObjects = field(default_factory=NnxObjects)
    programs: Mapping[tuple[int, ...], Any] = field(default_factory=dict)
    plan_again: Callable[..., PlannedFunction] | None = None
    alone: Callable[..., Any] | None = None

    @property
    def plan(self) -> Plan:
        """Where everything is."""
        return self.result.plan

    @property
    def search(self) -> SearchResult | None:
        """How the plan was found: predicted seconds, lower bound, time of the search."""
        return self.result.search

    @cached_property
    def model(self) -> CostModel:
        """The cost of operators and links."""
        return self.result.model

    @property
    def graph(self) -> OperatorGraph:
        """The operators of the function."""
        return self.step.graph

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What the head of the plan says next to what is found in it: that it needs more memory than there is."""
        return beyond_the_chip(peak_bytes(self.result), self.result.request.profile)

    @cached_property
    def predicted_seconds(self) -> float:
        """Predicted time of one call of the compiled function: of its kernels, where the search had costs of operators."""
        assert isinstance(self.model, Roofline)  # functions of plain JAX have no other
        return kernel_seconds(self.graph, self.plan, self.model)

    @cached_property
    def in_shardings(self) -> Any:
        """Where the arguments must be, as a tuple of their structure; `jax.device_put` brings them there.

        On an `AbstractMesh` where this process sees fewer devices than the plan is for. In place of objects of flax.nnx they have
        states, as ``nnx.state(model)`` makes them.
        """
        return jax.tree.unflatten(self.in_tree, self._shardings(self._argument_placements))

    @cached_property
    def out_shardings(self) -> Any:
        """Where the results are, in their structure; on the mesh of `in_shardings`."""
        shardings = jax.tree.unflatten(self.out_tree, self._shardings(self.plan.outputs))
        return shardings[-1] if self.objects else shardings

    @property
    def mesh(self) -> Mesh | AbstractMesh:
        """The mesh of the shardings, with the names of `devices`; parts of an axis that one uses alone are ``data.0``, …"""
        return self._named.mesh

    def show(self) -> None:
        """Print the summary, in colours on a terminal."""
        show_plan(self.summary())

    def function(self, donate: int | Sequence[int] | None = None, resize: bool = False) -> Callable[..., Any]:
        """The function of whole arrays, compiled for all devices at its first call. It updates objects of flax.nnx in place.

        Args:
            donate: positions of arguments whose memory may be used for results; the ``donate_argnums`` of `plan` by default.
            resize: plan again where an argument has another shape, such as a last, smaller batch, which is then brought where the
                new plan has it; all else stays where it is. What was fixed stays fixed where it divides the new shape. Otherwise
                another shape is an error.

        Raises:
            SporaxValueError: this process sees fewer devices than the plan is for.
        """
        donated = self.donated if donate is None else donated_positions(donate, self._num_by_position, "donate")
        inputs = self.graph.inputs[len(self.step.constants) :]
        jitted: Any = OfOneShape(self.programs.get(tuple(sorted(donated))) or self.jitted(donated), inputs, self.graph)
        if SESSION.recording is not None:
            jitted = _recorded(jitted, SESSION.recording)
        if self._calls_host and self.axes is not None:
            jitted = _placed(jitted, jax.tree.unflatten(self.out_tree, self._shardings(self.plan.outputs)))
        if is_asked():
            jitted = VerifiedFirst(jitted, self._verified)
        updating = self._of_objects(jitted) if self.objects else jitted
        called = updating if not self.names else self._by_keyword(updating)
        return self._resizing(called, donate) if resize else called

    def _resizing(self, function: Callable[..., Any], donate: int | Sequence[int] | None) -> Callable[..., Any]:
        inputs, fixed = self.graph.inputs[len(self.step.constants) :], self.result.request.placements
        shapes = [self.graph.tensors[entry.tensor].shape for entry in inputs]

        def plans(
            args: tuple[Any, ...], keywords: Mapping[str, Any], now: Sequence[Shape]
        ) -> tuple[Callable[..., Any], Sequence[Any]]:
            assert self.plan_again is not None
            same: dict[int | str, Placement] = {
                entry.name: place
                for entry, place, shape, before in zip(inputs, self._argument_placements, now, shapes, strict=True)
                if shape == before or (entry.tensor in fixed and place.fits(shape, self.plan.mesh))
            }
            again = self.plan_again(args, keywords, same, self.axes, self.plan.mesh.ranks)
            return again.function(donate), again.in_shardings

        return of_any_shape(function, shapes, self.objects.states, plans)

    def verify(self, *args: Any, steps: int = 1, **keywords: Any) -> Verification:
        """Run the function on one device and as planned, and compare all results. Nothing is donated or updated.

        Args:
            args: the arguments, of which one device must be able to run the function.
            steps: how many, one after another; carried results are the next step's arguments.
            keywords: arguments by keyword.

        Returns:
            How far each result is from the one of one device, and how far rounding could bring it; ``str`` lists them.

        Raises:
            SporaxRuntimeError: a result differs beyond rounding; with the first operator that does.
            SporaxTypeError: the arguments have another structure.
            SporaxValueError: the devices are not all of this process.
        """
        self._check_devices()
        by_position = (*args, *(keywords[name] for name in self.names if name in keywords))
        return self._verified(*self.objects.states(by_position), steps=steps)

    def _verified(self, *args: Any, steps: int = 1) -> Verification:
        leaves, tree = jax.tree.flatten(args)
        self._check_structure(tree)
        named = jax.tree.unflatten(self.out_tree, range(self.out_tree.num_leaves))
        names = [f"result{jax.tree_util.keystr(path)}" for path, _ in jax.tree_util.tree_leaves_with_path(named)]

        def alone(*leaves: Any) -> list[Any]:
            assert self.alone is not None  # `plan` sets it
            return jax.tree.leaves(self.alone(*jax.tree.unflatten(self.in_tree, leaves)))

        return verified(self.step, self.plan, list(map(jnp.asarray, leaves)), names, alone, steps)

    @property
    def _num_by_position(self) -> int:
        return len(self.in_shardings) - len(self.names)

    def jitted(self, donated: tuple[int, ...]) -> Any:
        """The function of whole arrays, of states in place of objects and with all arguments by position."""
        self._check_devices()
        mapped = device_program(self.step, self.plan, "planned")

        def call(*args: Any) -> Any:
            leaves, tree = jax.tree.flatten(args)
            self._check_structure(tree)
            check_shapes(leaves, self.graph.inputs[len(self.step.constants) :], self.graph)
            results = on_typed_arrays(mapped, leaves, self.plan.outputs, self.plan.mesh, self.axes)
            return jax.tree.unflatten(self.out_tree, results)

        # A program that calls the host may have one mesh alone, which is that of its collectives.
        mesh = self._unnamed if self._calls_host else self._named
        return jax.jit(
            call,
            in_shardings=jax.tree.unflatten(self.in_tree, self._shardings(self._argument_placements, mesh)),
            out_shardings=jax.tree.unflatten(self.out_tree, self._shardings(self.plan.outputs, mesh)),
            donate_argnums=donated,
        )

    def _check_structure(self, tree: Any) -> None:
        # Compiled for this structure: another one would be another plan.
        if tree != self.in_tree:
            raise SporaxTypeError(f"For 'plan', the arguments must have the structure {self.in_tree}, but got {tree}.")

    def _of_objects(self, jitted: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            return self.objects.updated(args, jitted(*self.objects.states(args)))

        return call

    def _by_keyword(self, jitted: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            if set(keywords) != set(self.names):
                raise SporaxTypeError(
                    f"For 'plan', the function must be called with the keywords {list(self.names)}, but got {list(keywords)}."
                )
            return jitted(*args, *(keywords[name] for name in self.names))

        return call

    @property
    def _argument_placements(self) -> tuple[Placement, ...]:
        return self.plan.inputs[len(self.step.constants) :]

    @cached_property
    def _calls_host(self) -> bool:
        return any(operator.name in HOST_CALLS for operator in self.graph.walk())

    def _shardings(self, placements: Sequence[Placement], named: NamedMesh | None = None) -> list[NamedSharding]:
        named = named or self._named
        return [NamedSharding(named.mesh, named.spec(place)) for place in placements]

    @cached_property
    def _named(self) -> NamedMesh:
        """The mesh with the user's names, where there are some."""
        if self.plan.mesh.num_devices <= jax.device_count():
            self._check_devices()
        if self.axes is not None:
            return self.axes.refined(self.plan.mesh, (*self._argument_placements, *self.plan.outputs))
        return self._unnamed

    @cached_property
    def _unnamed(self) -> NamedMesh:
        mesh, names = self.plan.mesh, axis_names(self.plan.mesh)
        is_here = mesh.num_devices <= jax.device_count()
        own = jax_mesh(mesh) if is_here else AbstractMesh(mesh.shape, names)
        return NamedMesh(own, tuple((name, (axis,)) for axis, name in enumerate(names)))

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
    kwargs: Mapping[str, Any] | None = None,
    devices: int | Mapping[str, int] | Sequence[jax.Device] | Mesh | AbstractMesh | None = None,
    hardware: str = "",
    mode: str = "dynamic",
    fixed: Mapping[int | str, Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    memory: int | str | None = OF_HARDWARE,
    carry: Mapping[int, int] | None = None,
    donate_argnums: int | Sequence[int] = (),
    overlap: float | None = None,
    saved: str | None = None,
    **unknown: Never,
) -> PlannedFunction:
    """Search for the fastest way to shard a JAX function over devices.

    In a job of several processes all must call it, with equal arguments (process 0 searches), unless the plan is `saved`.

    Args:
        fn: any function of pytrees of arrays; a whole training step, too.
        args: its arguments, or `jax.ShapeDtypeStruct` in place of their arrays: nothing is run. Objects of flax.nnx (models,
            optimizers) are split into their states, which are carried, and the planned function updates them in place.
        kwargs: its arguments by keyword, by name. The planned function takes them by keyword, too; in `in_shardings` they come
            last, in this order.
        devices: how many, which need not be there to plan, or how many along each axis,
            ``{"data": 8, "model": 8}``; or which, as a list or a `jax.sharding.Mesh`, whose shape says in what
            numbers they are next to each other; by default the mesh of the context (`jax.set_mesh`), or all that JAX sees.
        hardware: name of a profile (`sporax.ir.hardware.known_profiles`) or a JSON file; by default what JAX runs on. The
            environment (``SPORAX_HARDWARE``, ``SPORAX_PLAN_MODE``, ``SPORAX_PLAN_MEMORY``) and flags of `sporax plan` win over
            this, `mode` and `memory`, as they do in training scripts.
        mode: ``"dynamic"`` (exact where it says so), ``"ilp"`` (the optimum, or the best found with a bound),
            ``"recursive"`` (fast), ``"propagation"`` (spreads from `fixed`), ``"repeated_blocks"`` (isomorphic layers
            are planned once, with a bound). MindSpore's long names do as well, and letters of any case.
        fixed: how arguments are sharded: position of the argument, its keyword, or a path of the arguments
            (``"[0]['up']"``, as summaries show it) -> number of slices per dimension (a tuple), or a `PartitionSpec` of the names
            of `devices`, for all its arrays or in its structure; None leaves an array to the search. So do shardings of
            `jax.ShapeDtypeStruct`s, types on explicit axes, and constraints in `fn`, which name the plan's axes.
        in_shardings: the same for all positions, as `jax.jit` takes it: a sharding for all arguments, or a tuple with one, or a
            structure of them, for each.
        out_shardings: how results are sharded, as `jax.jit` takes it: a sharding for all results, or a structure of the results
            or of their upper part; None leaves arrays to the search. A result that is carried fixes its argument.
        memory: limit of one device, in bytes or as ``"80GB"``. By default it is the memory of the hardware; None sets no limit.
            Where the devices are here, a plan that is predicted to be near a limit of yours is compiled, with its carried
            arguments donated, and the limit holds for the compiled function.
        carry: results that take an argument's place at the next step, ``{position of result: position of argument}``, such
            as updated parameters; both then have one sharding. What is no tuple, or has the argument's structure, is result 0.
        donate_argnums: arguments whose memory results may use, as for `jax.jit`. Each that is not in `carry` is carried by the
            first result of equal structure, shapes and dtypes, if there is one.
        overlap: share of the time of collectives on gradients, and on all else that is made in the backward pass or after it,
            that hides behind computing and is not counted; 0 to 1. What the profile says by default.
        saved: a plan of this function, as ``planned.plan.to_json()`` wrote it. It is checked and taken: nothing is searched, and
            `devices`, `fixed` and `memory` have nothing to say.

    Raises:
        SporaxTypeError: `fn` is no function, an option is unknown, or something that `fn` takes or returns is neither an array
            nor a number.
        SporaxValueError: no devices, or devices that this process does not see; an unknown mode or profile; a sharding that does
            not fit; a function that changes its arguments in place; a memory limit or share that cannot be read; or a saved plan
            that is not a plan of this function.
        SporaxRuntimeError: nothing fits the memory.

    Example:
        >>> w, x = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((256, 256), (512, 256)))
        >>> step = lambda w, x: w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
        >>> planned = sporax.plan(step, w, x, devices={"data": 8}, hardware="h100", carry={0: 0}, fixed={1: (8, 1)})
        >>> tuple(planned.in_shardings[1].spec)
        ('data', None)
    """
    _check_known(unknown)
    again = partial(
        _plan_again, fn, devices, hardware=hardware, mode=mode, out_shardings=out_shardings, memory=memory, carry=carry,
        donate_argnums=donate_argnums, overlap=overlap,
    )  # fmt: skip
    with reported(speaks=jax.process_index() == 0), activity("planning a function"):
        fixed = _with_in_shardings({} if fixed is None else fixed, in_shardings, len(args))
        args, names = _with_keywords(args, kwargs)
        called = Called(names, donated_positions(donate_argnums, len(args) - len(names), "donate_argnums"))
        objects = NnxObjects.of(args, called.names)
        args, carry = objects.states(args), {} if carry is None else carry
        if objects and callable(fn):
            fn, carry, called = objects.pure(called.by_position(fn, len(args))), objects.carry(carry), called.wrapped()
            out_shardings = None if out_shardings is None else (*[None] * len(carry), out_shardings)
        planned = _planned(
            fn, args, devices, hardware, mode, fixed, memory, carry, overlap, saved, called, out_shardings
        )
    alone = called.by_position(fn, len(args))
    return _announced(replace(planned, objects=objects, plan_again=again, alone=alone))


def _plan_again(
    fn: Callable[..., Any],
    devices: Any,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    fixed: Mapping[int | str, Placement],
    axes: NamedAxes | None,
    ranks: Sequence[int],
    **options: Any,
) -> PlannedFunction:
    """A plan for other arguments with the options of the first, on its devices; `fixed` by path."""
    if devices is None:
        devices = [jax.devices()[rank] for rank in ranks] if axes is None else dict(axes.sizes)
    return plan(fn, *args, kwargs=keywords, devices=devices, fixed=fixed, **options)


def _check_known(unknown: Mapping[str, object]) -> None:
    for name in unknown:
        options = [
            entry.name for entry in inspect.signature(plan).parameters.values() if entry.kind is entry.KEYWORD_ONLY
        ]
        raise SporaxTypeError(
            f"For 'plan', '{name}' must be one of its options.{did_you_mean(name, options)} Arguments of the function by keyword "
            f"are given as kwargs={{'{name}': ...}}."
        )


def _with_keywords(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """All arguments, those by keyword last, and the names of these."""
    keywords = {} if kwargs is None else kwargs
    check_mapping("kwargs", keywords, "{name: value}")
    return (*args, *keywords.values()), tuple(keywords)


def _announced(planned: PlannedFunction) -> PlannedFunction:
    """The plan itself, of which users are warned and listeners hear."""
    # Where plans are only shown, their heads say it.
    if not SESSION.plan_only and jax.process_index() == 0:
        for text in (*planned.remarks, *plan_warnings(planned.graph, planned.plan, planned.model)):
            warnings.warn(text, stacklevel=3)
    SESSION.announce(planned)
    return planned


def _planned(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    devices: Any,
    hardware: str,
    mode: str,
    fixed: Mapping[int | str, Any],
    memory: int | str | None,
    carry: Mapping[int, int],
    overlap: float | None,
    saved: str | None,
    called: Called = Called(),
    out_shardings: Any = None,
) -> PlannedFunction:
    """As `plan`, without announcing it to listeners."""
    # The environment first: `sporax plan` and `sporax run` set it for scripts that they do not change.
    hardware, mode, memory = _under(os.environ, hardware, mode, memory)
    devices = _asked_devices(os.environ, devices, saved, args)
    if not callable(fn):
        raise SporaxTypeError(f"For 'plan', 'fn' must be a function, but got {reprlib.repr(fn)}.")
    if not isinstance(mode, str):
        raise SporaxTypeError(f"For 'plan', 'mode' must be a text, but got {reprlib.repr(mode)}.")
    matrix, axes = _matrix(devices), _axes(devices)
    hardware = profile_name(hardware) if isinstance(hardware, str) else hardware
    profile = _profile(hardware, overlap)
    asked = None if memory in (None, OF_HARDWARE) else parse_bytes(memory, "For 'plan', 'memory'")
    limit = profile.memory_bytes if memory == OF_HARDWARE else asked
    # A saved plan settles all three, so a second word on them would be ignored without notice.
    _check_left_out(
        {"devices": devices, "fixed": fixed or None, "memory": asked and memory} if saved is not None else {}
    )
    mesh = prime_mesh(matrix) if saved is None else Plan.from_json(saved).mesh
    wanted = FixedResults(out_shardings, mesh, axes)
    constraints = Constraints(dict(() if axes is None else axes.sizes), mesh.ranks)
    types = types_of(args, constraints)
    step, in_tree, out_tree = traced(
        called.by_position(fn, len(args)), args, carry, called.donated, wanted.marked, axes, constraints
    )
    scatters = world.has_reduce_scatter()
    # A function without marks has nothing that settings of training scripts could decide.
    parallel = ParallelConfig(
        parallel_mode=ParallelMode.AUTO_PARALLEL,
        search_mode=full_name(mode),
        enable_alltoall=True,
        has_reduce_scatter=scatters,
    )
    settings = PlanSettings(parallel, hardware=hardware)
    if saved is not None:
        # The devices at hand decide how sums are scattered, not those of the process that saved the plan.
        plan = Plan.from_json(saved).on_devices(scatters)
        # The file may be of an older version of the function.
        check_plan(step.graph, plan)
        result = _as_found(PlanRequest(step.graph, plan.mesh, settings, profile), plan)
        return PlannedFunction(_with_states(step, args), result, in_tree, out_tree, called.names, called.donated)
    placements = fixed_placements(fixed, args, called.names, step.graph, len(step.constants), mesh, axes)
    placements = with_types(placements, types, step.graph.inputs[len(step.constants) :], step.graph, mesh)
    placements = wanted.fix_arguments(step.graph, placements)
    request = PlanRequest(step.graph, mesh, settings, profile, placements, memory_bytes=limit)

    def under(result: PlanResult) -> PlannedFunction:
        return PlannedFunction(_with_states(step, args), result, in_tree, out_tree, called.names, called.donated, axes)

    # Results that are carried are predicted in the place of their arguments, which donation makes true.
    donated = tuple(sorted({*carry.values(), *called.donated}))
    with defects_told("planning", "plan"):
        return _within_memory(request, under, args, donated) if asked else under(_searched(request))


def _within_memory(
    request: PlanRequest,
    under: Callable[[PlanResult], PlannedFunction],
    args: tuple[Any, ...],
    donated: tuple[int, ...],
) -> PlannedFunction:
    """The function under the plan of a search; the user's limit holds for its compiled program where the devices are here.

    Args:
        request: what is asked for.
        under: the function under a plan.
        args: its arguments, or their shapes and dtypes.
        donated: positions of the arguments that the compiled program donates.
    """
    if not are_here(request):
        return under(_searched(request))

    def lowered(result: PlanResult) -> FunctionForArguments:
        planned = under(result)
        return FunctionForArguments(planned.jitted(donated), args, planned.in_shardings)

    trials = CompiledPlans(lowered, "plan")
    result = _searched(request, trials.measure)
    last = trials.step_of(result.plan)
    return replace(under(result), programs={} if last is None else {donated: last.jitted})


def _searched(request: PlanRequest, measure: Measure | None = None) -> PlanResult:
    """The plan that process 0 has found."""
    result = agreed_plan(request, measure)
    if jax.process_index():  # process 0 may have called with another function
        check_plan(request.graph, result.plan)
    return result


def _placed(jitted: Any, shardings: Any) -> Any:
    """A function whose results have these shardings, where they are already."""

    @wraps(jitted)
    def call(*args: Any) -> Any:
        return jax.device_put(jitted(*args), shardings)

    return call


def _recorded(jitted: Any, recording: StepRecorder) -> Any:
    """A function each of whose calls is a step that may be recorded."""
    texts: list[Any] = []

    @wraps(jitted)
    def call(*args: Any) -> Any:
        # Its text says what recorded operators belong to.
        if not texts:
            texts.append(jitted.lower(*args).compile())
            SESSION.executables.add(texts[0])
        return recording.around(lambda: jitted(*args), ends_step=True)

    return call


def _check_left_out(options: Mapping[str, Any]) -> None:
    """Raise where an option has a value that a saved plan has already."""
    for name, value in options.items():
        if value is not None:
            raise SporaxValueError(f"For 'plan', '{name}' must be left out together with 'saved', but got {value!r}.")


def _with_in_shardings(fixed: Mapping[int | str, Any], in_shardings: Any, count: int) -> Mapping[int | str, Any]:
    """What is fixed, and `in_shardings` by position."""
    if in_shardings is None:
        return fixed
    each = in_shardings if isinstance(in_shardings, tuple | list) else (in_shardings,) * count
    if len(each) != count:
        raise SporaxValueError(
            f"For 'plan', 'in_shardings' must have an entry for each of {count} arguments, but got {len(each)}."
        )
    named: dict[int | str, Any] = {number: entry for number, entry in enumerate(each) if entry is not None}
    twice = [number for number in named if number in fixed]
    if twice:
        raise SporaxValueError(
            f"For 'plan', 'in_shardings' and 'fixed' must be about different arguments, but both have argument {twice[0]}."
        )
    return {**fixed, **named}


def _with_states(step: Ingested, args: tuple[Any, ...]) -> Ingested:
    """The step whose inputs say which of the carried ones are state of an optimizer of optax: it is counted apart."""
    first, graph = len(step.constants), step.graph
    states = (False,) * first + tuple(leaves_of(("optax", "flax.OptState"), args))
    inputs = tuple(
        replace(entry, role=Role.STATE) if is_state and entry.role is Role.PARAMETER else entry
        for entry, is_state in zip(graph.inputs, states, strict=True)
    )
    return replace(step, graph=replace(graph, inputs=inputs))


def _profile(hardware: str, overlap: float | None) -> HardwareProfile:
    """The devices' hardware; that of JAX's backend where none is named."""
    profile = load_profile(hardware or fitting_hardware(jax.default_backend()))
    if overlap is None:
        return profile
    # A bool is an int in Python, but never a share.
    if not isinstance(overlap, int | float) or isinstance(overlap, bool) or not 0.0 <= overlap <= 1.0:
        raise SporaxValueError(f"For 'plan', 'overlap' must be between 0 and 1, but got {overlap!r}.")
    return replace(profile, overlap=overlap)


def _axes(devices: Any) -> NamedAxes | None:
    """The axes of the devices, where they have names."""
    if isinstance(devices, Mapping):
        return NamedAxes(tuple(devices.items()))
    if isinstance(devices, Mesh | AbstractMesh) and devices.axis_names:
        return NamedAxes(tuple((str(name), size) for name, size in devices.shape.items()), devices.axis_types)
    return None


def _under(
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


def _asked_devices(environ: Mapping[str, str], devices: Any, saved: str | None, args: Any) -> Any:
    """The devices of the call or else of the mesh around it, or the number that `sporax plan --devices` was given instead.

    Raises:
        SporaxValueError: the call brings a saved plan, which is for the devices it was made for.
    """
    asked = environ.get(DEVICES)
    if not asked:
        return mesh_around(args) if devices is None and saved is None else devices
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


def _as_found(request: PlanRequest, plan: Plan) -> PlanResult:
    """A plan that was not searched for here, with its cost."""
    cost = cost_of(request.graph, plan, PlanResult(request, plan).model).seconds
    options = SearchOptions(platform=request.profile.platform)
    found = SearchResult(plan, "saved", cost, None, False, 0.0, options=options, request=request)
    return PlanResult(request, plan, found)
