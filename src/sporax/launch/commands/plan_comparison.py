"""`sporax plan --compare h100,h200 --devices 8,64 train.py`: a plan for each kind and number of devices, in one table.

JAX reads the number of devices once, when it starts, so each plan is made by `sporax plan` in a process of its own, which writes
it as JSON. Plans that were saved before are shown and compared in the same way: `sporax plan one.json other.json`.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sporax.base.errors import SporaxValueError
from sporax.report.comparison import comparison_text, read_pipeline, read_plans, read_refused, write_plans
from sporax.report.console import show_plan
from sporax.report.summary import Summary
from sporax.report.view.comparison import ComparedPlan


def show_saved(names: Sequence[str], out: Path | None) -> int:
    """Show a plan from a file; several of them, or a file of several, as one table; returns the exit code.

    Raises:
        SporaxValueError: a file holds no plan, or `out` cannot be written.
    """
    return _show([plan for name in names for plan in read_plans(Path(name))], out)


def compare(
    command: Sequence[str], target: Sequence[str], hardware: Sequence[str], counts: Sequence[int], out: Path | None
) -> int:
    """Make a plan for each kind and number of devices, and show one table; returns the exit code.

    Args:
        command: flags of `sporax plan` that all have.
        target: the script, with its arguments.
        hardware: profiles; () for the one that fits this machine.
        counts: numbers of devices; () for those of this machine.
        out: the table, as a page or as JSON.

    Raises:
        SporaxValueError: `out` is for a pipeline, or cannot be written.
    """
    plans: list[Summary | ComparedPlan] = []
    devices = [["--devices", str(count)] for count in counts] or [[]]
    profiles = [["--hardware", profile] for profile in hardware] or [[]]
    code = 0
    with tempfile.TemporaryDirectory(prefix="sporax-plans-") as folder:
        file = Path(folder, "plan.json")
        for flags in itertools.product(profiles, devices):
            words = [*itertools.chain(*flags), "--json", str(file), *command, *target]
            print(f"sporax plan: {' '.join(itertools.chain(*flags))}", file=sys.stderr)
            file.unlink(missing_ok=True)
            # What the script and the plan print is in none of the tables.
            done = subprocess.run(
                [sys.executable, "-m", "sporax", "plan", *words], stdout=subprocess.DEVNULL, check=False
            )
            refused = read_refused(file, *(value for _, value in flags)) if done.returncode and file.exists() else None
            if done.returncode and refused is None:
                return done.returncode
            code = code or done.returncode
            row = refused or read_pipeline(file)
            plans += read_plans(file) if row is None else [row]
    if out is not None and (
        pipelines := [plan for plan in plans if isinstance(plan, ComparedPlan) and not plan.refused]
    ):
        raise SporaxValueError(
            f"For 'sporax plan', --out together with --compare must be of steps of one stage, but got '{out}' for a "
            f"pipeline ({pipelines[0].title}). Without --out the table is shown."
        )
    # One plan that there is makes a table; where all are refused there is none.
    return _show(plans, out) or (code if all(isinstance(plan, ComparedPlan) and plan.refused for plan in plans) else 0)


def _show(plans: Sequence[Summary | ComparedPlan], out: Path | None) -> int:
    if len(plans) == 1 and isinstance(plans[0], Summary):
        show_plan(plans[0])
    else:
        print(comparison_text(plans))
    if out is not None and any(isinstance(plan, Summary) for plan in plans):
        try:
            write_plans(plans, out)
        except OSError as error:
            raise SporaxValueError(
                f"For 'sporax plan', '{out}' must be a file that can be written, but {error.strerror}."
            ) from None
    return 0
