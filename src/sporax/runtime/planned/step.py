"""A step of the global view: one program for all devices, sharded by a plan.

It is traced once with the whole shapes, ingested as an operator graph, planned (`sporax.planner`), and lowered to one manual
program per device (`sporax.lowering.execute.rank_program`) inside `shard_map`. `runtime.program.program` imports this module
only for steps that need a plan: the searches bring scipy along.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import NamedSharding

from sporax.base.errors import SporaxRuntimeError
from sporax.base.progress import doing, shown
from sporax.ir.config.parallel_config import ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import LITERAL, OperatorGraph, Role
from sporax.ir.marks import GradientMark, OperatorMark
from sporax.ir.placement import Placement, prime_mesh
from sporax.ir.plan import Plan
from sporax.ir.uneven import UnevenRows
from sporax.lowering.execute.local_norms import local_norms
from sporax.lowering.ingest.ingest import Ingested, ingest
from sporax.lowering.ingest.regather import regather_weights
from sporax.lowering.ingest.strategy_overrides import with_strategies
from sporax.lowering.marks.host_transfer import on_host_of, transfers
from sporax.lowering.passes.host.row_updates import by_rows_for_plan, without_row_updates
from sporax.lowering.passes.pass_order import (
    AUTO,
    KEPT_ON_HOSTS,
    WAITING,
    compiler_options,
    flat_for_plan,
    merged_options,
    passed,
)
from sporax.lowering.passes.recompute.memory_notes import host_notes, recomputation_notes
from sporax.lowering.passes.recompute.plan_facts import plan_facts
from sporax.lowering.passes.recompute.recompute import Recomputed
from sporax.lowering.passes.recompute.recompute_choice import Choice
from sporax.lowering.passes.uneven_tables import Blocked, in_blocks
from sporax.planner.auto import AutoPolicy, auto_plan, price_list
from sporax.planner.cost.model import CostModel
from sporax.planner.memory.peak import memory_of
from sporax.planner.pins.axis_order import arranged_for
from sporax.planner.pins.dataset_strategy import check_dataset_strategy
from sporax.planner.pins.manual_split import check_splits
from sporax.planner.propagation.semi_auto import semi_auto_plan
from sporax.planner.search.space.result import SearchResult
from sporax.report.plan_warnings import plan_warnings
from sporax.report.questions import Answers, PlannedGraph
from sporax.runtime.devices.argument import Argument
from sporax.runtime.devices.device_program import device_program, fusion_options
from sporax.runtime.devices.global_view import (
    data_placement,
    mesh_of,
    place_data,
    placement_of,
    profile_of,
    sharding_of,
)
from sporax.runtime.pipeline.hosts import on_hosts
from sporax.runtime.pipeline.pipelined_step import PipelinedStep, peaks_of
from sporax.runtime.pipeline.planning import plan_pipeline
from sporax.runtime.planned import strategy_files
from sporax.runtime.planned.host_variables import check_offload, sent_to_hosts
from sporax.runtime.planned.parameter_layouts import ParameterLayout, parameter_layouts
from sporax.runtime.planned.recompute_auto import chosen_for_plan
from sporax.runtime.process import step_verification
from sporax.runtime.process.defects import defects_told
from sporax.runtime.ranks import collectives, groups, joint_arrays
from sporax.runtime.session import SESSION
from sporax.runtime.storage import blocked_variables


@dataclass(frozen=True, slots=True, repr=False)
class PlannedStep(Answers):
    """A compiled step of the global view.

    Attributes:
        step: the traced program and its graph.
        plan: how it is sharded.
        jitted: the program of all devices; takes the arguments one after another, the updated ones first.
        arguments: what it takes: variables that it updates, variables that it reads, data.
        shardings: where each argument must be.
        settings: what it was planned under.
        search: how the plan was found, in automatic parallelism.
        blocked: by position the variables that are kept in blocks: tables in uneven parts, and their moments.
    """

    step: Ingested
    plan: Plan
    jitted: Any
    arguments: tuple[Argument, ...]
    shardings: tuple[NamedSharding, ...]
    settings: PlanSettings
    search: SearchResult | None = None
    blocked: Mapping[int, Blocked] = field(default_factory=dict)

    @property
    def graph(self) -> OperatorGraph:
        """The operators of the step."""
        return self.step.graph

    @property
    def model(self) -> CostModel:
        """What prices operators and links: the profile that the settings name, or that fits the devices at hand."""
        # Where the user said nothing about fusion, the compiler merges, and that is part of the price.
        merging = self.plan.fusion_is_free
        return price_list(self.settings, self.plan.mesh, profile_of(self.settings), merging)

    def parameter_layouts(self) -> dict[str, ParameterLayout]:
        """Where the Parameters are, as this process's first device sees it."""
        return parameter_layouts(self, _own_rank())

    def twins(self) -> list[int]:
        """The ranks that keep the same slices of all trained Parameters as this process's first device, itself included."""
        inputs = self.plan.inputs[len(self.step.constants) :]
        cut = {
            axis
            for argument, place in zip(self.arguments, inputs, strict=True)
            if argument.trainable
            for axis in place.used
        }
        mesh = self.plan.mesh

        def slices(rank: int) -> list[int]:
            # Ranks that differ along axes which cut nothing hold copies.
            return [place for axis, place in enumerate(mesh.coordinates(rank)) if axis in cut]

        return [rank for rank in mesh.ranks if slices(rank) == slices(_own_rank())]

    def structs(self) -> list[jax.ShapeDtypeStruct]:
        """Shapes, dtypes and shardings of the arguments as the program takes them."""
        return [
            jax.ShapeDtypeStruct(self._stored_shape(number), argument.array.dtype, sharding=sharding)
            for number, (argument, sharding) in enumerate(zip(self.arguments, self.shardings, strict=True))
        ]

    def host_bytes(self) -> int:
        """Bytes of the variables that each device has in host memory between steps."""
        # Host memory of one device holds its slices only.
        return sum(
            math.prod(sharding.shard_shape(struct.shape)) * struct.dtype.itemsize
            for struct, sharding, argument in zip(self.structs(), self.shardings, self.arguments, strict=True)
            if argument.on_host
        )

    def lower(self) -> jax.stages.Lowered:
        """The program of all devices, lowered and not compiled."""
        with defects_told("lowering", self.jitted.__name__, self.settings):
            return self.jitted.lower(*self.structs())  # type: ignore[no-any-return]  # of `jax.jit`

    def compile(self, name: str) -> Any:
        """The program of all devices, compiled; `name` is what messages call it."""
        with defects_told("lowering", name, self.settings):
            return step_verification.compiled(self.jitted, name, self.structs())

    def _stored_shape(self, number: int) -> tuple[int, ...]:
        shape = tuple(self.arguments[number].array.shape)
        return self.blocked[number].shape(shape) if number in self.blocked else shape

    def values(self, variables: Sequence[Any]) -> list[jax.Array]:
        """The arrays of variables as the program takes them."""
        if not self.blocked:
            return [variable.raw for variable in variables]
        return [
            blocked_variables.stored(variable, self.blocked[number], self.shardings[number])
            if number in self.blocked
            else variable.raw
            for number, variable in enumerate(variables)
        ]

    def keep(self, variables: Sequence[Any], arrays: Sequence[jax.Array]) -> None:
        """Give updated variables their new values."""
        for variable, array in zip(variables, arrays, strict=False):
            variable.raw = array
        # Variables in blocks have another attribute for their value, hence a second pass.
        for number, how in self.blocked.items():
            if number < len(variables):
                blocked_variables.keep(variables[number], arrays[number], how)

    def bring(self, variables: Sequence[Any]) -> None:
        """Bring variables to where they must be; lazy ones are made there, each device its own slices.

        Updated variables would come to be there by themselves, those that are only read would travel at every step.
        """
        for number, (variable, sharding) in enumerate(zip(variables, self.shardings, strict=False)):
            # Other programs that read it, such as a prediction, must know.
            if self.arguments[number].on_host:
                variable.on_host = True
            if number in self.blocked:
                blocked_variables.stored(variable, self.blocked[number], sharding)
            elif getattr(variable, "unmade", None) is not None:
                variable.make_at(sharding)
            else:
                variable.raw = joint_arrays.place(variable.raw, sharding)

    def unrun(self) -> list[jax.Array] | None:
        """Zeros for the results, the updated variables' first, where steps are only planned; else None."""
        if not SESSION.plan_only:
            return None
        constants, tensors = self.step.literal_outputs, self.graph.tensors
        return [
            jnp.asarray(constants[position])
            if tensor == LITERAL
            else jnp.zeros(tensors[tensor].shape, tensors[tensor].dtype)
            for position, tensor in enumerate(self.graph.outputs)
        ]

    def run(self, executable: Any, variables: Sequence[jax.Array], data: Sequence[jax.Array]) -> list[jax.Array]:
        """Run the compiled program; arguments with another sharding are resharded first.

        Args:
            executable: the compiled program.
            variables: values of the variables, the updated ones first.
            data: the other arguments; with several processes, the part that this one feeds.
        """
        places = self.shardings[len(variables) :]
        fed = [
            place_data(array, sharding, self.settings.parallel) for array, sharding in zip(data, places, strict=True)
        ]
        try:
            return _started(executable(*variables, *fed))
        except (TypeError, ValueError):
            # XLA refuses arguments with another sharding before anything runs.
            # A variable is elsewhere (at the first step, after loading a checkpoint), and nothing ran; unless it did.
            if any(array.is_deleted() for array in variables):
                raise
        moved = [
            joint_arrays.place(array, sharding) for array, sharding in zip(variables, self.shardings, strict=False)
        ]
        return _started(executable(*moved, *fed))


