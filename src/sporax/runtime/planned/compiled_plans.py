"""What plans need once they are compiled: the `Measure` of the planner, where the devices of a plan are at hand.

Problem: a predicted peak is a few percent off, and a limit that the user sets must hold for the program that runs.

Method: only plans near the limit are compiled. Such a plan is lowered and compiled as the step will be, and XLA's memory
analysis is read. The last compiled program is stored, so that the step that runs is not compiled a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from sporax.ir.plan import Plan
from sporax.planner import PlanRequest, PlanResult
from sporax.runtime.process import dry_run
from sporax.runtime.session import SESSION


class Compiled(NamedTuple):
    """A step, or the jitted function, under a plan, and its compiled program."""

    step: Any
    executable: Any


class CompiledPlans:
    """Compiles plans, and stores the program of the last one.

    Args:
        compiled: under a plan; None where what XLA says of it is not the memory of the device.
    """

    def __init__(self, compiled: Callable[[PlanResult], Compiled | None]) -> None:
        self._compiled = compiled
        self._last: tuple[Plan, Compiled] | None = None

    def measure(self, result: PlanResult) -> int | None:
        """Bytes that a compiled plan needs on one device; None where they are not known."""
        compiled = self._compiled(result)
        if compiled is None:
            return None
        self._last = result.plan, compiled
        return device_bytes(compiled.executable)

    def of(self, plan: Plan) -> Compiled | None:
        """What was compiled under a plan, if that was the last one."""
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
    has_limit = settings.limit_bytes or settings.max_device_bytes or "device_memory_capacity" in settings.cost.changed
    return bool(has_limit) and devices_are_local(request)


def devices_are_local(request: PlanRequest) -> bool:
    """Whether this process alone drives the devices of a plan, and steps are run and not only planned."""
    if SESSION.plan_only or SESSION.plans_all or dry_run.active() or jax.process_count() > 1:
        return False
    is_platform = request.profile.platform == jax.default_backend()
    return is_platform and max(request.mesh.ranks, default=0) < jax.device_count()
