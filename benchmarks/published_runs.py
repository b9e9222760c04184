"""Published training runs, predicted: tokens per second and peak memory of every row of a table, and how far off they are.

    python benchmarks/published_runs.py --runs runs.csv [--models models.csv] [--json OUT] [--holdout chip|software|model]
    python benchmarks/published_runs.py --runs runs.csv --fit            # constants of the profiles, fitted to the table
    python benchmarks/published_runs.py --runs runs.csv --doc docs/validation.md

A row's model is built as blocks on one device under the published plan; rates, links and overlap are those of the planner's own
cost model and hardware profiles (`_published_time.py`). With ``--holdout`` a row is predicted with constants of the rows that
differ in chip, software or model; several joined with ``+`` leave out rows that agree in all of them. Rows of which
recomputation, batch or chunks are unknown are counted apart, and so are models with experts.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _published_fit import Constants, fit, left_out, published_seconds
from _published_memory import completed, peaks
from _published_report import document
from _published_table import Run, read_models, read_runs
from _published_time import Work, parts_of, rates_of, seconds_of, work_of


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is predicted of a run.

    Attributes:
        run, work: the row, and its step at nominal rates.
        seconds: of a step.
        peaks: bytes of one device, by stage.
    """

    run: Run
    work: Work
    seconds: float
    peaks: tuple[float, ...]

    @property
    def tokens_per_second(self) -> float:
        """Of one device."""
        return self.run.batch * self.run.seq / self.seconds / self.run.devices

    @property
    def error(self) -> float:
        """Of tokens per second, relative."""
        return published_seconds(self.run) / self.seconds - 1 if self.run.tokens_per_second else float("nan")

    def to_json(self) -> dict[str, Any]:
        """As the file of all rows holds it."""
        run = self.run
        parts = {name: float(value) for name, value in parts_of(self.work, rates_of(run.profile)).items()}
        return {
            "row": run.number, "model": run.row["model"], "chip": run.row["chip"], "devices": run.devices,
            "tokens_per_second_per_device": self.tokens_per_second, "published": run.tokens_per_second or None,
            "error": self.error if run.tokens_per_second else None,
            "seconds": self.seconds, "parts": parts, "peak_bytes": int(max(self.peaks)),
            "peak_bytes_by_stage": [int(peak) for peak in self.peaks],
            "fits": max(self.peaks) <= run.profile.memory_bytes, "reason": "", "unsure": run.unsure, "dense": run.is_dense,
        }  # fmt: skip


def predict(runs: Sequence[Run], holdout: str = "") -> list[Prediction]:
    """Predictions with the constants of the profiles, or with those of other rows alone."""
    works = [work_of(run) for run in runs]
    if holdout:
        seconds = left_out(runs, works, holdout.split("+"))
    else:
        seconds = np.array(
            [float(seconds_of(work, rates_of(run.profile))) for run, work in zip(runs, works, strict=True)]
        )
    return [
        Prediction(run, work, float(value), tuple(peaks(run)))
        for run, work, value in zip(runs, works, seconds, strict=True)
    ]


def pairs(predictions: Sequence[Prediction]) -> Iterator[tuple[Prediction, Prediction]]:
    """Two plans of one model, machine and software that are published at least 5 % apart."""
    for first, second in itertools.combinations(predictions, 2):
        one, other = first.run, second.run
        same = [
            (run.row["model"], run.profile.name, run.devices, run.row["source"].split(" ")[0]) for run in (one, other)
        ]
        figures = one.tokens_per_second and other.tokens_per_second
        if figures and same[0] == same[1] and abs(one.tokens_per_second / other.tokens_per_second - 1) >= 0.05:
            yield first, second


def statistics(predictions: Sequence[Prediction]) -> str:
    """Median, 90th percentile and share within 10 % of the errors."""
    off = np.abs([entry.error for entry in predictions if np.isfinite(entry.error)])
    if not len(off):
        return "no rows"
    median, p90 = np.quantile(off, (0.5, 0.9))
    return f"{len(off)} rows: median {median:.1%}, p90 {p90:.1%}, within 10 %: {np.mean(off <= 0.1):.0%}"


