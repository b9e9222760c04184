"""Record what the real MindSpore wheel gives for every operator case under `tests/mindspore/ops/cases`.

Run it with a Python that has MindSpore 2.10 (CPU) and numpy 1.26 (the wheel was built against numpy 1), and nothing
of this project:

    python tools/golden/make_operator_values.py

It writes `tests/mindspore/ops/recorded.json`. Cases for which the CPU wheel lacks a kernel, or in which it fails for a reason
of its own, are marked as `unsupported`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import make_facts  # finds fact_format too
from make_facts import fact_format

import mindspore as ms

CASES = Path(__file__).parents[2] / "tests" / "mindspore" / "ops" / "cases"
#: How the wheel says that it, not the caller, is to blame; on top of what `make_facts` knows.
OWN_FAULTS = ("returned a result with an exception set", "inputs number should be", "must be Tensor but got")


def weed(outcome: Any) -> Any:
    """`outcome`, or the mark that says it means nothing."""
    if isinstance(outcome, dict) and "error" in outcome:
        message = outcome.get("message", "")
        if not message or any(fault in message for fault in OWN_FAULTS):
            return {"unsupported": True}
    return make_facts.weed(outcome)


def record(path: Path) -> dict[str, Any]:
    """Outcome of every case in a file, by its text."""
    topic = fact_format.parse(path.stem, path.read_text())
    names = fact_format.namespace(ms, topic.prelude)
    return {case: weed(fact_format.outcome(ms, case, names)) for case in topic.cases}


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the values of MindSpore's operators.")
    parser.add_argument("--output", type=Path, default=CASES.parent / "recorded.json")
    output = parser.parse_args().output
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.runtime.launch_blocking()
    facts = {path.stem: record(path) for path in sorted(CASES.glob("*.cases"))}
    output.write_text(make_facts.dump(facts))
    for topic, cases in facts.items():
        silent = sum(outcome == {"unsupported": True} for outcome in cases.values())
        print(f"{topic}: {len(cases)} cases, {silent} without behaviour")


if __name__ == "__main__":
    main()
