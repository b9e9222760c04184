"""A step of the global view: one program for all devices, sharded by a plan. `sporax.runtime.planned.planning` makes it.

Offload in steps that a plan shards: which variables each device keeps on its host.

The plan is made as if all was on the devices. Then, as in steps of one device (`host_memory`), all Parameters and state go to the
host, or with ``auto_offload`` the largest until what the memory model predicts fits. Sizes are those of one device's part.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
from jax.sharding import NamedSharding

from sporax.base.errors import SporaxNotImplementedError
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.graph import OperatorGraph, Role
from sporax.ir.placement import Placement, num_parts
from sporax.ir.plan import Plan
from sporax.lowering.ingest.ingest import Ingested
from sporax.lowering.passes.pass_tags import SAVED_IN_FILES
from sporax.lowering.passes.uneven_tables import Blocked
from sporax.planner import SearchResult, cost_model
from sporax.planner.cost.model import CostModel
from sporax.planner.memory.backend import Backend
from sporax.planner.memory.peak import memory_of
from sporax.report.questions import Answers
from sporax.report.view.headline import utilization
from sporax.runtime.devices.global_view import Argument, devices_here, place_data, zero_results
from sporax.runtime.planned.verification import Verification, VerifiedFirst, is_requested, verified
from sporax.runtime.process import step_verification
from sporax.runtime.process.defects import report_internal_errors
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.session import SESSION
from sporax.runtime.storage.host_memory import check_room, largest, limits_of
from sporax.runtime.storage.placed_variables import PlacedVariables


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
        executable: the compiled program, where the memory limit of the plan needed it.
    """

    step: Ingested
    plan: Plan
    jitted: Any
    arguments: tuple[Argument, ...]
    shardings: tuple[NamedSharding, ...]
    settings: PlanSettings
    search: SearchResult | None = None
    blocked: Mapping[int, Blocked] = field(default_factory=dict)
    executable: Any = None

    @property
    def graph(self) -> OperatorGraph:
        """The operators of the step."""
        return self.step.graph

    @property
    def is_one_program(self) -> bool:
        """Whether a step is one compiled program."""
        return True

    @property
    def model(self) -> CostModel:
        """The cost of operators and links: of the profile that the settings name, or that fits the devices at hand."""
        # Where the user set nothing about fusion, the compiler merges, and that is part of the cost.
        profile = devices_here().profile(self.settings)
        return cost_model(self.settings, self.plan.mesh, profile, self.plan.fusion_is_free)

    def utilization(self) -> tuple[float, str] | None:
        """Model FLOPs utilization of a step of one second, see `report.view.headline.utilization`."""
        return utilization(self.graph, self.plan.mesh.num_devices, self.model)

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

    def uses_hosts(self) -> bool:
        """Whether variables are in host memory between steps, or values during a step."""
        if any(argument.on_host for argument in self.arguments):
            return True
        moved = any(operator.name == "device_put" for operator in self.graph.operators)
        return moved or any(equation.on_host for equation in self.step.equations)

    def lower(self) -> jax.stages.Lowered:
        """The program of all devices, lowered and not compiled."""
        with report_internal_errors("lowering", self.jitted.__name__, self.settings):
            return self.jitted.lower(*self.structs())  # type: ignore[no-any-return]  # of `jax.jit`

    def compile(self, name: str) -> Any:
        """The program of all devices, compiled; `name` is what messages call it."""
        executable = self.executable
        if executable is None:
            with report_internal_errors("lowering", name, self.settings):
                executable = step_verification.compiled(self.jitted, name, self.structs())
        return VerifiedFirst(executable, self._verified) if is_requested() else executable

    def _verified(self, *arguments: jax.Array) -> Verification:
        """The first step on one device next to this one; results that update a variable have its name."""
        updated = {output: self.graph.inputs[argument].name for output, argument in self.graph.aliases}
        names = [updated.get(number) or f"result {number}" for number in range(len(self.graph.outputs))]
        return verified(self.step, self.plan, arguments, names)

    def _stored_shape(self, number: int) -> tuple[int, ...]:
        shape = tuple(self.arguments[number].array.shape)
        return self.blocked[number].shape(shape) if number in self.blocked else shape

    def stored(self, updated: Sequence[Any], read: Sequence[Any]) -> PlacedVariables:
        """The variables as the program takes and returns them."""
        count = len(updated) + len(read)
        on_host = frozenset(number for number in range(count) if self.arguments[number].on_host)
        return PlacedVariables(updated, read, self.shardings[:count], self.blocked, on_host)

    def bring(self, updated: Sequence[Any], read: Sequence[Any]) -> None:
        """Bring variables to where they must be; lazy ones are made there, each device its own slices."""
        self.stored(updated, read).bring()

    def unrun(self) -> list[jax.Array] | None:
        """Zeros for the results, the updated variables' first, where steps are only planned; else None."""
        return zero_results(self.step) if SESSION.plan_only else None

    def run(self, executable: Any, variables: Sequence[jax.Array], data: Sequence[jax.Array]) -> list[jax.Array]:
        """Run the compiled program; arguments with another sharding are resharded first.

        Args:
            variables: values of the variables, the updated ones first.
            data: the other arguments; with several processes, the part that this one feeds.
        """
        shardings = self.shardings[len(variables) :]
        fed = [
            place_data(array, sharding, self.settings.parallel) for array, sharding in zip(data, shardings, strict=True)
        ]
        try:
            return _started(executable(*variables, *fed))
        except (TypeError, ValueError):
            # XLA refuses arguments with another sharding before anything runs.
            # A variable is elsewhere (at the first step, after loading a checkpoint), and nothing ran; unless it did.
            if any(array.is_deleted() for array in variables):
                raise
        moved = joint_arrays.place_all(variables, self.shardings[: len(variables)])
        return _started(executable(*moved, *fed))


