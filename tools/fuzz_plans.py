"""Random small networks, planned in every way for eight devices: no internal error, and the numbers of one device.

Each case is drawn from the seed and its own number alone. What fails is made smaller as long as it fails in the same way, and
printed as a program that can be run.

With `--searches PROFILE` each case with strategies is planned by these alone and in every search, and without them next to data
parallelism, FSDP and tensor parallelism: no search may be slower, or below what another one has proven.

Run: python tools/fuzz_plans.py [--seed 0] [--first 0] [--cases 300] [--run 0.3] [--longest 7] [--pipelines 0.1]
"""

from __future__ import annotations

import argparse
import linecache
import os
import random
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

os.environ.setdefault("SPORAX_NO_CACHE", "1")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true"
    ).strip()

import numpy as np
from random_networks import Case, draw_case, is_valid, smaller, text

import sporax.mindspore as ms
from sporax.base.errors import SporaxError
from sporax.ir.config.parallel_config import ParallelMode
from sporax.mindspore import context
from sporax.mindspore.context import reset_offload_context
from sporax.planner import PlanRequest, PlanResult, make_plan
from sporax.planner.cost.chosen_model import link_costs
from sporax.planner.known_plans import known_inputs
from sporax.planner.plan_check import check_plan
from sporax.runtime.planned import step_passes
from sporax.runtime.planned.step import PlannedStep

_TOLERANCE = 2e-3
"""Of the largest value of an array: sums are added in another order."""
_MOST_ATTEMPTS = 250
"""Programs that are tried to make one failure smaller."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What was found.

    Attributes:
        key: what is equal for one defect: kind, type and place.
        message: for people.
    """

    key: tuple[str, ...]
    message: str


class Refused(Exception):
    """The case is no finding: it was refused in our words, and such an answer is fair; or one device cannot run it."""


@contextmanager
def settings_of(case: Case) -> Iterator[None]:
    """Settings are those of the case inside, and untouched afterwards."""
    before = dict(os.environ)
    context.reset_auto_parallel_context()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        context.reset_auto_parallel_context()
        reset_offload_context()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ms.set_context(memory_offload="OFF")


def _program(case: Case) -> dict[str, Any]:
    source = text(case)
    # Python's control flow is rewritten from source, which is looked up under the file's name.
    name = f"<random network {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": name}
    exec(compile(source, name, "exec"), names)
    return names


def _arrays(results: object) -> list[np.ndarray]:
    if isinstance(results, list | tuple):
        return [array for result in results for array in _arrays(result)]
    return [results.asnumpy().astype(np.float64)]  # type: ignore[attr-defined]


def _results(case: Case) -> list[np.ndarray]:
    """What the program of a case gives."""
    with settings_of(case):
        return _arrays(_program(case)["run"]())


def _alone(case: Case) -> list[np.ndarray]:
    """Results on one device."""
    try:
        return _results(replace(case, context=(), environment=(), recompute=(), stages=1))
    except Exception as error:
        raise Refused(f"one device: {type(error).__name__}: {error}") from error


def tried(case: Case, runs: bool) -> Failure | None:
    """Plan a case, trace its program and, where it `runs`, compare it with one device.

    Raises:
        Refused: an error of ours that is no finding.
    """
    expected = _alone(case) if runs else None
    with settings_of(case):
        try:
            names = _program(case)
            planned = names["step"].program.plan(*names["inputs"])
            if isinstance(planned, PlannedStep):
                check_plan(planned.graph, planned.plan)
                planned.jitted.trace(*planned.structs())
                str(planned.summary())
                names["step"].program.memory(*names["inputs"])
            results = _arrays(names["run"]()) if runs else None
        except SporaxError as error:
            inner = error.__cause__
            if type(error).__name__ == "SporaxDefectError" and inner is not None:
                return _crash(inner)
            if case.may_be_refused:
                raise Refused(str(error)) from error
            return Failure(("refused", type(error).__name__, str(error)[:40]), str(error))
        except Exception as error:
            return _crash(error)
    return _different(expected, results) if expected is not None and results is not None else None


