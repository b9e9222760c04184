"""`sporax.plan`: automatic parallelism for any JAX function, without the facade.

planned = sporax.plan(train_step, params, batch, devices=64, hardware="h100", carry={0: 0})
print(planned.summary())                    on a laptop with one device
step = planned.function()                   on the devices themselves
"""

from __future__ import annotations

import inspect
import os
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Never

import jax
from jax.sharding import AbstractMesh, Mesh
from msgspec import structs

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, did_you_mean
from sporax.base.progress import activity, reported
from sporax.base.units import parse_bytes
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.config.search_config import full_name
from sporax.ir.graph import Role
from sporax.ir.hardware import HardwareProfile, load_profile, profile_name
from sporax.ir.placement import Placement, prime_mesh
from sporax.ir.plan import Plan
from sporax.lowering.ingest.constraints import Constraints
from sporax.lowering.ingest.ingest import Ingested
from sporax.planner import PlanRequest, PlanResult, SearchOptions, SearchResult, fitting_hardware
from sporax.planner.cost.evaluate import cost_of
from sporax.planner.plan_check import check_plan
from sporax.report.plan_warnings import plan_warnings
from sporax.runtime import world
from sporax.runtime.planned import step_passes, user_mesh
from sporax.runtime.planned.compiled_plans import Compiled, devices_are_local
from sporax.runtime.planned.fixed_arguments import FixedResults, check_mapping, fixed_placements, leaves_of
from sporax.runtime.planned.nnx_objects import NnxObjects
from sporax.runtime.planned.planned_function import Called, PlannedFunction
from sporax.runtime.planned.step_passes import PlanState, announce, run_passes
from sporax.runtime.planned.traced_function import donated_positions, traced
from sporax.runtime.planned.user_mesh import NamedAxes
from sporax.runtime.process.defects import report_internal_errors

OF_HARDWARE = "hardware"
"""The memory limit where the user says nothing: the memory of the hardware."""


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
            numbers they are next to each other; by default the mesh of the context (`jax.set_mesh`), that of
            shardings of arguments or results, or all that JAX sees.
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
        by_argument = {} if fixed is None else fixed
        fixed = _with_in_shardings(by_argument, in_shardings, len(args))
        keywords = {} if kwargs is None else kwargs
        check_mapping("kwargs", keywords, "{name: value}")
        called = Called(tuple(keywords), donated_positions(donate_argnums, len(args), "donate_argnums"))
        args = (*args, *keywords.values())
        objects = NnxObjects.of(args, called.names)
        args, carry = objects.states(args), {} if carry is None else carry
        if objects and callable(fn):
            fn, carry = objects.pure(called.by_position(fn, len(args))), objects.carry(carry)
            called = replace(called, is_wrapped=True)
            out_shardings = None if out_shardings is None else (*[None] * len(carry), out_shardings)
        planned = _planned(
            fn, args, devices, hardware, mode, fixed, memory, carry, overlap, saved, called, out_shardings,
            {*fixed} - {*by_argument},
        )  # fmt: skip
    alone = called.by_position(fn, len(args))
    planned = replace(planned, objects=objects, plan_again=again, alone=alone)
    announce(planned, (*planned.remarks, *plan_warnings(planned.graph, planned.plan, planned.model)), stacklevel=3)
    return planned


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
        options = [each.name for each in inspect.signature(plan).parameters.values() if each.kind is each.KEYWORD_ONLY]
        raise SporaxTypeError(
            f"For 'plan', '{name}' must be one of its options.{did_you_mean(name, options)} Arguments of the function by keyword "
            f"are given as kwargs={{'{name}': ...}}."
        )


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
    called: Called,
    out_shardings: Any,
    by_position: Collection[int | str],
) -> PlannedFunction:
    """As `plan`, without announcing it to listeners."""
    # The environment first: `sporax plan` and `sporax run` set it for scripts that they do not change.
    hardware, mode, memory = user_mesh.under_environment(os.environ, hardware, mode, memory)
    devices = user_mesh.requested_devices(os.environ, devices, saved, (args, [*fixed.values()], out_shardings))
    For("plan").refuse_type(not callable(fn), "'fn' must be a function", fn, show=reprlib.repr)
    For("plan").refuse_type(not isinstance(mode, str), "'mode' must be a text", mode, show=reprlib.repr)
    matrix, axes = user_mesh.device_matrix(devices), user_mesh.named_axes(devices)
    hardware = profile_name(hardware) if isinstance(hardware, str) else hardware
    profile = _profile(hardware, overlap)
    requested = None if memory in (None, OF_HARDWARE) else parse_bytes(memory, "For 'plan', 'memory'")
    if saved is not None:
        _check_left_out(devices=devices, fixed=fixed or None, memory=requested and memory)
    # A function without marks has nothing that settings of training scripts could decide.
    parallel = ParallelConfig(
        parallel_mode=ParallelMode.AUTO_PARALLEL,
        search_mode=full_name(mode),
        enable_alltoall=True,
        has_reduce_scatter=world.has_reduce_scatter(),
    )
    mesh = prime_mesh(matrix) if saved is None else Plan.from_json(saved).mesh
    wanted = FixedResults(out_shardings, mesh, axes)
    constraints = Constraints(dict(() if axes is None else axes.sizes), mesh.ranks)
    types = user_mesh.types_of(args, constraints)
    pure = called.by_position(fn, len(args))
    step, in_tree, out_tree = traced(pure, args, carry, called.donated, wanted.marked, axes, constraints)
    # Results that are carried are predicted in the place of their arguments, which donation makes true.
    donated = tuple(sorted({*carry.values(), *called.donated}))
    make = partial(
        PlannedFunction, step=_with_states(step, args), in_tree=in_tree, out_tree=out_tree, names=called.names,
        donated=called.donated, axes=axes,
    )  # fmt: skip
    settings = PlanSettings(parallel, hardware=hardware)
    state = FunctionState(name="plan", settings=settings, read=step, mesh=mesh, make=make, donated=donated)
    if saved is not None:
        state = replace(state, result=_as_found(state, profile, Plan.from_json(saved)))
    else:
        inputs = step.graph.inputs[len(step.constants) :]
        placements = fixed_placements(
            fixed, args, called.names, step.graph, len(step.constants), mesh, axes, by_position
        )
        placements = user_mesh.with_types(placements, types, inputs, step.graph, mesh)
        placements = wanted.fix_arguments(step.graph, placements)
        limit = profile.memory_bytes if memory == OF_HARDWARE else requested
        request = PlanRequest(step.graph, mesh, settings, profile, placements, memory_bytes=limit)
        compiles = requested and devices_are_local(request)
        state = replace(state, request=request, compile=partial(_compiled, state, args) if compiles else None)
    with report_internal_errors("planning", "plan"):
        planned = run_passes(FUNCTION_PASSES, state).planned
    assert planned is not None
    return planned


