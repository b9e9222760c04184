"""What a search says of its plan."""

import dataclasses

import pytest
from planner_graphs import mesh_of, product

from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.hardware import load_profile
from sporax.planner import PlanRequest
from sporax.planner.search.space.plan_assembly import replicated_plan
from sporax.planner.search.space.problem import SearchResult


def result(bound, optimal):
    return SearchResult(replicated_plan(product(), mesh_of(2)), "ilp", 0.25, bound, optimal, 1.5)


@pytest.mark.parametrize(("bound", "optimal", "words"), [
    (0.25, True, "optimal"),
    (0.125, False, "bound 0.125 s"),
    (None, False, "no bound"),
])  # fmt: skip
def test_the_text_says_what_was_proven(bound, optimal, words):
    assert str(result(bound, optimal)) == f"SearchResult(ilp: 0.25 s, {words}, searched 1.500 s)"


def test_other_units_are_named():
    assert "0.25 weighted bytes" in repr(dataclasses.replace(result(None, False), unit="weighted bytes"))


def test_results_with_equal_plans_are_equal_whatever_requested_them():
    parallel = ParallelConfig(parallel_mode="auto_parallel")
    request = PlanRequest(product(), mesh_of(2), PlanSettings(parallel), load_profile("cpu"))
    assert result(None, False) == dataclasses.replace(result(None, False), request=request)
    assert hash(result(None, False)) == hash(dataclasses.replace(result(None, False), statistics={"decisions": 3}))
