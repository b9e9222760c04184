"""Plans: rules, costs and searches. Pure Python, numpy and scipy; never JAX. This is the door:

    result = make_plan(PlanRequest(graph, mesh, settings, profile, placements))
    result.plan, result.search, result.model

`make_plan(request, measure)` lets the memory limit hold for compiled plans: `measure` compiles one and reads what it needs.

Names are loaded when they are first used: the searches bring scipy along, which values and rules do not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.planner.budget import QUESTION_SECONDS, Budget
    from sporax.planner.compiled_limit import Measure, is_close_to_limit
    from sporax.planner.cost.chosen_model import cost_model, device_memory
    from sporax.planner.devices import Devices, fitting_hardware
    from sporax.planner.pins.strategies import on_devices, placements_for
    from sporax.planner.planning import finish, make_plan, peak_bytes, received, remembered
    from sporax.planner.propagation.propagate import plan_of_body
    from sporax.planner.request import PlanRequest
    from sporax.planner.request_text import request_key
    from sporax.planner.result import PlanResult
    from sporax.planner.search import SearchOptions, SearchResult, alternatives, trade_offs
    from sporax.planner.search.limit.limit import PlanTooLargeError
    from sporax.planner.search.task import SearchTask

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
