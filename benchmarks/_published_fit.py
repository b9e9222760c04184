"""Constants of the time model, fitted to published runs: few that all share, and factors per chip that are pulled to 1.

Residuals are logarithms of predicted to published seconds over 5 %, with a loss that is linear for outliers. A chip's factors
(products, attention, memory, links) count as residuals of their logarithm over 12 %: a chip with one row hardly moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from _published_table import Run
from _published_time import Rates, Work, seconds_of, stacked
from numpy.typing import NDArray
from scipy.optimize import least_squares

_START = {
    "compute": 0.72,
    "attention": 0.9,
    "memory": 0.6,
    "link": 0.6,
    "weights": 0.5,
    "gradients": 0.5,
    "asynchronous": 0.43,
    "kernels": 90.0,
}
_SHARED = tuple(_START)
_BY_CHIP = ("compute", "attention", "memory", "link")
_SPREAD = 0.12
_NOISE = 0.05


@dataclass(frozen=True, slots=True)
class Constants:
    """What was fitted.

    Attributes:
        shared: by name of a field of `Rates`.
        chips: factors by chip and name; 1 for a chip that is not there.
    """

    shared: dict[str, float]
    chips: dict[str, dict[str, float]]

    def rates(self, runs: Sequence[Run]) -> Rates:
        """Rates of each run, as arrays."""
        values = {name: np.full(len(runs), value) for name, value in self.shared.items()}
        for name in _BY_CHIP:
            values[name] = values[name] * [self.chips.get(run.profile.name, {}).get(name, 1.0) for run in runs]
            values[name] = np.minimum(values[name], 1.0)
        return Rates(**values)

    def seconds(self, runs: Sequence[Run], works: Sequence[Work]) -> NDArray[np.float64]:
        """Predicted seconds of a step of each run."""
        return seconds_of(stacked(works), self.rates(runs))


def published_seconds(run: Run) -> float:
    """Seconds of a step as published: from tokens per second, which more rows have."""
    return run.batch * run.seq / run.tokens_per_second / run.devices


def fit(runs: Sequence[Run], works: Sequence[Work], near: Constants | None = None) -> Constants:
    """Constants of the runs of which everything is known."""
    chips = sorted({run.profile.name for run in runs})
    index = np.array([chips.index(run.profile.name) for run in runs], int)
    target, work = np.log([published_seconds(run) for run in runs]), stacked(works)
    start = np.log([*_START.values()])

    def rates(x: NDArray[np.float64]) -> Rates:
        shared = dict(zip(_SHARED, np.exp(x[: len(_SHARED)]), strict=True))
        factors = np.exp(x[len(_SHARED) :]).reshape(len(chips), len(_BY_CHIP))
        return Rates(
            **{**shared, **{name: shared[name] * factors[index, place] for place, name in enumerate(_BY_CHIP)}}
        )

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        off = (np.log(seconds_of(work, rates(x))) - target) / _NOISE
        robust = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
        return np.concatenate([robust, x[len(_SHARED) :] / _SPREAD, (x[: len(_SHARED)] - start) / 0.5])

    upper = [*np.log([1.0] * (len(_SHARED) - 1)), np.log(1e3), *[1.0] * (len(chips) * len(_BY_CHIP))]
    first = [*start, *[0.0] * (len(chips) * len(_BY_CHIP))]
    if near is not None:
        first = [
            *np.log([*near.shared.values()]),
            *(np.log(near.chips[chip][name]) for chip in chips for name in _BY_CHIP),
        ]
    found = least_squares(
        residuals, np.minimum(first, np.array(upper) - 1e-6), bounds=(-12.0, upper), xtol=1e-4, ftol=1e-5
    ).x
    factors = np.exp(found[len(_SHARED) :]).reshape(len(chips), len(_BY_CHIP))
    return Constants(
        dict(zip(_SHARED, np.exp(found[: len(_SHARED)]).tolist(), strict=True)),
        {chip: dict(zip(_BY_CHIP, factors[place].tolist(), strict=True)) for place, chip in enumerate(chips)},
    )


def left_out(runs: Sequence[Run], works: Sequence[Work], keys: Sequence[str]) -> NDArray[np.float64]:
    """Predicted seconds of each run with the constants of all runs that differ in one of `keys` at least."""

    def key(run: Run) -> tuple[str, ...]:
        values = {"chip": run.profile.name, "software": run.software.name, "model": run.row["model"]}
        return tuple(values[name] for name in keys)

    groups: dict[tuple[str, ...], list[int]] = {}
    for place, run in enumerate(runs):
        groups.setdefault(key(run), []).append(place)
    seconds, sure = np.zeros(len(runs)), [place for place, run in enumerate(runs) if run.is_sure and run.is_dense]
    # Where the search starts; where it ends depends on the rest alone.
    near = fit([runs[place] for place in sure], [works[place] for place in sure])
    for places in groups.values():
        rest = [place for place in sure if place not in places]
        constants = fit([runs[place] for place in rest], [works[place] for place in rest], near)
        seconds[places] = constants.seconds([runs[place] for place in places], [works[place] for place in places])
    return seconds