def _check_left_out(**settled: Any) -> None:
    """Raise where one of these is set: a saved plan settles them, and a second word on them would be ignored without notice."""
    for name, value in settled.items():
        For("plan").refuse(value is not None, f"'{name}' must be left out together with 'saved'", value, show=repr)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionState(PlanState):
    """What is known of a function of plain JAX between two passes.

    Attributes:
        make: makes it of a plan.
        donated: positions of the arguments that its program donates.
        planned: the function under its plan.
    """

    make: Callable[..., PlannedFunction]
    donated: tuple[int, ...]
    planned: PlannedFunction | None = None


def lower_function(state: FunctionState) -> FunctionState:
    """The function under its plan."""
    result = state.plan_result
    if jax.process_index():  # process 0 may have called with another function
        check_plan(state.ingested.graph, result.plan)
    programs = {} if state.compiled is None else {state.donated: state.compiled.step}
    return replace(state, planned=state.make(result=result, programs=programs))


FUNCTION_PASSES = (step_passes.plan, lower_function)
"""From the graph of a function, and the request to the planner, to the planned function."""


def _compiled(state: FunctionState, args: tuple[Any, ...], result: PlanResult) -> Compiled:
    """The function for its arguments, compiled; JAX stores what is compiled here, and calls find it."""
    planned = state.make(result=result)
    jitted = planned.jitted(state.donated)
    shapes = jax.eval_shape(lambda *args: args, *args)
    structs = jax.tree.map(lambda struct, sharding: struct.update(sharding=sharding), shapes, planned.in_shardings)
    with activity(f"compiling '{state.name}' for its memory"):
        return Compiled(jitted, jitted.lower(*structs).compile())


def _with_in_shardings(fixed: Mapping[int | str, Any], in_shardings: Any, count: int) -> Mapping[int | str, Any]:
    """What is fixed, and `in_shardings` by position."""
    check_mapping("fixed", fixed, "{argument: sharding}")
    if in_shardings is None:
        return fixed
    each = in_shardings if isinstance(in_shardings, tuple | list) else (in_shardings,) * count
    if len(each) != count:
        raise For("plan").error(f"'in_shardings' must have an entry for each of {count} arguments", len(each))
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
    return structs.replace(profile, overlap=overlap)


def _as_found(state: FunctionState, profile: HardwareProfile, saved: Plan) -> PlanResult:
    """A plan that was not searched for here, with its cost."""
    graph = state.ingested.graph
    # The devices at hand decide how sums are scattered, not those of the process that saved the plan.
    plan = saved.on_devices(state.settings.parallel.has_reduce_scatter)
    # The file may be of an older version of the function.
    check_plan(graph, plan)
    request = PlanRequest(graph, plan.mesh, state.settings, profile)
    cost = cost_of(graph, plan, PlanResult(request, plan).model).seconds
    options = SearchOptions(platform=profile.platform)
    found = SearchResult(plan, "saved", cost, None, False, 0.0, options=options, request=request)
    return PlanResult(request, plan, found)