def _own_rank() -> int:
    # Only with several processes devices differ in what their process has.
    return min(device.id for device in jax.local_devices()) if jax.process_count() > 1 else 0


def plan_program(
    program: Callable[..., Any],
    written: Sequence[Any],
    read: Sequence[Any],
    data: Sequence[Any],
    settings: PlanSettings,
    tags: frozenset[str] = frozenset(),
) -> PlannedStep | PipelinedStep:
    """Plan a pure function ``(written, read, data) -> (written, outputs)`` of variables' values and arrays.

    Args:
        program: the function.
        written, read: the variables.
        data: the arrays that are on the devices already; for the others their shapes and dtypes, over all processes.
        settings: the user's.
        tags: passes by which it is rewritten.
    """
    first_read, first_data = len(written), len(written) + len(read)

    def flat(*values: jax.Array) -> list[jax.Array]:
        updated, outputs = program(
            list(values[:first_read]), list(values[first_read:first_data]), list(values[first_data:])
        )
        return [*updated, *outputs]

    flat.__name__ = program.__name__
    arguments = [
        *map(_of_variable, (*written, *read)),
        *(Argument(Role.DATA, f"input {number}", array) for number, array in enumerate(data)),
    ]
    return plan_step(flat, arguments, len(written), settings, tags)