def _started(outputs: list[jax.Array]) -> list[jax.Array]:
    """The results of a program that has been started.

    On CPUs two programs that do not depend on each other may run at the same time, and their messages would mix: with
    several processes each waits for its end.
    """
    if jax.process_count() > 1 and jax.default_backend() == "cpu":
        jax.block_until_ready(outputs)
    return list(outputs)


def check_offload(tags: Collection[str]) -> None:
    """Refuse what plans cannot offload.

    Raises:
        SporaxNotImplementedError: files.
    """
    if SAVED_IN_FILES in tags or any(tag.startswith("files ") for tag in tags):
        raise SporaxNotImplementedError(
            "For 'set_offload_context', 'disk' is offered in steps of one device, but this step is sharded by a plan. Use 'cpu' "
            "there."
        )


def sent_to_hosts(
    arguments: Sequence[Argument],
    tags: Collection[str],
    graph: OperatorGraph,
    plan: Plan,
    placements: Sequence[Placement],
    backend: Backend,
) -> list[Argument]:
    """The arguments of a step, those marked that are in host memory between steps.

    Args:
        graph, plan: of the step, with everything on the devices.
        placements: where each argument is.

    Raises:
        SporaxRuntimeError: the hosts may not hold so much.
    """
    result = list(arguments)
    for above, within in limits_of(tags):
        # Bytes of one device: a sharded variable saves only its slice there.
        sizes = [_part_bytes(argument, plan, place) for argument, place in zip(arguments, placements, strict=True)]
        parts = [
            (number, sizes[number])
            for number, argument in enumerate(result)
            if argument.role is Role.PARAMETER and argument.array.shape and not argument.on_host
        ]
        for number in largest(parts, above, memory_of(graph, plan, backend=backend).peak_bytes if above else 0):
            result[number] = replace(result[number], on_host=True)
        # All devices of this process share one host's memory.
        on_this_host = plan.mesh.num_devices // jax.process_count()
        there = on_this_host * sum(size for size, argument in zip(sizes, result, strict=True) if argument.on_host)
        check_room(there, within)
    return result


def _part_bytes(argument: Argument, plan: Plan, place: Placement) -> int:
    size: int = math.prod(argument.array.shape) * argument.array.dtype.itemsize
    return size // num_parts(plan.mesh, tuple(place.used))
