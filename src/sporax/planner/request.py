"""A request to the planner: everything that a plan depends on, in one value.

Problem: plans are made for steps, for stages of pipelines, for rounds of loops and for functions of plain JAX. Each of them knows
other facts, and a plan must not depend on who requested it.

Method: the caller collects the facts in a `PlanRequest`; `planner.planning.make_plan` reads nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sporax.ir.config.parallel_config import ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.hardware import HardwareProfile
from sporax.ir.placement import Placement
from sporax.planner.budget import Budget


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A graph to be planned, and all that decides about its plan.

    Attributes:
        graph: the step.
        mesh: the devices, with axes of prime sizes.
        settings: the user's.
        profile: the devices' hardware.
        placements: where inputs are, by number of the tensor; the others are decided.
        unsharded_parameters: names of the parameters that optimizer parallelism must not shard.
        memory_bytes: what a searched plan may need on one device; None for no limit.
        budget: time for a search, which has a limit of its own, too.
    """

    graph: OperatorGraph
    mesh: DeviceMatrix
    settings: PlanSettings
    profile: HardwareProfile
    placements: Mapping[int, Placement] = field(default_factory=dict, hash=False)
    unsharded_parameters: frozenset[str] = frozenset()
    memory_bytes: int | None = None
    budget: Budget = field(default_factory=Budget.unlimited, hash=False)

    @property
    def is_searched(self) -> bool:
        """Whether a search decides; otherwise the user's strategies and MindSpore's defaults do."""
        return self.settings.parallel.parallel_mode == ParallelMode.AUTO_PARALLEL
