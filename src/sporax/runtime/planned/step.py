"""A step of the global view: one program for all devices, sharded by a plan. `sporax.runtime.planned.planning` makes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.graph import LITERAL, OperatorGraph
from sporax.ir.plan import Plan
from sporax.lowering.ingest.ingest import Ingested
from sporax.lowering.passes.uneven_tables import Blocked
from sporax.planner import SearchResult, cost_model
from sporax.planner.cost.model import CostModel
from sporax.report.questions import Answers
from sporax.report.view.headline import utilization
from sporax.runtime.devices.argument import Argument
from sporax.runtime.devices.global_view import devices_here, place_data
from sporax.runtime.planned.verification import Verification, VerifiedFirst, is_asked, verified
from sporax.runtime.process import step_verification
from sporax.runtime.process.defects import defects_told
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.session import SESSION
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
        with defects_told("lowering", self.jitted.__name__, self.settings):
            return self.jitted.lower(*self.structs())  # type: ignore[no-any-return]  # of `jax.jit`

    def compile(self, name: str) -> Any:
        """The program of all devices, compiled; `name` is what messages call it."""
        executable = self.executable
        if executable is None:
            with defects_told("lowering", name, self.settings):
                executable = step_verification.compiled(self.jitted, name, self.structs())
        return VerifiedFirst(executable, self._verified) if is_asked() else executable

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