def _of_variable(variable: Any) -> Argument:
    role = Role.STATE if getattr(variable, "requires_grad", None) is None else Role.PARAMETER
    unmade = getattr(variable, "unmade", None)
    cuttable = getattr(variable, "parallel_optimizer", True)
    given = not getattr(variable, "by_initializer", True)
    trainable = bool(getattr(variable, "requires_grad", False))
    on_host = bool(getattr(variable, "on_host", False))
    return Argument(
        role, variable.name, variable.raw if unmade is None else unmade, cuttable, given, trainable, on_host
    )


def plan_step(
    function: Callable[..., Any],
    arguments: Sequence[Argument],
    num_updated: int,
    settings: PlanSettings,
    tags: frozenset[str] = frozenset(),
) -> PlannedStep | PipelinedStep:
    """Trace, plan and lower a step.

    Args:
        function: takes the arguments one after another, gives a list of arrays, the new values of the updated ones first.
        arguments: what they are, with whole shapes.
        num_updated: how many of them are updated in place.
        settings: the user's.
        tags: passes by which it is rewritten.
    """
    name = getattr(function, "__name__", "step")
    # Shapes and dtypes only: arrays that are on a mesh already would leave their shardings in the program.
    structs = [jax.ShapeDtypeStruct(argument.array.shape, argument.array.dtype) for argument in arguments]
    with shown(speaks=jax.process_index() == 0), doing("planning a step"):
        jaxpr = jax.make_jaxpr(function)(*structs)
        with defects_told("planning", name, settings):
            planned = _planned_step(jaxpr, name, arguments, num_updated, settings, tags)
    if isinstance(planned, PipelinedStep):
        if settings.asked_bytes:
            peak = max(stage.peak_bytes for stage in planned.simulate().stages)
            _check_memory(math.ceil(peak), settings, "its largest stage")
        _warn_of(planned.warnings())
        SESSION.announce(replace(planned, remarks=SESSION.remarks))
    else:
        _warn_of(plan_warnings(planned.graph, planned.plan, planned.model))
        step = planned.graph, planned.plan, planned.search, planned.model
        SESSION.announce(PlannedGraph(*step, SESSION.remarks))
    return planned