SEARCHES = ("dynamic_programming", "sharding_propagation", "recursive_programming", "ilp", "repeated_blocks")
_SLOWER = 1.0001
"""Share of the time of a known plan above which a search has lost to it."""


def beaten(case: Case, hardware: str) -> Failure | None:
    """Whether a search loses to what was there: of a case with strategies to these, without them to what everyone knows.

    All searches are compared with each other, too: none may be below what another one has proven to be the least.

    Raises:
        Refused: the strategies do not fit the case.
    """
    free = replace(case, values=tuple(replace(value, strategy="") for value in case.values))
    try:
        return _beaten(requested(case, hardware), False) or _beaten(requested(free, hardware), True)
    except SporaxError as error:
        raise Refused(str(error)) from error


def requested(case: Case, hardware: str) -> PlanRequest:
    """The request to the planner for a step in automatic parallelism; its program is traced, and nothing is searched."""
    collected: list[PlanRequest] = []

    def by_hand(request: PlanRequest, measure: object = None) -> PlanResult:
        collected.append(request)
        return make_plan(_in_mode(request, ""))

    lines = (re.sub(r", search_mode='\w+'|search_mode='\w+', ", "", line) for line in case.context)
    lines = (re.sub(r"parallel_mode='\w+'", "parallel_mode='auto_parallel'", line) for line in lines)
    case = replace(case, context=tuple(lines), environment=(("SPORAX_HARDWARE", hardware),), stages=1)
    with settings_of(case), patch.object(step_passes, "agreed_plan", by_hand):
        program = _program(case)
        program["step"].program.plan(*program["inputs"])
    return collected[-1]


def _in_mode(request: PlanRequest, search: str) -> PlanRequest:
    """The request in one search, or, without its name, by strategies and placements alone."""
    parallel = request.settings.parallel
    mode = ParallelMode.AUTO_PARALLEL if search else ParallelMode.SEMI_AUTO_PARALLEL
    parallel = replace(parallel, parallel_mode=mode, search_mode=search or parallel.search_mode)
    return replace(request, settings=replace(request.settings, parallel=parallel))


def _beaten(request: PlanRequest, known: bool) -> Failure | None:
    """Whether a search is slower than the plan by strategies alone, than well-known placements, or below another one's bound."""
    plans = {"the script's own plan": make_plan(_in_mode(request, "")).predicted}
    for name, inputs in (
        known_inputs(request.graph, request.mesh, link_costs(request.profile, request.mesh)) if known else ()
    ):
        with suppress(SporaxError):  # a placement that the program's own layouts contradict
            by_hand = replace(_in_mode(request, ""), placements={**inputs, **request.placements})
            plans[name] = make_plan(by_hand).predicted
    found = {search: make_plan(_in_mode(request, search)) for search in SEARCHES}
    best = min(plans, key=plans.__getitem__)
    for search, result in found.items():
        if result.predicted > _SLOWER * plans[best]:
            return Failure(("slower", search), f"{search} takes {result.predicted:.4g} s, {best} {plans[best]:.4g} s")
        if abs(result.predicted - result.search.cost_seconds) > 1e-6 * result.predicted:
            return Failure(
                ("cost", search), f"{search} says {result.search.cost_seconds:.4g} s of {result.predicted:.4g} s"
            )
    quickest = min(found, key=lambda search: found[search].predicted)
    for search, result in found.items():
        bound = result.search.bound_seconds
        # Recursive programming leaves strategies out, and so searches among other plans.
        same = known or "recursive_programming" not in (search, quickest)
        if same and bound is not None and found[quickest].predicted < bound * (1 - 1e-6):
            message = f"{search} proves {bound:.6g} s, {quickest} takes {found[quickest].predicted:.6g} s"
            return Failure(("bound", search), message)
    return None


def _crash(error: BaseException) -> Failure:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "sporax" in frame.filename]
    places = [f"{frame.filename.split('sporax/')[-1]}:{frame.name}" for frame in frames[-2:]]
    reported = "".join(traceback.format_exception(error)[-12:])
    return Failure(("crash", type(error).__name__, *places), reported)


