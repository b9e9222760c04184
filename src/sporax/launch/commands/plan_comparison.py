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
    code = 0
    for profile, count in itertools.product(_flags("--hardware", hardware), _flags("--devices", counts)):
        found = _plan_of([*profile, *count], [*command, *target])
        if isinstance(found, int):
            return found
        plans.append(found[0])
        code = found[1] or code
    made = [plan for plan in plans if isinstance(plan, Summary) or not plan.refused]
    if out is not None and any(isinstance(plan, ComparedPlan) for plan in made):
        raise SporaxValueError(
            f"For 'sporax plan', --out together with --compare must be of steps of one stage, but got '{out}' for a "
            "pipeline. Without --out the table is shown."
        )
    # Where all are refused, the command is.
    return _show(plans, out) or (0 if made else code)


def _flags(name: str, values: Sequence[object]) -> list[list[str]]:
    """A flag with each of its values; without any, none once."""
    return [[name, str(value)] for value in values] or [[]]


def _plan_of(flags: Sequence[str], words: Sequence[str]) -> int | tuple[Summary | ComparedPlan, int]:
    """A plan or why it was refused, with the exit code; the code alone of a script that ended otherwise."""
    print(f"sporax plan: {' '.join(flags)}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="sporax-plans-") as folder:
        file = Path(folder, "plan.json")
        command = [sys.executable, "-m", "sporax", "plan", *flags, "--json", str(file), *words]
        # What the script and the plan print is in none of the tables.
        code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        if not file.exists():
            return code
        return read_refused(file, flags) or read_pipeline(file) or read_plans(file)[0], code


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
