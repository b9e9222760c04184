"""The cheapest known choice that fits, and the error where none does."""

import re

import pytest
from planner_graphs import cheapest_cost, every_choice, layers, mesh_of, problem_of, product, training_step

from sporax.base.errors import SporaxRuntimeError
from sporax.planner.memory.peak import memory_of
from sporax.planner.search.limit import memory_heuristic
from sporax.planner.search.limit.local_search import measured
from sporax.planner.search.limit.memory_heuristic import cheapest
from sporax.planner.search.limit.memory_limit import smallest
from sporax.planner.search.space.plan_assembly import plan_of

MESH = mesh_of(2, 2)


def test_without_a_limit_the_cheapest_choice_wins():
    problem = problem_of(product(), MESH)
    worst = max(every_choice(problem), key=problem.seconds)
    assert problem.seconds(cheapest(problem, [worst])) == pytest.approx(cheapest_cost(problem))


def test_a_known_choice_that_is_cheapest_and_fits_is_taken_as_it_is():
    free = problem_of(product(), MESH)
    best = list(min(every_choice(free), key=free.seconds))
    limit = measured(free, best).peak_bytes
    assert cheapest(problem_of(product(), MESH, memory_bytes=limit), [best]) == best


def test_a_limit_is_kept():
    free = problem_of(layers(3), MESH)
    limit = int(0.8 * measured(free, cheapest(free, [])).peak_bytes)
    problem = problem_of(layers(3), MESH, memory_bytes=limit)
    chosen = cheapest(problem, [])
    assert memory_of(problem.graph, plan_of(problem, chosen)).peak_bytes <= limit
    assert problem.seconds(chosen) >= free.seconds(cheapest(free, []))


def test_where_nothing_fits_the_error_says_what_would():
    with pytest.raises(
        SporaxRuntimeError, match=r"For 'memory', the plan must fit into 0\.000 MB per device, but"
    ) as caught:
        cheapest(problem_of(product(), MESH, memory_bytes=10), [], seconds=2)
    stated = float(re.search(r"but (\S+) MB is the smallest plan", str(caught.value)).group(1)) * 1e6
    problem = problem_of(product(), MESH, memory_bytes=int(stated))
    assert measured(problem, cheapest(problem, [])).peak_bytes <= stated


def test_a_search_that_may_give_up_says_no_more_than_that_it_found_nothing_soon():
    with pytest.raises(
        SporaxRuntimeError, match=r"^For 'search', a plan must be found soon .* 10 bytes .* got none\.$"
    ):
        cheapest(problem_of(product(), MESH, memory_bytes=10, gives_up=True), [])


def test_a_known_choice_that_fits_is_taken_before_giving_up(monkeypatch):
    mesh = mesh_of(2)
    free = problem_of(training_step(), mesh)
    known = smallest(free)
    assert known.peak_bytes < measured(free, cheapest(free, [])).peak_bytes
    monkeypatch.setattr(memory_heuristic, "fit_quickly", lambda problem, limit: None)
    problem = problem_of(training_step(), mesh, memory_bytes=known.peak_bytes, gives_up=True)
    assert cheapest(problem, [known.chosen]) == known.chosen
