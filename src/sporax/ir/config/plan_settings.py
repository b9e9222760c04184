"""The settings that a step is planned with, as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from sporax.base.errors import SporaxValueError, did_you_mean
from sporax.base.lazy_members import dataclass
from sporax.base.units import parse_bytes
from sporax.ir.config import search_config
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.hardware import SYMBOLIC, profile_name
from sporax.ir.variables import read

HARDWARE, MODE, MEMORY = "SPORAX_HARDWARE", "SPORAX_PLAN_MODE", "SPORAX_PLAN_MEMORY"
"""Environment variables that replace settings, see `PlanSettings.under`."""
DEVICES = "SPORAX_PLAN_DEVICES"
"""How many devices a plan is for, whatever the script says: set by ``sporax plan --devices``."""
SCHEDULE, STAGES = "SPORAX_PLAN_SCHEDULE", "SPORAX_PLAN_STAGES"
"""Of pipelines: a schedule (or `all`) to compare with; `auto` to have the stages chosen."""

SEMI_AUTO = "semi_auto"
PLAN_MODES = (SEMI_AUTO, *search_config.SEARCH_NAMES)
"""What ``SPORAX_PLAN_MODE`` may be, in letters of any case."""


def plan_mode(text: str, what: str) -> str:
    """`SEMI_AUTO`, or the full name of a search.

    Args:
        text: one of `PLAN_MODES`, in letters of any case.
        what: how a message opens.

    Raises:
        SporaxValueError: it is none.
    """
    mode = SEMI_AUTO if text.lower() == SEMI_AUTO else search_config.full_name(text)
    if mode not in (SEMI_AUTO, *search_config.SEARCHES):
        raise SporaxValueError(f"{what} must be one of {PLAN_MODES}, but got '{text}'.{did_you_mean(text, PLAN_MODES)}")
    return mode


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """The user's settings, taken when a step is compiled.

    Attributes:
        parallel: of the parallel run.
        search: of the search, for automatic parallelism.
        cost: of the cost model.
        hardware: name or file of the devices' profile, or `SYMBOLIC`; "" for the one that fits the devices at hand.
        max_device_bytes: the user's limit of one device's memory; 0 for none.
        limit_bytes: what a plan must fit into, however it is made; 0 for no limit.
        is_trial: the plan is one of several that are compared, so a search that finds none within the memory soon gives up.
        num_stacked: how many leading dimensions of what is fed count steps, and are no part of a batch.
    """

    parallel: ParallelConfig
    search: search_config.SearchConfig = field(default_factory=search_config.SearchConfig)
    cost: search_config.CostModelConfig = field(default_factory=search_config.CostModelConfig)
    hardware: str = ""
    max_device_bytes: int = 0
    num_stacked: int = 0
    limit_bytes: int = 0
    is_trial: bool = False

    @property
    def symbolic(self) -> bool:
        """Whether plans are costed by MindSpore's model: it was named, or its numbers changed and no hardware was named."""
        # Changed numbers of the published model would otherwise have no effect, and without a message.
        return self.hardware == SYMBOLIC or (not self.hardware and bool(self.cost.changed & search_config.COEFFICIENTS))

    @property
    def profile(self) -> str:
        """Name or file of the devices' profile; "" for the one that fits the devices at hand."""
        return "" if self.hardware == SYMBOLIC else self.hardware

    def under(self, environ: Mapping[str, str]) -> PlanSettings:
        """The settings with what the environment says instead, so that plans can be tried without touching a script.

        ``SPORAX_HARDWARE`` is a profile or ``"symbolic"``, ``SPORAX_PLAN_MODE`` is one of `PLAN_MODES`, and
        ``SPORAX_PLAN_MEMORY`` the memory of one device, ``"80GB"``; ``SPORAX_PLAN_STAGES=auto`` switches on
        ``auto_pipeline``.

        Raises:
            SporaxValueError: an unknown mode, or a size that cannot be read.
        """
        parallel, cost, requested = self.parallel, self.cost, self.limit_bytes
        mode = plan_mode(environ[MODE], f"For '{MODE}', the mode") if environ.get(MODE) else ""
        if mode == SEMI_AUTO:
            parallel = replace(parallel, parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL)
        elif mode:
            parallel = replace(parallel, parallel_mode=ParallelMode.AUTO_PARALLEL, search_mode=mode)
        if environ.get(MEMORY):
            requested = parse_bytes(environ[MEMORY], f"For '{MEMORY}', the size")
            cost = replace(cost, device_memory_capacity=float(requested))
        if environ.get(DEVICES):
            parallel = replace(parallel, device_num=read(environ, DEVICES))
        if read(environ, STAGES) == "auto":
            parallel = replace(parallel, auto_pipeline=True)
        hardware = profile_name(environ.get(HARDWARE, self.hardware))
        return replace(self, parallel=parallel, cost=cost, hardware=hardware, limit_bytes=requested)