def _different(expected: list[np.ndarray], results: list[np.ndarray]) -> Failure | None:
    for place, (alone, here) in enumerate(zip(expected, results, strict=True)):
        if alone.shape != here.shape:
            return Failure(("shape",), f"result {place} must have the shape {alone.shape}, but got {here.shape}")
        largest = max(float(np.nanmax(np.abs(alone), initial=0.0, where=np.isfinite(alone))), 1e-3)
        if not np.allclose(alone, here, rtol=_TOLERANCE, atol=_TOLERANCE * largest, equal_nan=True):
            worst = float(np.nanmax(np.abs(alone - here)))
            return Failure(("numbers",), f"result {place} differs by {worst:.3g} of {largest:.3g} from one device")
    return None


def shrunk(case: Case, failure: Failure, runs: bool) -> Case:
    """The smallest case that fails in the same way."""
    attempts = 0
    seen = {text(case)}
    progress = True
    while progress and attempts < _MOST_ATTEMPTS:
        progress = False
        for candidate in smaller(case):
            if not is_valid(candidate) or attempts >= _MOST_ATTEMPTS or text(candidate) in seen:
                continue
            seen.add(text(candidate))
            attempts += 1
            if _fails_alike(candidate, failure, runs):
                case, progress = candidate, True
                break
    return case


def _fails_alike(case: Case, failure: Failure, runs: bool) -> bool:
    try:
        found = tried(case, runs)
    except Refused:
        return False
    return found is not None and found.key == failure.key


def case_of(seed: int | str, number: int, longest: int, pipelines: float) -> Case:
    """The case of this number."""
    return draw_case(random.Random(f"{seed} {number}"), longest, pipelines)


def main(words: list[str] | None = None) -> int:
    """Run the cases and print what was found; 1 where something was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other cases (0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (0)")
    parser.add_argument("--cases", type=int, default=300, help="how many (300)")
    parser.add_argument(
        "--run", type=float, default=0.3, help="share of the cases that are compiled and compared (0.3)"
    )
    parser.add_argument("--longest", type=int, default=7, help="most lines of a network (7)")
    parser.add_argument("--pipelines", type=float, default=0.1, help="share of pipelines (0.1)")
    parser.add_argument(
        "--searches", metavar="PROFILE", help="compare searches with strategies by hand on such devices"
    )
    parser.add_argument("--show", action="store_true", help="print the programs instead of running them")
    parser.add_argument("--no-shrink", action="store_true", help="print what fails as it was drawn")
    arguments = parser.parse_args(words)
    found: dict[tuple[str, ...], list[int]] = {}
    counts: Counter[str] = Counter()
    for number in range(arguments.first, arguments.first + arguments.cases):
        case = case_of(arguments.seed, number, arguments.longest, arguments.pipelines)
        runs = random.Random(f"run {arguments.seed} {number}").random() < arguments.run
        if arguments.show:
            print(text(case))
            continue
        started = time.monotonic()
        if arguments.searches and not any(value.strategy for value in case.values):
            continue
        try:
            failure = beaten(case, arguments.searches) if arguments.searches else tried(case, runs)
        except Refused as refusal:
            counts["one device cannot" if str(refusal).startswith("one device") else "refused"] += 1
            if os.environ.get("FUZZ_REFUSED"):
                print(number, str(refusal)[:300])
            continue
        if time.monotonic() - started > 10:
            print(f"case {number} took {time.monotonic() - started:.0f} s", flush=True)
        counts["compared" if arguments.searches else "run" if runs else "planned"] += 1
        if failure is None:
            continue
        counts["failed"] += 1
        known = failure.key in found
        found.setdefault(failure.key, []).append(number)
        if not known:
            small = case if arguments.no_shrink or arguments.searches else shrunk(case, failure, runs)
            print(
                f"==== case {number} {failure.key}\n{failure.message}\n---- the smallest program:\n{text(small)}",
                flush=True,
            )
    for key, numbers in found.items():
        print(f"{len(numbers)} x {key}: {numbers[:10]}")
    print(dict(counts))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
