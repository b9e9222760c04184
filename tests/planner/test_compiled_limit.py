"""Memory limits that hold for compiled plans: what is compiled, and with which limit the next search is made."""

import pytest
from planner_graphs import layers, mesh_of

from sporax.base.errors import SporaxRuntimeError
from sporax.base.text_tables import limit_text
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.hardware import load_profile
from sporax.planner import PlanRequest, PlanResult, make_plan
from sporax.planner.compiled_limit import SURE, within_compiled
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.planner.search import SearchResult
from sporax.planner.search.limit.limit import PlanTooLargeError

LIMIT = 1000
SETTINGS = PlanSettings(ParallelConfig(device_num=4, parallel_mode=ParallelMode.AUTO_PARALLEL))


class Planner:
    """Finds plans of so many predicted bytes, one after another, and compiles them.

    Args:
        plans: of each plan the predicted and the compiled bytes; or what an error names.
    """

    def __init__(self, *plans):
        self.plans = list(plans)
        self.limits, self.compiled = [], []

    def planned(self, limit):
        self.limits.append(limit)
        predicted, _ = self.plans[len(self.limits) - 1]
        if predicted > limit:
            raise PlanTooLargeError("too large", predicted)
        found = SearchResult(None, "fake", 2.0 + len(self.limits), 2.0, False, 0.0, {"peak_bytes": predicted})
        return PlanResult(None, object(), found)

    def measure(self, result):
        self.compiled.append(result.search.statistics["peak_bytes"])
        return self.plans[len(self.limits) - 1][1]

    def run(self):
        return within_compiled(LIMIT, self.planned, lambda result: result.search.statistics["peak_bytes"], self.measure)


def test_the_next_search_gets_the_limit_less_what_was_not_predicted():
    """The difference is taken from the limit itself, not from the last one that was searched with: it counts once."""
    planner = Planner((990, 1040), (945, 1005), (935, 990))
    search = planner.run().search
    assert planner.limits == [1000, 1000 - 50, 1000 - 60]
    assert search.statistics == {"peak_bytes": 935, "predicted_bytes": 935, "compiled_bytes": 990, "compiled_plans": 3}
    assert (search.bound_seconds, search.optimal) == (2.0, False)


@pytest.mark.parametrize(("predicted", "compiled"), [(int(SURE * LIMIT), []), (LIMIT, [LIMIT])])
def test_plans_far_below_the_limit_are_not_compiled(predicted, compiled):
    planner = Planner((predicted, LIMIT))
    assert ("compiled_bytes" in planner.run().search.statistics) == bool(compiled)
    assert planner.compiled == compiled


def test_a_plan_of_which_nothing_is_known_is_taken():
    assert "compiled_bytes" not in Planner((LIMIT, None)).run().search.statistics


def test_what_is_predicted_to_be_too_large_fits_if_its_compiled_program_does():
    planner = Planner((1100, None), (1100, 980))
    statistics = planner.run().search.statistics
    assert planner.limits == [1000, 1100]
    assert (statistics["predicted_bytes"], statistics["compiled_bytes"]) == (1100, 980)
    for refused in (Planner((1100, None), (1100, 1001)), Planner((1200, None)), Planner((1100, None), (1150, None))):
        with pytest.raises(PlanTooLargeError, match="too large"):
            refused.run()


@pytest.mark.parametrize("plans", [[(990, 1040), (960, 1)], [(990, 1040), (950, 1010), (940, 1010), (930, 1010)]])
def test_where_no_compiled_plan_fits_both_figures_are_named(plans):
    compiled, predicted = (1040, 990) if len(plans) == 2 else (1010, 930)
    with pytest.raises(
        SporaxRuntimeError,
        match=rf"^For 'memory', a plan must fit into 1 kB per device once it is compiled, .* needs {limit_text(compiled)}, "
        rf"where {limit_text(predicted)} were predicted",
    ):
        Planner(*plans).run()


def test_the_door_of_the_planner_takes_what_compiles():
    graph, mesh, profile = layers(2), mesh_of(2, 2), load_profile("cpu")
    free = make_plan(PlanRequest(graph, mesh, SETTINGS, profile))
    limit = memory_of(graph, free.plan, XLA_CPU).peak_bytes
    requested = PlanRequest(graph, mesh, SETTINGS, profile, memory_bytes=limit)
    known = make_plan(requested, lambda result: limit)
    assert (known.plan, known.search.statistics["compiled_bytes"]) == (free.plan, limit)
    measured = []

    def measure(result):
        measured.append(memory_of(graph, result.plan, XLA_CPU).peak_bytes)
        return measured[-1] + 1

    less = make_plan(requested, measure)
    assert measured[0] == limit
    assert memory_of(graph, less.plan, XLA_CPU).peak_bytes < limit
    assert less.search.options.memory_bytes == limit  # what the user requested, and reports say
    assert less.search.cost_seconds >= free.search.cost_seconds