def constants_of_profiles(constants: Constants, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Fields of each profile as the fit has them."""
    shared = constants.shared
    hidden = {name: round(shared[name], 3) for name in ("weights", "gradients", "asynchronous")}
    fields = {
        "compute": "compute_efficiency",
        "attention": "attention_efficiency",
        "memory": "memory_efficiency",
        "link": "link_efficiency",
    }
    return {
        name: {"hidden": hidden}
        | {field: round(shared[key] * constants.chips.get(name, {}).get(key, 1.0), 3) for key, field in fields.items()}
        for name in names
    }  # fmt: skip


def main() -> None:
    """Read a table, predict it, and write what is requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="the table of runs")
    parser.add_argument("--models", type=Path, help="shapes of models, besides those of models.csv beside the table")
    parser.add_argument("--json", type=Path, help="write a list with an object for every row")
    parser.add_argument("--holdout", default="", help="chip, software or model, or several of them joined with +")
    parser.add_argument("--fit", action="store_true", help="print constants fitted to the table")
    parser.add_argument("--doc", type=Path, help="write the page of all rows, with its picture in images/")
    options = parser.parse_args()
    if not set(filter(None, options.holdout.split("+"))) <= {"chip", "software", "model"}:
        parser.error(f"--holdout must be of chip, software and model, but got '{options.holdout}'")
    tables = filter(None, (options.runs.parent / "models.csv", options.models))
    rows = read_runs(options.runs, {name: shape for path in tables for name, shape in read_models(path).items()})
    runs = [completed(run) for _, _, run in rows if isinstance(run, Run)]
    if options.fit:
        sure = [run for run in runs if run.is_sure and run.is_dense]
        constants = fit(sure, [work_of(run) for run in sure])
        print(
            json.dumps(
                {"shared": constants.shared, "profiles": constants_of_profiles(constants, sorted(constants.chips))},
                indent=1,
            )
        )
        return
    predictions = predict(runs, options.holdout)
    by_row = {entry.run.number: entry.to_json() for entry in predictions}
    refused = {number: reason for number, _, reason in rows if isinstance(reason, str)}
    nothing = {"tokens_per_second_per_device": None, "peak_bytes": None, "fits": None}
    objects = [by_row.get(number) or {"row": number, **nothing, "reason": refused[number]} for number, _, _ in rows]
    if options.json:
        options.json.write_text(json.dumps(objects, indent=1) + "\n")
    groups = {
        "dense, everything known": [entry for entry in predictions if entry.run.is_dense and entry.run.is_sure],
        "dense, something unknown": [entry for entry in predictions if entry.run.is_dense and not entry.run.is_sure],
        "experts": [entry for entry in predictions if not entry.run.is_dense],
        "experts, 100B and more": [
            entry for entry in predictions if not entry.run.is_dense and entry.run.decoder.parameters >= 1e11
        ],
    }
    for name, entries in groups.items():
        print(f"{name}: {statistics(entries)}")
    compared = [*pairs(predictions)]
    right = sum(
        (a.tokens_per_second > b.tokens_per_second) == (a.run.tokens_per_second > b.run.tokens_per_second)
        for a, b in compared
    )
    print(f"pairs of plans: {right} of {len(compared)} in the right order")
    large = [entry.run.number for entry in predictions if max(entry.peaks) > entry.run.profile.memory_bytes]
    print(
        f"published plans called too large: {len(large)} {large or ''}; rows that cannot be expressed: {len(refused)}"
    )
    for number, reason in refused.items():
        print(f"  row {number}: {reason}")
    if options.doc:
        sure = [run for run in runs if run.is_sure and run.is_dense]
        held = {keys: predict(sure, keys) for keys in ("chip+software+model", "software", "chip")}
        document(options.doc, options.runs.parent, predictions, held, compared)


if __name__ == "__main__":
    main()
