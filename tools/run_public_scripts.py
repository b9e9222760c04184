"""Run public training programs of MindSpore from their own scripts for three steps: on one device, on eight, under the wheel.

    python tools/run_public_scripts.py --sources /tmp/sources --folder /tmp/results [--wheel PYTHON] [--only TEXT] [--write FILE]

`--sources` holds a folder for each checkout that `tools/_public_scripts.py` names; nothing in it is changed. Each run is a
process of its own and starts the script through `tools/_watched_script.py`, which makes it comparable: equal first weights, no
chance.
What counts are the weights after the last step, relative to the largest value of each. `docs/coverage.md` has the table, from
`tools/public_scripts.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from _drawn_scripts import DRAWN
from _public_scripts import PROGRAMS as CHOSEN, Program
from run_model_zoo import NOT_RUN, relative

PROGRAMS = CHOSEN | DRAWN
HERE = Path(__file__).resolve().parent
#: `ulp` is the wheel from first weights that are off by one unit in the last place of what the program computes in.
RUNS = ("wheel", "one", "eight", "ulp")
SECONDS = 900
Outcome = dict[str, Any]


def merged(first: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A configuration with some entries changed, dicts in it entry by entry."""
    inner = {
        key: merged(first[key], value) if isinstance(first.get(key), dict) and isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return first | inner


def prepared(program: Program, run: str, place: Path, options: argparse.Namespace) -> list[str]:
    """The script and its arguments, after data, a changed configuration and settings were written."""
    copies = program.copies if run == "eight" else 1
    data = place.parent / f"data{copies}"
    if not data.exists():
        program.data(data, copies)
    home = options.sources.resolve() / program.source / program.folder
    if program.in_copy:
        home = shutil.copytree(home, place / "program")
        for file in data.iterdir():
            (home / file.name).symlink_to(file)
        text = (home / program.script).read_text()
        for old, new in program.mended.items():
            assert old in text, f"{program.script} has no {old!r} to mend"
            text = text.replace(old, new)
        (home / program.script).write_text(text)
    config = place / "config.yaml"
    values = {"data": str(data), "config": str(config), "home": str(home)}
    if program.config:
        first, *others = yaml.safe_load_all((home / program.config).read_text())
        text = yaml.safe_dump_all(
            [merged(merged(first, program.entries), program.entries_on_eight if run == "eight" else {}), *others],
            sort_keys=False,
        )
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", value)
        config.write_text(text)
    constants = program.constants | (program.constants_on_eight if run == "eight" else {})
    written = json.dumps({"arguments": program.settings, "constants": constants, "results": program.results})
    settings = {"weights": str(place / "weights.npz"), "float32": options.float32, "steps": options.steps}
    settings["ulp"] = ("float32" if options.float32 else program.computes) if run == "ulp" else ""
    settings |= json.loads(written.replace("{data}", str(data)))
    (place / "settings.json").write_text(json.dumps(settings))
    text = f"{program.arguments} {program.on_eight if run == 'eight' else ''}"
    return [str(home / program.script), *text.format(**values).split()]


def run_one(name: str, run: str, options: argparse.Namespace) -> None:
    """One run of a program, whose output, weights and exit code are files of its folder."""
    place = options.folder.resolve() / name / run
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    script = prepared(PROGRAMS[name], run, place, options)
    start = [sys.executable, "-m", "sporax", "run", *(["--local_devices", "8"] if run == "eight" else [])]
    command = [
        *([options.wheel] if run in ("wheel", "ulp") else start),
        str(HERE / "_watched_script.py"),
        str(place / "settings.json"),
        *script,
    ]
    environment = {**os.environ, "GLOG_v": "3", "JAX_PLATFORMS": "cpu", "DEVICE_ID": "0", "PYTHONHASHSEED": "0"}
    if package := PROGRAMS[name].package:
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(options.sources.resolve() / package), environment.get("PYTHONPATH", "")]
        )
    environment.setdefault("RANK_SIZE", "8" if run == "eight" else "1")
    with (place / "output.txt").open("w") as output:
        try:
            code = subprocess.run(
                command,
                cwd=place / "program" if PROGRAMS[name].in_copy else place,
                env=environment,
                stdout=output,
                stderr=output,
                timeout=SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    (place / "code").write_text(str(code))


def weights_of(folder: Path) -> dict[str, np.ndarray]:
    """What a run left, if it ended well."""
    if not (folder / "code").exists() or (folder / "code").read_text() != "0" or not (folder / "weights.npz").exists():
        return {}
    with np.load(folder / "weights.npz") as stored:
        return dict(stored)


def steps(weights: dict[str, np.ndarray]) -> int:
    """How many steps the first optimizer took, or how many numbers an evaluation printed."""
    if "results" in weights:
        return len(weights["results"])
    return int(max((value.reshape(-1)[0] for name, value in weights.items() if "global_step" in name), default=0))


def difference(mine: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float | None:
    """Largest difference of a weight, relative to its largest value; None where weights or steps are others, or not finite."""
    if not steps(mine) or mine.keys() != other.keys() or steps(mine) != steps(other):
        return None
    pairs = [(mine[name].astype(np.float64), other[name].astype(np.float64)) for name in mine]
    largest = np.max([relative(a, b) for a, b in pairs if b.any()])
    return float(f"{largest:.1e}") if np.isfinite(largest) else None


def last_error(folder: Path) -> str:
    """The line that says why a run failed."""
    if not (folder / "code").exists():
        return NOT_RUN
    text = (folder / "output.txt").read_text(errors="replace")
    lines = [line.strip() for line in text.splitlines() if "Error" in line]
    return (lines[-1] if lines else "")[:160].replace(str(folder.parents[1]), "")


def summary(name: str, folder: Path) -> Outcome:
    """Steps and differences of a program."""
    found = {run: weights_of(folder / name / run) for run in RUNS}
    row: Outcome = {run: steps(found[run]) for run in RUNS[:3]}
    row["to one"] = difference(found["eight"], found["one"])
    row["to the wheel"] = difference(found["one"], found["wheel"])
    row["wheel off by one ulp"] = difference(found["ulp"], found["wheel"])
    row["source"] = f"{PROGRAMS[name].source}: {PROGRAMS[name].folder or PROGRAMS[name].script}"
    row["why"] = PROGRAMS[name].why
    row["drawn"] = name in DRAWN
    row |= {f"{run} error": last_error(folder / name / run) for run in RUNS[:3] if not found[run]}
    return row


def wanted(texts: list[str]) -> list[str]:
    """The programs of these names; a text that is no name means those that have it in theirs."""
    return [name for name in PROGRAMS if any(text == name or (text not in PROGRAMS and text in name) for text in texts)]


def main() -> None:
    """Run what is requested, print a line each, and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True, help="folder of the checkouts")
    parser.add_argument("--folder", type=Path, required=True, help="where data, outputs and weights go")
    parser.add_argument(
        "--wheel", help="python of an environment with MindSpore 2.10; without it, its results are read"
    )
    parser.add_argument("--only", default="", help="programs, or texts in their names, separated by commas")
    parser.add_argument("--float32", action="store_true", help="without the float16 that programs choose")
    parser.add_argument("--steps", type=int, default=0, help="end after so many, to see what one step does")
    parser.add_argument("--runs", default=",".join(RUNS), help="of wheel,one,eight,ulp; others are read")
    parser.add_argument(
        "--write", type=Path, help="file for the summary, e.g. tools/public_scripts.json; other rows stay"
    )
    options = parser.parse_args()
    rows = json.loads(options.write.read_text()) if options.write and options.write.exists() else {}
    for name in wanted(options.only.split(",")):
        for run in filter(None, options.runs.split(",")):
            if run not in ("wheel", "ulp") or options.wheel:
                run_one(name, run, options)
        rows[name] = summary(name, options.folder)
        print(name, json.dumps(rows[name]), flush=True)
    if options.write:
        options.write.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
