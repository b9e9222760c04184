# ruff: noqa: E501 -- rows of tables and sentences of a page
"""The page of predicted runs, `docs/validation.md`, and its picture."""

from __future__ import annotations

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from _published_fit import published_seconds
from _published_table import NARROW, Run
from _published_time import parts_of, rates_of

if TYPE_CHECKING:
    from published_runs import Prediction

_COLOURS = (
    "#1b6ca8",
    "#d1495b",
    "#2e933c",
    "#edae49",
    "#66508c",
    "#00798c",
    "#8d5524",
    "#444444",
    "#c45ab3",
    "#7a9e2e",
    "#e07a5f",
    "#3d5a80",
    "#999999",
)


def statistics(off: Sequence[float]) -> str:
    """Cells of a table: rows, median, 90th percentile, share within 10 %."""
    values = np.abs([value for value in off if math.isfinite(value)])
    return (
        f"{len(values)} | {np.median(values):.1%} | {np.quantile(values, 0.9):.1%} | {np.mean(values <= 0.1):.0%}"
        if len(values)
        else "0 | | |"
    )


def flops(run: Run) -> float:
    """Floating-point operations of a step without recomputation, and of its bubble; attention in half."""
    decoder = run.decoder
    moe = decoder.moe_layers
    wide = (decoder.layers - moe) * decoder.ffn_weights(True) + (moe and moe * decoder.ffn_weights(False))
    weights = decoder.layers * sum(decoder.attention_weights.values()) + wide + decoder.vocab * decoder.hidden
    attention = decoder.layers * run.seq * decoder.heads * (decoder.head_dim + decoder.value_dim) / 2
    return 6 * run.batch * run.seq * (weights + attention) * (1 + (run.pp - 1) / run.vp / run.num_micro)


def null_errors(runs: Sequence[Run]) -> list[float]:
    """Errors of one constant per chip and precision, from rows that differ in chip, software or model."""

    def key(run: Run) -> tuple[str, str, str]:
        return run.profile.name, run.software.name, run.row["model"]

    rates = {run.number: flops(run) / published_seconds(run) / run.devices for run in runs}
    errors = []
    for run in runs:
        others = [
            rates[other.number]
            for other in runs
            if (other.profile.name, other.precision) == (run.profile.name, run.precision) and key(other) != key(run)
        ]
        if others:
            errors.append(float(np.median(others)) / rates[run.number] - 1)
    return errors


def picture(predictions: Sequence[Prediction]) -> str:
    """Predicted against published tokens per second and device, one colour a chip, both axes logarithmic."""
    low, high, size, left = 50.0, 2e4, 520, 60

    def place(value: float) -> float:
        return size * math.log(value / low) / math.log(high / low)

    chips = [chip for chip, _ in Counter(entry.run.row["chip"] for entry in predictions).most_common()]
    marks = []
    for entry in predictions:
        x, y = (
            place(min(max(entry.run.tokens_per_second, low), high)),
            place(min(max(entry.tokens_per_second, low), high)),
        )
        colour = _COLOURS[chips.index(entry.run.row["chip"]) % len(_COLOURS)]
        fill = colour if entry.run.is_sure and entry.run.is_dense else "none"
        title = f"row {entry.run.number}: {entry.run.row['model']}, {entry.run.devices} x {entry.run.row['chip']}, {entry.error:+.0%}"
        marks.append(
            f'<circle cx="{left + x:.1f}" cy="{size + 20 - y:.1f}" r="4" fill="{fill}" stroke="{colour}"><title>{title}</title></circle>'
        )
    lines = []
    for shift, dash in (
        (0.0, ""),
        (math.log(1.1), ' stroke-dasharray="4 4"'),
        (-math.log(1.1), ' stroke-dasharray="4 4"'),
    ):
        off = size * shift / math.log(high / low)
        lines.append(
            f'<line x1="{left}" y1="{size + 20 - off:.1f}" x2="{left + size}" y2="{20 - off:.1f}" stroke="#888"{dash}/>'
        )
    ticks = [
        f'<text x="{left + place(value):.0f}" y="{size + 40}" text-anchor="middle">{value:,}</text><text x="{left - 6}" y="{size + 24 - place(value):.0f}" text-anchor="end">{value:,}</text>'
        for value in (100, 300, 1000, 3000, 10000)
    ]
    legend = [
        f'<circle cx="{left + size + 24}" cy="{30 + 20 * number}" r="4" fill="{_COLOURS[number % len(_COLOURS)]}"/><text x="{left + size + 34}" y="{34 + 20 * number}">{chip}</text>'
        for number, chip in enumerate(chips)
    ]
    labels = [
        f'<text x="{left + size / 2}" y="{size + 62}" text-anchor="middle">published tokens per second and device</text>',
        f'<text transform="translate(14 {size / 2 + 20}) rotate(-90)" text-anchor="middle">predicted</text>',
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + size + 150}" height="{size + 75}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<rect x="{left}" y="20" width="{size}" height="{size}" fill="none" stroke="#444"/>',
        *lines, *marks, *ticks, *legend, *labels, "</svg>", "",
    ])  # fmt: skip