def _warn_of(texts: Sequence[str]) -> None:
    """Warn of what a plan has lost; where steps are only planned, the head of the plan says it."""
    if not SESSION.plan_only and jax.process_index() == 0:
        for text in texts:
            warnings.warn(text, stacklevel=2)


def _planned_step(
    jaxpr: ClosedJaxpr,
    name: str,
    arguments: Sequence[Argument],
    num_updated: int,
    settings: PlanSettings,
    tags: frozenset[str],
) -> PlannedStep | PipelinedStep:
    roles = [(argument.role, argument.name) for argument in arguments]

    # A carried variable takes its argument's buffer, so both must be sharded alike.
    def ingested(program: ClosedJaxpr) -> Ingested:
        read = ingest(program, roles, [(number, number) for number in range(num_updated)])
        return with_strategies(read, strategy_files.loaded(read.graph, settings.parallel))

    def first_plan(program: ClosedJaxpr) -> tuple[OperatorGraph, Plan]:
        whole = ingested(program)
        axes = arranged_for(whole.graph, mesh_of(settings.parallel), settings.parallel.dataset_strategy)
        first, _ = in_blocks(whole)
        return first.graph, make_plan(first.graph, arguments, axes, settings)[0]

    def graph_of(program: ClosedJaxpr, gives_up: bool) -> tuple[OperatorGraph, Plan]:
        whole = _sharded(ingested(program), arguments, replace(settings, is_trial=gives_up))
        return whole.step.graph, whole.plan

    check_offload(tags)
    again: tuple[Recomputed, ...] = ()
    said: tuple[str, ...] = ()
    # Passes work on one flat program, without calls.
    if tags:
        whole = flat_for_plan(jaxpr)
        parallel = settings.parallel
        may_be_rows = not (parallel.enable_parallel_optimizer or parallel.pipeline_stages > 1)
        semi_auto = parallel.parallel_mode == ParallelMode.SEMI_AUTO_PARALLEL
        whole = by_rows_for_plan(whole) if may_be_rows and semi_auto else without_row_updates(whole)
        facts = plan_facts(whole, first_plan, roles, partial(_plan_of_round, settings=settings))
        choice = chosen_for_plan(whole, tags, facts, graph_of, settings) if AUTO in tags else Choice()
        # In a pipeline activations wait between programs, which are not known yet.
        jaxpr, again = passed(whole, tags - (WAITING if parallel.pipeline_stages > 1 else set()), facts, choice.chosen)
        said = choice.notes
    step = ingested(jaxpr)
    if settings.parallel.pipeline_stages > 1:
        return _pipelined_step(step, arguments, num_updated, settings, tags)
    sharded = _sharded(step, arguments, settings)
    step, plan, mesh, search = sharded.step, sharded.plan, sharded.mesh, sharded.search
    # A search keeps the limit by itself; strategies may go beyond it.
    if settings.asked_bytes and search is None:
        _check_memory(memory_of(step.graph, plan).peak_bytes, settings, "with these strategies the plan")
    first = len(step.constants)
    arguments = sent_to_hosts(arguments, tags, step.graph, plan, plan.inputs[first:])
    notes = (
        *plan.notes,
        *_said_of(sharded.tables, step.graph),
        *said,
        *recomputation_notes(again),
    )
    plan = replace(plan, notes=notes)
    norms = local_norms(settings.parallel, mesh.ranks)
    # A plan's first inputs are the constants of the trace, which are no arguments.
    shardings = tuple(sharding_of(place, mesh) for place in plan.inputs[first:])
    on_hosts = list(map(on_host_of, shardings))
    # A backend without a host memory space gives the same sharding for both; nothing moves there.
    away = {
        number
        for number, argument in enumerate(arguments)
        if argument.on_host and on_hosts[number] != shardings[number]
    }
    mapped = device_program(step, plan, name, norms, away, num_updated)
    options = merged_options(fusion_options(plan), compiler_options(tags))
    kept = {number - first: how for number, how in sharded.blocked.items()}
    # Between steps such variables are in host memory, so the program takes them from there.
    shardings = tuple(on_hosts[number] if number in away else sharding for number, sharding in enumerate(shardings))
    jitted = jax.jit(mapped, donate_argnums=tuple(range(num_updated)), compiler_options=options)
    planned = PlannedStep(step, plan, jitted, _without_values(arguments), shardings, settings, search, kept)
    planned = _with_notes_of_host(planned)
    # A step that is planned for information only must not overwrite the script's files.
    if not SESSION.plans_all:
        strategy_files.save(planned, _kept(mesh, settings, search))
    return planned


