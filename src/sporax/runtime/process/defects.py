"""Internal errors of planning and lowering, reported in words that help whoever meets them.

Problem: a `KeyError` from inside the planner says nothing to a user: not that the program is correct, not which operator was
looked at, and not how to go on.

Method: what is ours alone (everything after the user's function was traced) runs inside `report_internal_errors`. An exception
that is neither an error of ours nor one of the machine (files, memory, XLA) becomes a `SporaxDefectError` with the exception as
its cause. The operator is the one that the innermost function held when it failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import jax

from sporax.base.errors import SporaxDefectError, SporaxError
from sporax.ir.config.parallel_config import ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.config.search_config import SEARCH_MODES
from sporax.ir.graph import Operator

_PACKAGE = Path(__file__).parents[2]
_OF_THE_MACHINE = (OSError, MemoryError, jax.errors.JaxRuntimeError)
"""What fails for reasons outside of the program: files, memory, and the compiler with the devices behind it."""


@contextmanager
def report_internal_errors(activity: str, name: str, settings: PlanSettings | None = None) -> Iterator[None]:
    """Turn exceptions that only a defect of Sporax can cause into one that says so.

    Args:
        activity: what is done inside, "planning".
        settings: the user's; None for plain functions.

    Raises:
        SporaxDefectError: an exception was met inside that is neither ours nor one of the machine; it is the cause.
    """
    try:
        yield
    except (SporaxError, *_OF_THE_MACHINE):
        raise
    except Exception as error:
        raise SporaxDefectError(_message(activity, name, settings, error)) from error


def _message(activity: str, name: str, settings: PlanSettings | None, error: Exception) -> str:
    operator = _operator(error.__traceback__)
    at = f", at the operator '{operator.name}'{f' of {operator.path!r}' if operator.path else ''}" if operator else ""
    return (
        f"For '{name}', {activity} the step{_under(settings)} failed inside of Sporax{at}: {type(error).__name__}: {error} "
        f"({_place(error)}). This is a defect of Sporax and not of your program; no value was changed. "
        f"{_way_out(settings)} Please report it with the exception above, which is the cause."
    )


def _under(settings: PlanSettings | None) -> str:
    if settings is None:
        return ""
    parallel = settings.parallel
    facts = [f"{parallel.device_num} devices"]
    if parallel.parallel_mode == ParallelMode.AUTO_PARALLEL:
        facts.append(f"search_mode '{parallel.search_mode}'")
    if parallel.pipeline_stages > 1:
        facts.append(f"{parallel.pipeline_stages} pipeline stages")
    return f" in '{parallel.parallel_mode}' ({', '.join(facts)})"


def _way_out(settings: PlanSettings | None) -> str:
    """What may be set instead, so that the work can go on."""
    if settings is None:
        return "To go on, try another 'mode'."
    mode, used = settings.parallel.parallel_mode, settings.parallel.search_mode
    if mode == ParallelMode.AUTO_PARALLEL:
        others = " or ".join(f"'{search}'" for search in SEARCH_MODES if search != used)
        return f"To go on, set 'search_mode' to {others}, or 'parallel_mode' to 'semi_auto_parallel'."
    return (
        "To go on, leave out the strategy of the operator that is named, if it has one, or set 'parallel_mode' to "
        "'auto_parallel'."
    )


def _place(error: Exception) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    last = frames[-1]
    return f"{Path(last.filename).relative_to(_PACKAGE)}, line {last.lineno}"


def _operator(trace: TracebackType | None) -> Operator | None:
    """The operator that the innermost function held."""
    # Functions of the planner hand operators from one to the next, so the frames know more than the exception does.
    found = None
    for frame, _ in traceback.walk_tb(trace):
        for value in frame.f_locals.values():
            if isinstance(value, Operator):
                found = value
    return found