def plan_text(run: Run) -> str:
    """Degrees of data, tensor, pipeline (with chunks), context and expert parallelism; ZeRO behind a slash."""
    stages = f"{run.pp}({run.vp})" if run.vp > 1 else f"{run.pp}"
    return f"{run.dp}·{run.tp}·{stages}·{run.cp}·{run.ep}/{run.zero}"


def _rows(predictions: Sequence[Prediction], sources: Mapping[str, int], left: Mapping[int, Prediction]) -> list[str]:
    lines = [
        "| row | model | devices | seq | plan | published | predicted | off | left out | GB | |",
        "|" + "---|" * 11,
    ]
    for entry in predictions:
        run = entry.run
        held = left.get(run.number)
        mark = "" if run.is_sure else "?" if run.unsure else "U"
        lines.append(
            f"| {run.number} | {run.row['model']} | {run.devices}·{run.row['chip']} | {run.seq} | {plan_text(run)}{' ' + run.precision if run.precision in NARROW else ''} | "
            f"{run.tokens_per_second:,.0f} | {entry.tokens_per_second:,.0f} | {entry.error:+.0%} | {'' if held is None else f'{held.error:+.0%}'} | "
            f"{max(entry.peaks) / 1e9:.0f} | {mark} [{sources[run.row['source']]}] |"
        )
    return lines


def peak_lines(folder: Path, predictions: Sequence[Prediction]) -> tuple[list[str], list[float]]:
    """Printed peaks beside predicted ones; rows are those of the same folder."""
    by_row = {entry.run.number: entry for entry in predictions}
    lines, errors = ["| row | stage | printed | predicted | off |", "|---|---|---|---|---|"], []
    path = folder / "peaks.csv"
    for row in csv.DictReader(path.open()) if path.exists() else ():
        entry, printed = by_row.get(int(row["row"])), float(row["peak_bytes"])
        if entry is not None:
            predicted = entry.peaks[int(row["stage"])] if row["stage"] else max(entry.peaks)
            errors.append(predicted / printed - 1)
            lines.append(
                f"| {row['row']} | {row['stage']} | {printed / 1e9:.1f} GB | {predicted / 1e9:.1f} GB | {errors[-1]:+.0%} |"
            )
    return lines, errors


def _wrong(compared: Sequence[tuple[Prediction, Prediction]]) -> tuple[int, list[str]]:
    wrong = [
        f"{a.run.number} and {b.run.number}"
        for a, b in compared
        if (a.tokens_per_second > b.tokens_per_second) != (a.run.tokens_per_second > b.run.tokens_per_second)
    ]
    return len(compared) - len(wrong), wrong


def _shares(predictions: Sequence[Prediction]) -> str:
    totals: defaultdict[str, list[float]] = defaultdict(list)
    for entry in predictions:
        parts = {name: float(value) for name, value in parts_of(entry.work, rates_of(entry.run.profile)).items()}
        for name, value in parts.items():
            totals[name].append(value / sum(parts.values()))
    return ", ".join(f"{name} {np.mean(values):.0%}" for name, values in totals.items())


