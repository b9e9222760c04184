"""What a step is planned under, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field

from sporax.ir.parallel_config import ParallelConfig
from sporax.ir.search_config import CostModelConfig, SearchConfig


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """The user's settings, taken when a step is compiled.

    Attributes:
        parallel: of the parallel run.
        search: of the search, for automatic parallelism.
        cost: of the cost model.
        hardware: name or file of the devices' profile; "" for the one that fits the devices at hand.
    """

    parallel: ParallelConfig
    search: SearchConfig = field(default_factory=SearchConfig)
    cost: CostModelConfig = field(default_factory=CostModelConfig)
    hardware: str = ""
