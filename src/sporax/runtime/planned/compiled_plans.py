"""What plans need once they are compiled: the `Measure` of the planner, where the devices of a plan are at hand.

Problem: a predicted peak is a few percent off, and a limit that the user sets must hold for the program that runs.

Method: the planner asks for plans near the limit alone. Such a plan is lowered and compiled as the step will be, and XLA's memory
analysis is read. The last compiled program is stored, so that the step that runs is not compiled a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import jax

from sporax.base.progress import activity
from sporax.ir.plan import Plan
from sporax.planner import PlanRequest, PlanResult
from sporax.runtime.process import dry_run
from sporax.runtime.session import SESSION


class Compilable(Protocol):
    """A step under a plan."""

    def compile(self, name: str) -> Any:
        """The program, compiled; `name` is what messages call it."""


@dataclass(frozen=True, slots=True)
class FunctionForArguments:
    """A function that `jax.jit` has made, for arguments of certain shapes.

    Attributes:
        jitted: the function. What is compiled here is stored by JAX, and calls of it find it there.
        args: its arguments, or their shapes and dtypes.
        shardings: of the arguments, in their structure.
    """

    jitted: Any
    args: tuple[Any, ...]
    shardings: Any

    def compile(self, name: str) -> Any:
        """The program, compiled; `name` is what messages call it."""
        shapes = jax.eval_shape(lambda *args: args, *self.args)
        structs = jax.tree.map(lambda struct, sharding: struct.update(sharding=sharding), shapes, self.shardings)
        with activity(f"compiling '{name}' for its memory"):
            return self.jitted.lower(*structs).compile()


Step = TypeVar("Step", bound=Compilable)


class CompiledPlans(Generic[Step]):
    """Compiles plans, and stores the program of the last one.

    Args:
        lowered: the step under a plan; None where what XLA says of it is not the memory of the device.
        name: of the step, for messages.
    """

    def __init__(self, lowered: Callable[[PlanResult], Step | None], name: str) -> None:
        self._lowered = lowered
        self._name = name
        self._last: tuple[Plan, Step, Any] | None = None

    def measure(self, result: PlanResult) -> int | None:
        """Bytes that a compiled plan needs on one device; None where they are not known."""
        step = self._lowered(result)
        if step is None:
            return None
        executable = step.compile(self._name)
        self._last = result.plan, step, executable
        return device_bytes(executable)

    def executable_of(self, plan: Plan) -> Any:
        """The compiled program of a plan, if that was the last one."""
        return self._last[2] if self._last is not None and self._last[0] is plan else None

    def step_of(self, plan: Plan) -> Step | None:
        """The step that was compiled under a plan, if that was the last one."""
        return self._last[1] if self._last is not None and self._last[0] is plan else None


def device_bytes(executable: Any) -> int | None:
    """Bytes that a compiled program needs on each device; None where its compiler does not say."""
    needs = executable.memory_analysis()
    if needs is None:
        return None
    # What reuses the buffer of an argument is counted among arguments and among results.
    total = needs.argument_size_in_bytes + needs.output_size_in_bytes + needs.temp_size_in_bytes
    return int(total - needs.alias_size_in_bytes)


def can_compile_for_limit(request: PlanRequest) -> bool:
    """Whether a plan can be compiled here for the devices it is for, and the user has set a limit that it must keep."""
    settings = request.settings
    has_limit = settings.asked_bytes or settings.max_device_bytes or "device_memory_capacity" in settings.cost.changed
    return bool(has_limit) and devices_are_local(request)


def devices_are_local(request: PlanRequest) -> bool:
    """Whether this process alone drives the devices of a plan, and steps are run and not only planned."""
    if SESSION.plan_only or SESSION.plans_all or dry_run.active() or jax.process_count() > 1:
        return False
    is_platform = request.profile.platform == jax.default_backend()
    return is_platform and max(request.mesh.ranks, default=0) < jax.device_count()
