"""Memory limits that hold for the program that a compiler makes of a plan.

Problem: the plan x of least cost with M(x) <= L, where M(x) is the memory of the compiled plan. The planner knows only its
prediction P(x), and M of the few plans that are compiled.

Method: a search with P(x) <= L_k, beginning with L_0 = L. The plan x_k that it finds is compiled, and the next search has

    L_k+1 = L - (M(x_k) - P(x_k))

M and P are both of the finished plan and of the whole program. Their difference is taken from L and not from L_k, so it counts
once. Where M(x_k) > L, L_k+1 < P(x_k) <= L_k: no plan comes twice. Where the first search finds nothing, but a plan that is
predicted to need little more than L, that plan is compiled as well: the prediction may be too high.

Compiling takes as long as the first step of a training, so only plans near the limit are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sporax.base.errors import SporaxRuntimeError
from sporax.base.text_tables import limit_text
from sporax.planner.result import PlanResult
from sporax.planner.search.limit.limit import PlanTooLargeError

Measure = Callable[[PlanResult], int | None]
"""Compiles a plan: the bytes that it needs on one device, or None where that cannot be known."""

SURE = 0.5
"""Share of the limit up to which a prediction is believed: XLA computes products of half precision in float32 on CPUs, which
takes up to 1.9 times the predicted memory."""
NEAR = 0.15
"""Share of the limit by which a prediction may be above it for the plan to be compiled: three times the usual error."""
_ROUNDS = 4
"""Most plans that are compiled."""


def is_close_to_limit(predicted: int, limit: int) -> bool:
    """Whether the compiled program decides if a plan of so many predicted bytes keeps a limit."""
    return SURE * limit < predicted <= (1 + NEAR) * limit


def within_compiled(
    limit: int, planned: Callable[[int], PlanResult], peak_of: Callable[[PlanResult], int], measure: Measure
) -> PlanResult:
    """The plan that a search finds whose compiled program keeps a limit.

    Args:
        limit: bytes of one device.
        planned: the finished plan of a search that is predicted to need at most so many bytes.
        peak_of: predicted bytes of a finished plan.
        measure: compiles a plan.

    Raises:
        SporaxRuntimeError: nothing fits.
    """
    try:
        first = result = planned(limit)
    except PlanTooLargeError as error:
        return _refused(limit, error, planned, peak_of, measure)
    for number in range(1, _ROUNDS + 1):
        predicted = peak_of(result)
        compiled = measure(result) if is_close_to_limit(predicted, limit) else None
        if compiled is None or compiled <= limit:
            return _as_bounded_by(first, _with_figures(result, predicted, compiled, number))
        reason = _too_large(limit, predicted, compiled)
        if number < _ROUNDS:
            try:
                result = planned(limit - (compiled - predicted))
            except PlanTooLargeError:
                break
    raise reason


def _too_large(limit: int, predicted: int, compiled: int) -> SporaxRuntimeError:
    return SporaxRuntimeError(
        f"For 'memory', a plan must fit into {limit_text(limit)} per device once it is compiled, but the best that was found "
        f"needs {limit_text(compiled)}, where {limit_text(predicted)} were predicted. Optimizer parallel, recomputation or a "
        "smaller batch needs less."
    )


def _refused(
    limit: int,
    error: PlanTooLargeError,
    planned: Callable[[int], PlanResult],
    peak_of: Callable[[PlanResult], int],
    measure: Measure,
) -> PlanResult:
    """The smallest plan, where it is predicted to need more than the limit and its compiled program does not."""
    if not is_close_to_limit(error.needed_bytes, limit):
        raise error
    try:
        result = planned(error.needed_bytes)
    except PlanTooLargeError:
        raise error from None
    compiled = measure(result)
    if compiled is None or compiled > limit:
        raise error
    return _with_figures(result, peak_of(result), compiled, 1)


def _with_figures(result: PlanResult, predicted: int, compiled: int | None, rounds: int) -> PlanResult:
    """The result whose search knows what its compiled plan needs."""
    search = result.search
    if compiled is None or search is None:
        return result
    figures = {"predicted_bytes": predicted, "compiled_bytes": compiled, "compiled_plans": rounds}
    return replace(result, search=replace(search, statistics={**search.statistics, **figures}))


def _as_bounded_by(first: PlanResult, result: PlanResult) -> PlanResult:
    """The result with the lower bound of the first search: later ones looked at fewer plans."""
    search, own = first.search, result.search
    if search is None or own is None or result.plan is first.plan:
        return result
    bound = search.bound_seconds
    return replace(result, search=replace(own, bound_seconds=bound, optimal=own.optimal and own.cost_seconds == bound))
