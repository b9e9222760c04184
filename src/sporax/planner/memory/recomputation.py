"""Which blocks of a network are computed again in the backward pass, chosen under a memory limit.

Problem. Every block may keep all that the backward pass reads, or compute a part of it again, which costs time and saves
memory. The least time within a limit is wanted, and what a choice needs and takes is only known once the step has been planned
with it.

Method. The uniform choices that people make by hand (nothing, the attention of every block, everything, two more) are planned
and costed first. Mixtures come from a knapsack over blocks: the least predicted time that saves at least so many bytes. How
many bytes must be saved is bisected, since not all that a block saves is saved at the peak; each mixture is planned and costed
as a whole. The fastest choice that fits is taken, so it is never predicted to be slower than a uniform one that fits. In
automatic parallelism planning is a search for shardings, which are so chosen together with what is computed again. Searches for
choices that hardly fit would take longest and seldom win, so they give up soon; only where all did is the last one thorough.

Reference: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022; Herrmann et al., Optimal
Checkpointing for Heterogeneous Chains, 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from sporax.base.errors import SporaxRuntimeError
from sporax.base.text_tables import size_text

_STEPS = 400
"""Parts into which the bytes of a knapsack are divided: its table has so many entries per block."""
_MIXTURES = 6
"""Mixtures that are planned: each halves what is unknown of the bytes that must be saved."""


class Level(Enum):
    """How much of a block is computed again, from nothing to everything."""

    NOTHING = "nothing"
    ATTENTION = "attention"
    """Scores, softmax and dropout of attention: Megatron's selective recomputation."""
    POINTWISE = "pointwise operators"
    """All but products."""
    PRODUCTS = "all but products with weights"
    EVERYTHING = "everything"


Levels = tuple[Level, ...]
"""One per block."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What a level of a block saves and costs, on one device.

    Attributes:
        num_bytes: that are not kept, less what is kept in their place.
        seconds: of what runs again.
    """

    num_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class RecomputeOutcome:
    """A step planned with one choice.

    Attributes:
        seconds: predicted time of a step; infinite where no plan fits.
        peak_bytes: predicted memory of one device.
    """

    seconds: float
    peak_bytes: float


@dataclass(frozen=True, slots=True)
class RecomputeDecision:
    """A choice and what it was compared with.

    Attributes:
        levels: one per block.
        limit_bytes: memory of one device.
        trials: all choices that were planned.
    """

    levels: Levels
    limit_bytes: int
    trials: Mapping[Levels, RecomputeOutcome]

    def notes(self, paths: Sequence[str]) -> list[str]:
        """Why it was chosen: what is computed again, and what the uniform choices would need and take.

        Args:
            paths: of the blocks.
        """
        own = self.trials[self.levels]
        parts = []
        for level in Level:
            names = [path for path, taken in zip(paths, self.levels, strict=True) if taken is level]
            if names and level is not Level.NOTHING:
                parts.append(f"{level.value} of {_listed(names)}")
        lines = [
            f"recompute='auto': {'; '.join(parts) or 'nothing'}: {size_text(own.peak_bytes)} of "
            f"{size_text(self.limit_bytes)} and {own.seconds:.4g} s a step are predicted, the least of {len(self.trials)} choices"
        ]
        for level in Level:
            outcome = self.trials.get((level,) * len(self.levels))
            if outcome is not None and self.levels != (level,) * len(self.levels):
                lines.append(f"recompute='auto', of every block {level.value}: {self._report_of(outcome)}")
        return lines

    def _report_of(self, outcome: RecomputeOutcome) -> str:
        if outcome.peak_bytes > self.limit_bytes:
            return f"{size_text(outcome.peak_bytes)} would not fit"
        return f"{size_text(outcome.peak_bytes)} and {outcome.seconds:.4g} s"


