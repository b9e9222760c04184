"""Frozen settings of a step: parallel modes, placement of state, searches, fusion, reuse. Values only."""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.ir.config.parallel_config import (
        BYTES_PER_MEGABYTE,
        COMMUNI_PARALLEL_MODES,
        MAX_RANKS,
        OPTIMIZER_LEVELS,
        PIPELINE_SCHEDULERS,
        VARIABLE,
        CommFusion,
        FusionRule,
        ParallelConfig,
        ParallelMode,
        ids_by_position,
        ids_by_size,
        ids_by_sizes,
        reuse_limit,
        wants_loops,
        warn_of_limit,
    )
    from sporax.ir.config.placement_config import DURABILITIES, OffloadConfig, PsConfig
    from sporax.ir.config.plan_settings import DEVICES, PlanSettings
    from sporax.ir.config.search_config import COEFFICIENTS, SEARCH_NAMES, CostModelConfig, SearchConfig, full_name

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
