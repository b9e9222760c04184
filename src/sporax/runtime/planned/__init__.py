"""Steps that a plan shards: `step`, and `sporax.plan` for functions of JAX.

Programs find here what they need of plans. Names are loaded when they are first used: most programs of one device are compiled
without the planner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.runtime.pipeline.pipelined_step import PipelinedStep
    from sporax.runtime.planned.planning import plan_program
    from sporax.runtime.planned.recompute_auto import chooser_for_one_device, peak_of_one_device
    from sporax.runtime.planned.step import PlannedStep

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