def choose(
    savings: Sequence[Mapping[Level, Saving]],
    evaluate: Callable[[Levels, bool], RecomputeOutcome],
    limit_bytes: int,
    layout_is_free: bool = False,
) -> RecomputeDecision:
    """The fastest choice that fits.

    Args:
        savings: what the levels of each block save and cost, as far as they differ from nothing.
        evaluate: plans and costs the step with one level per block; the flag says that a search may give up soon.
        limit_bytes: memory of one device.
        layout_is_free: planning searches for shardings, so a step that computes more may also be faster.

    Raises:
        SporaxRuntimeError: nothing fits, even if everything is computed again.
    """
    trials: dict[Levels, RecomputeOutcome] = {}

    def fits(levels: Levels) -> bool:
        if levels not in trials:
            trials[levels] = evaluate(levels, layout_is_free)
        return trials[levels].peak_bytes <= limit_bytes

    nothing = (Level.NOTHING,) * len(savings)
    # With a search for shardings, computing more again may allow faster shardings, so all uniform choices are tried.
    if fits(nothing) and not layout_is_free:
        return RecomputeDecision(nothing, limit_bytes, trials)
    for level in Level:
        # Levels that no block can have are skipped; a block without the level keeps everything.
        if any(level in block for block in savings):
            fits((level,) * len(savings))
    # Saving as many bytes as the step is too large is the first guess.
    _try_mixtures(savings, fits, trials[nothing].peak_bytes - limit_bytes)
    everything = (Level.EVERYTHING,) * len(savings)
    if layout_is_free and not any(outcome.peak_bytes <= limit_bytes for outcome in trials.values()):
        # Searches gave up soon. One that does not says whether the smallest step has a plan at all.
        trials[everything] = evaluate(everything, False)
    fitting = [levels for levels, outcome in trials.items() if outcome.peak_bytes <= limit_bytes]
    if not fitting:
        least = min(outcome.peak_bytes for outcome in trials.values())
        raise SporaxRuntimeError(
            f"For 'recompute', what is kept must fit the {size_text(limit_bytes)} of a device, but the least that any choice "
            f"for the {len(savings)} blocks of the step needs is {size_text(least)}."
        )
    # Of equally fast choices the smallest.
    best = min(fitting, key=lambda levels: (trials[levels].seconds, trials[levels].peak_bytes))
    return RecomputeDecision(best, limit_bytes, trials)


def _try_mixtures(savings: Sequence[Mapping[Level, Saving]], fits: Callable[[Levels], bool], missing: float) -> None:
    """Plan mixtures that save more and less, around the fewest bytes with which the step fits."""
    most = sum(max((saving.num_bytes for saving in block.values()), default=0.0) for block in savings)
    low, high = 0.0, most
    target = min(max(missing, 0.0), most) or most / 2
    for _ in range(_MIXTURES):
        # The knapsack cannot represent smaller differences.
        if high - low <= most / _STEPS:
            return
        if fits(knapsack(savings, target)):
            high = target
        # Bytes saved by blocks and at the peak differ, hence the measurement and not the knapsack's own bound.
        else:
            low = target
        target = (low + high) / 2


def knapsack(savings: Sequence[Mapping[Level, Saving]], target: float) -> Levels:
    """The least time that saves at least `target` bytes; as much as can be saved where that is less.

    Example:
        >>> knapsack([{Level.EVERYTHING: Saving(8, 2)}, {Level.EVERYTHING: Saving(8, 1)}], 5)
        (<Level.NOTHING: 'nothing'>, <Level.EVERYTHING: 'everything'>)
    """
    most = sum(max((entry.num_bytes for entry in block.values()), default=0.0) for block in savings)
    # Rounding below is safe: a choice saves at least what the table says.
    unit = max(min(target, most) / _STEPS, 1e-9)
    # least[saved] is the least time so far and the choice, for at least `saved` units.
    least: dict[int, tuple[float, Levels]] = {0: (0.0, ())}
    for block in savings:
        after: dict[int, tuple[float, Levels]] = {}
        for saved, (seconds, levels) in least.items():
            for level, saving in {Level.NOTHING: Saving(0, 0), **block}.items():
                # More than enough counts as enough, so the table stays small.
                now = max(min(saved + int(saving.num_bytes / unit + 1e-6), _STEPS), 0)
                cost = seconds + saving.seconds
                if now not in after or cost < after[now][0]:
                    after[now] = cost, (*levels, level)
        least = after
    return least[max(least)][1]


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(paths) if len(paths) <= 3 else f"{len(paths)} blocks ({paths[0]} to {paths[-1]})"