def _without_values(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """Shapes and dtypes alone: a plan would otherwise keep the first values of all variables alive."""
    return tuple(
        replace(argument, array=jax.ShapeDtypeStruct(argument.array.shape, argument.array.dtype))
        for argument in arguments
    )


def _plan_of_round(
    program: ClosedJaxpr, roles: list[tuple[Role, str]], settings: PlanSettings
) -> tuple[OperatorGraph, Plan]:
    """A plan of one round of the loops over micro batches, for the devices of one stage."""
    config = replace(settings.parallel, device_num=settings.parallel.num_stage_devices, pipeline_stages=1)
    graph = ingest(program, roles).graph
    mesh = arranged_for(graph, prime_mesh(DeviceMatrix((config.device_num,))), config.dataset_strategy)
    rows = [entry.tensor for entry in graph.inputs if entry.role is Role.DATA]
    if not isinstance(config.dataset_strategy, str):  # rows that are no input of the user's come last and have no entry
        rows = rows[: len(config.dataset_strategy)]
    placed = {
        tensor: data_placement(graph.tensors[tensor].shape, position, config, mesh)
        for position, tensor in enumerate(rows)
    }
    if config.parallel_mode == ParallelMode.AUTO_PARALLEL and mesh.num_devices > 1:
        of_stage = replace(settings, parallel=config)
        return graph, auto_plan(graph, mesh, of_stage, placed, frozenset(), profile_of(settings))[0]
    return graph, semi_auto_plan(graph, mesh, config, placed)


@dataclass(frozen=True, slots=True)
class _Sharded:
    """A step as it is planned.

    Attributes:
        step: with tables in blocks and weights that are gathered again.
        plan: of it.
        mesh: the devices.
        search: how the plan was found.
        tables: uneven rows of tables, by number of the tensor.
        blocked: the inputs that are kept in blocks, by position.
    """

    step: Ingested
    plan: Plan
    mesh: DeviceMatrix
    search: SearchResult | None
    tables: Mapping[int, UnevenRows]
    blocked: Mapping[int, Blocked]


def _sharded(step: Ingested, arguments: Sequence[Argument], settings: PlanSettings) -> _Sharded:
    """Plan a step of one pipeline stage."""
    # The order of the axes decides which strategies need no reordering of slices.
    mesh = arranged_for(step.graph, mesh_of(settings.parallel), settings.parallel.dataset_strategy)
    inputs = step.graph.inputs[len(step.constants) :]
    given = {entry.tensor for entry, argument in zip(inputs, arguments, strict=True) if argument.given}
    tables = check_splits(step.graph, mesh.num_devices, given)
    step, blocked = in_blocks(step)
    # At level 3 weights are gathered again in the backward pass and not kept in between.
    if settings.parallel.enable_parallel_optimizer and settings.parallel.optimizer_level == "level3":
        step = regather_weights(step)
    plan, search = make_plan(step.graph, arguments, mesh, settings)
    return _Sharded(step, plan, mesh, search, tables, blocked)


def _with_notes_of_host(planned: PlannedStep) -> PlannedStep:
    """The step, whose plan says what is on the hosts and what travels there; the program of the devices is asked."""
    away = [argument for argument in planned.arguments if argument.on_host]
    moved = any(operator.name == "device_put" for operator in planned.graph.operators)
    if not (away or moved or any(equation.on_host for equation in planned.step.equations)):
        return planned
    # The traced program is asked, since passes may add or remove transfers.
    sent = transfers(planned.jitted.trace(*planned.structs()).jaxpr)
    notes = host_notes([argument.name for argument in away], planned.host_bytes(), sent)
    return replace(planned, plan=replace(planned.plan, notes=(*planned.plan.notes, *notes)))


def _pipelined_step(
    step: Ingested, arguments: Sequence[Argument], num_updated: int, settings: PlanSettings, tags: frozenset[str]
) -> PipelinedStep:
    """The same for several pipeline stages."""
    whole = frozenset(argument.name for argument in arguments if not argument.cuttable)
    hosts = partial(on_hosts, arguments=arguments, tags=tags, peaks=partial(peaks_of, settings=settings))
    waits = KEPT_ON_HOSTS in tags
    pipeline = plan_pipeline(step, whole, settings, profile_of(settings), _of_first_process, hosts, waits)
    pipeline = replace(pipeline, options=compiler_options(tags))
    return PipelinedStep(pipeline, _without_values(arguments), num_updated, settings)


def _kept(mesh: DeviceMatrix, settings: PlanSettings, search: SearchResult | None) -> Callable[[OperatorMark], bool]:
    """Whether a plan has to keep the user's strategy of an operator: a search may be free to find its own."""
    if search is None:
        return lambda mark: True
    return AutoPolicy(mesh, settings.parallel, always=settings.search.recursive_keeps_strategies).keeps


def _said_of(tables: Mapping[int, UnevenRows], graph: OperatorGraph) -> list[str]:
    """For each table in uneven parts how it is kept."""
    names = {entry.tensor: entry.name for entry in graph.inputs}
    return [
        f"{names[tensor]}: {rows.num_rows} rows in parts of {rows.rows}, kept in blocks of {rows.block}"
        for tensor, rows in tables.items()
        if not rows.is_even
    ]


def make_plan(
    graph: OperatorGraph, arguments: Sequence[Argument], mesh: DeviceMatrix, settings: PlanSettings
) -> tuple[Plan, SearchResult | None]:
    """The plan for a graph whose last inputs are `arguments`, and how it was found.

    Variables stay where they are in steps that do not compute gradients; otherwise their users decide.
    """
    inputs = graph.inputs[len(graph.inputs) - len(arguments) :]
    placed: dict[int, Placement] = {}
    position = 0
    learns = _learns(graph)
    steps = settings.num_stacked
    # Only what is not on devices yet is distributed by the dataset's strategy.
    fed = [
        argument.array
        for argument in arguments
        if argument.role is Role.DATA and placement_of(argument.array, mesh) is None
    ]
    strategy = settings.parallel.dataset_strategy
    if fed and not isinstance(strategy, str):
        check_dataset_strategy(strategy, [tuple(array.shape[steps:]) for array in fed], mesh.num_devices)
    for entry, argument in zip(inputs, arguments, strict=True):
        here = placement_of(argument.array, mesh)
        if argument.role is Role.DATA:
            if here is None:
                batch = data_placement(tuple(argument.array.shape[steps:]), position, settings.parallel, mesh)
                # Sink mode stacks batches of several steps in front; that dimension is not sharded.
                here = Placement((*((),) * steps, *batch.dims))
                position += 1
            placed[entry.tensor] = here
        elif here is not None and not learns:
            # In evaluation a variable stays as training has left it: moving it would cost every step of training.
            placed[entry.tensor] = here
    whole = frozenset(argument.name for argument in arguments if not argument.cuttable)
    if settings.parallel.parallel_mode == ParallelMode.AUTO_PARALLEL:
        plan, search = auto_plan(graph, mesh, settings, placed, whole, profile_of(settings))
        return _of_first_process(plan), search
    return semi_auto_plan(graph, mesh, settings.parallel, placed, whole), None


def _check_memory(needed: int, settings: PlanSettings, what: str) -> None:
    """Raise if what was planned needs more memory than the user allows."""
    if settings.asked_bytes and needed > settings.asked_bytes:
        raise SporaxRuntimeError(
            f"For 'memory', the step must fit into {settings.asked_bytes / 1e6:.3f} MB per device, but {what} needs "
            f"{needed / 1e6:.3f} MB. `--mode dynamic_programming` searches for a plan that fits; `recompute()` and "
            "'enable_parallel_optimizer' save memory."
        )


def _of_first_process(plan: Plan) -> Plan:
    """The plan that the first process found, for all: a search that runs out of time may end anywhere."""
    if jax.process_count() == 1:
        return plan
    group = groups.find(None)
    # As bytes through a broadcast: the only channel that all ranks are sure to have.
    text = np.frombuffer(plan.to_json().encode(), np.uint8)
    (size,) = collectives.run(collectives.Broadcast(group), jnp.asarray([len(text)]))
    # A program has one shape on all ranks, so all must know the length first.
    (text,) = collectives.run(collectives.Broadcast(group), jnp.asarray(np.resize(text, int(size[0]))))
    return Plan.from_json(np.asarray(text).tobytes().decode())


def _learns(graph: OperatorGraph) -> bool:
    """Whether gradients of parameters are computed."""
    return any(isinstance(operator.mark, GradientMark) for operator in graph.walk())


def _started(outputs: list[jax.Array]) -> list[jax.Array]:
    """The results of a program that has been started.

    On CPUs two programs that do not depend on each other may run at the same time, and their messages would mix: with
    several processes each waits for its end.
    """
    if jax.process_count() > 1 and jax.default_backend() == "cpu":
        jax.block_until_ready(outputs)
    return list(outputs)