def document(
    path: Path,
    folder: Path,
    predictions: Sequence[Prediction],
    held: Mapping[str, Sequence[Prediction]],
    compared: Sequence[tuple[Prediction, Prediction]],
) -> None:
    """Write the page and its picture.

    Args:
        path: of the page.
        folder: of the table, with its printed peaks.
        predictions: of all rows, with the constants of the profiles.
        held: predictions with rows left out, by what they agreed in.
        compared: pairs of plans.
    """
    sure = [entry for entry in predictions if entry.run.is_sure and entry.run.is_dense]
    unsure = [entry for entry in predictions if entry.run.is_dense and not entry.run.is_sure]
    experts = [entry for entry in predictions if not entry.run.is_dense]
    large = [entry for entry in experts if entry.run.decoder.parameters >= 1e11]
    sources = {
        source: number
        for number, source in enumerate(dict.fromkeys(entry.run.row["source"] for entry in predictions), 1)
    }
    first = next(iter(held))
    right, wrong = _wrong(compared)
    table, peaks = peak_lines(folder, predictions)
    worst = sorted(held[first], key=lambda entry: -abs(entry.error))[:6]
    text = [
        "# Predicted against published", "",
        "Training runs that others have published, and what Sporax's cost model and hardware profiles predict of them without running anything.", "",
        "```bash", "python benchmarks/published_runs.py --runs runs.csv --doc docs/validation.md", "```", "",
        "![predicted against published tokens per second](images/validation.svg)", "",
        "Filled: dense models of which everything is known. Dashed: 10 % off.", "",
        "| tokens per second | rows | median | p90 | within 10 % |", "|---|---|---|---|---|",
        *(f"| {name.replace('+', ' + ')} left out | {statistics([entry.error for entry in entries])} |" for name, entries in held.items()),
        f"| null model, same split as the first | {statistics(null_errors([entry.run for entry in sure]))} |",
        f"| constants of the profiles (fitted to these rows) | {statistics([entry.error for entry in sure])} |",
        f"| something unknown (recomputation, batch) or only recalled | {statistics([entry.error for entry in unsure])} |",
        f"| experts | {statistics([entry.error for entry in experts])} |",
        f"| experts, 100B parameters and more | {statistics([entry.error for entry in large])} |", "",
        "*Left out*: constants are fitted to rows that differ in chip, software or model. The structure of the model was chosen with all rows in sight. Of 147 rows written down later, 98 dense ones of known recomputation are 6.6 % off (median; p90 14.4 %, 74 % within 10 %); 11 were called too large, and none is since losses, optimizers and policies are as in the software. No constant is fitted to a row with experts. Of 172 more rows, all plans on the pages of Megatron-Bridge from 25.09 to 26.08 that are not below, 80 with experts from 100B on were 16.4 % off (p90 44 %) and 61 dense ones, mostly in 4 and 8 bits, 10 % (p90 23 %). What each recipe hides, fuses, clamps and computes again was then read in its source, with these rows in sight: 11.7 % (p90 28 %); DeepSeek-V3 3.8 %, Kimi-K2 9.4 %, Qwen3-235B 11 %, gpt-oss-120B 19 %. "
        "The null model is one constant per chip and precision times FLOPs and bubble. One plan moves between two releases of one software by 5.8 % (median; p90 10 %): no model is below that.", "",
        f"Pairs of plans of one model, machine and software, published 5 % apart or more: {right} of {len(compared)} in the right order" + (f"; wrong are {', '.join(wrong)}." if wrong else "."), "",
        f"No published plan is called too large: {sum(max(entry.peaks) <= entry.run.profile.memory_bytes for entry in predictions)} of {len(predictions)} fit. Where a run does not say what it computes again, "
        "the least that fits is assumed.", "",
        f"A step's seconds, mean of the first group: {_shares(sure)}.", "",
        "## What is off", "",
        *(f"* Row {entry.run.number}, {entry.run.row['model']} on {entry.run.devices} {entry.run.row['chip']}: {entry.error:+.0%} left out." for entry in worst), "",
        "405B over 128 H100 exchanges weights over the network, which is hidden better than modelled. MPT-70B on 64 A100-40 has its memory nearly full. Small experts are bound by the host, which is not modelled; neither is the scatter of biases' gradients on TPUs (gpt-oss). GB300 in 8 bits is faster than its data sheet, the same as GB200's, says. gpt-oss is slower in Megatron-Bridge than predicted, and one release of it takes 1.6 times what the one before took with the same plan. Qwen3-235B with 16 experts on a B300 waits for the host: a layer takes 16.5 ms with one sequence, 17.9 with two (a release later). "
        "L4 is limited by power.", "",
        "## The model", "",
        "Products at a share of their dtype's peak; attention by the kernel's published share, in half where causal, forward and backward as 3.5 forwards; everything else by bytes; "
        "collectives by the rate of a group's members together (`planner/cost/chosen_model.py`); what hides behind computing (`planner/cost/evaluate.py`); the bubble; the update. "
        "Eight constants are shared; those of products, attention, memory and links have a factor per chip that is pulled to 1 (σ = 12 %).", "",
        "## Memory", "", f"Printed peaks: {len(peaks)}, median {np.median(np.abs(peaks)):.1%} off." if peaks else "No printed peaks.", "", *table, "",
        "## All rows", "", "Tokens per second and device. Plan: data · tensor · stages (chunks) · context · expert parallelism / ZeRO. *?*: something is unknown; *U*: recalled, not confirmed. GB: predicted peak.", "",
        *_rows(predictions, sources, {entry.run.number: entry for entry in held[first]}), "",
        "## Sources", "", *(f"{number}. {source}" for source, number in sources.items()), "",
    ]  # fmt: skip
    path.write_text("\n".join(text))
    images = path.parent / "images"
    images.mkdir(exist_ok=True)
    (images / "validation.svg").write_text(picture(predictions))
