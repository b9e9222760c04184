"""Random small networks, planned in every way: no internal error, and the numbers of one device (`tools/fuzz_plans.py`)."""

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "tools"))

import fuzz_plans
from random_networks import PARAMETER, Case, Value, is_valid, smaller, text

from sporax.planner.propagation import propagate
from sporax.planner.search.limit import limit, local_search

PLANNED, RUN, PARTS = 284, 16, 4
SOAKED = (1, 2, 3)  # parts that `make soak` runs
LONGEST = 3


@pytest.fixture
def few_plans(monkeypatch):
    """Searches for less memory measure few plans, each in the way of all: how little there can be is not computed."""
    monkeypatch.setattr(local_search, "_OPERATORS", 600)
    monkeypatch.setattr(limit, "_OPERATORS_AGAIN", 600)


def found(numbers, runs, pipelines=0.0, longest=LONGEST, seed="short", most_refused=0.4):
    """What fails among the cases of these numbers, as programs."""
    failures = []
    refused = 0
    for number in numbers:
        case = fuzz_plans.case_of(seed, number, longest, pipelines)
        try:
            failure = fuzz_plans.tried(case, runs)
        except fuzz_plans.Refused:
            refused += 1
            continue
        if failure is not None:
            small = fuzz_plans.shrunk(case, failure, runs)
            failures.append(f"case {number}: {failure.message}\n{text(small)}")
    # Refusals are fair answers to blind strategies, but a test of refusals alone would prove nothing.
    assert refused < most_refused * len(numbers)
    return "\n\n".join(failures)


@pytest.mark.usefixtures("few_plans")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.soak) if part in SOAKED else part for part in range(PARTS)]
)
@pytest.mark.full
def test_plans_have_no_internal_errors(part):
    assert not found(range(part, PLANNED, PARTS), runs=False)


@pytest.mark.usefixtures("few_plans")
@pytest.mark.timeout(1200)
def test_numbers_are_those_of_one_device():
    assert not found(range(PLANNED, PLANNED + RUN), runs=True)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("seed", "runs", "count", "longest"), [("plans", False, 2000, 7), ("numbers", True, 600, 5)])
def test_thousands_of_networks(seed, runs, count, longest):
    assert not found(range(count), runs, longest=longest, seed=seed)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_hundreds_of_pipelines():
    # Two thirds of what is drawn has a stage without a Parameter, or batches that do not divide.
    assert not found(range(400), runs=True, pipelines=1.0, longest=6, seed="pipelines", most_refused=0.8)


def test_a_failure_is_printed_as_the_smallest_program_that_shows_it(monkeypatch):
    """A planner that fails at one operator: all others, and all settings that do not matter, are gone from the program."""

    whole = propagate.rule_for

    def rule_for(operation):
        if operation.name == "cumsum":
            raise KeyError("cumsum")
        return whole(operation)

    monkeypatch.setattr(propagate, "rule_for", rule_for)
    case = Case(
        (
            Value((8, 4), leaf="input"),
            Value((8, 4), leaf=PARAMETER),
            Value((8, 4), text="{0} * {1}", operands=(0, 1)),
            Value((8, 4), text="ops.cumsum({0}, 0)", operands=(2,)),
            Value((8, 4), text="ops.tanh({0})", operands=(3,)),
        ),
        (4, 2),
        loss="({0} * {0}).mean()",
        kind="step",
        context=("context.set_auto_parallel_context(parallel_mode='semi_auto_parallel', device_num=8)",),
    )
    failure = fuzz_plans.tried(case, runs=False)
    assert failure.key[:2] == ("crash", "KeyError")
    small = fuzz_plans.shrunk(case, failure, runs=False)
    assert [value.text for value in small.values if not value.leaf] == ["ops.cumsum({0}, 0)"]
    assert small.kind == "forward"
    compile(text(small), "program", "exec")


def test_numbers_that_differ_are_found(monkeypatch):
    monkeypatch.setattr(fuzz_plans, "_alone", lambda case: [array + 1 for array in fuzz_plans._results(case)])
    case = next(case for case in map(_case, range(50)) if not case.may_be_refused)
    assert fuzz_plans.tried(replace(case, kind="forward", loss=""), runs=True).key == ("numbers",)


def _case(number):
    return fuzz_plans.case_of("differ", number, 2, 0.0)


def test_every_smaller_case_is_a_program():
    for number in range(40):
        case = fuzz_plans.case_of("texts", number, 6, 0.2)
        for candidate in filter(is_valid, smaller(case)):
            compile(text(candidate), "program", "exec")
        assert fuzz_plans.case_of("texts", number, 6, 0.2) == case


CASES = [31, *(pytest.param(number, marks=pytest.mark.soak) for number in range(200) if number != 31)]


@pytest.mark.parametrize("number", CASES)
def test_no_search_is_slower_than_what_everyone_knows(number):
    """As strategies by hand say, and without them as data parallelism, FSDP and tensor parallelism."""
    draws = (fuzz_plans.case_of("hand", f"{number} {again}", 4, 0.0) for again in range(40))
    case = next(case for case in draws if any(value.strategy for value in case.values))
    with contextlib.suppress(fuzz_plans.Refused):  # the strategies do not fit the case
        failure = fuzz_plans.beaten(case, "h100")
        assert failure is None, f"{failure}\n{text(case)}"
