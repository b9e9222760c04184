"""Record what the real MindSpore wheel does for every case under `tests/mindspore/golden/cases`.

Run it with a Python that has MindSpore 2.10 (CPU) and numpy 1.26 (the wheel was built against numpy 1), and nothing
of this project:

    python tools/golden/make_facts.py [--topics layers …]

It writes `tests/mindspore/golden/facts.json` and `tests/mindspore/golden/promotion.json`. A case whose outcome only says that
the CPU wheel lacks a kernel, or that it hit an internal error of its own, is recorded as `unsupported` (null in the promotion
table): nothing can be learned from it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(GOLDEN))

import fact_format
import promotion_facts

import mindspore as ms

NO_BEHAVIOUR = (
    "Select CPU operator",
    "Kernel select failed",
    "KernelMod Init Failed",
    "Create kernelmod",
    "Launch kernel failed",
    "unregistered",
    "is not supported on this device",
    "Kernel build failed",
    "Framework Unexpected Exception",
    "Framework Error Message",
    "Unable to cast Python instance",
    "pointer[",
    "Parse Lambda Function Fail",
    "returned a result with an exception set",
)


def record(topic: fact_format.Topic) -> dict[str, Any]:
    """Outcome of every case of a topic, by its text."""
    ms.set_context(mode=ms.GRAPH_MODE if topic.in_graph_mode else ms.PYNATIVE_MODE)
    names = fact_format.namespace(ms, topic.prelude)
    return {case: weed(fact_format.outcome(ms, case, names)) for case in topic.cases}


def weed(outcome: Any) -> Any:
    """`outcome`, or the mark that says it means nothing."""
    message = outcome.get("message", "") if isinstance(outcome, dict) else ""
    return {"unsupported": True} if any(hint in message for hint in NO_BEHAVIOUR) else outcome


def refusal(error: Exception) -> str | None:
    """How the promotion table names an error."""
    return None if any(hint in str(error) for hint in NO_BEHAVIOUR) else fact_format.describe_error(error)["error"]


def dump_table(table: promotion_facts.Table) -> str:
    """JSON with one row of the table a line."""
    parts = []
    for name, rows in table.items():
        lines = ",\n".join(f"    {json.dumps(left)}: {json.dumps(row)}" for left, row in rows.items())
        parts.append(f"  {json.dumps(name)}: {{\n{lines}\n  }}")
    return f'{{"mindspore": {json.dumps(ms.__version__)}, "promotion": {{\n' + ",\n".join(parts) + "\n}}\n"


def dump(facts: dict[str, dict[str, Any]]) -> str:
    """JSON with one fact a line."""
    parts = []
    for topic, cases in facts.items():
        lines = ",\n".join(f"    {json.dumps(case)}: {json.dumps(outcome)}" for case, outcome in cases.items())
        parts.append(f"  {json.dumps(topic)}: {{\n{lines}\n  }}")
    return f'{{"mindspore": {json.dumps(ms.__version__)}, "facts": {{\n' + ",\n".join(parts) + "\n}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the behaviour of MindSpore.")
    parser.add_argument("--directory", type=Path, default=GOLDEN)
    parser.add_argument("--topics", nargs="*", help="record these topics only, and keep the others as they are")
    options = parser.parse_args()
    directory = options.directory
    ms.runtime.launch_blocking()
    wanted = [topic for topic in fact_format.topics() if options.topics is None or topic.name in options.topics]
    facts = {topic.name: record(topic) for topic in wanted}
    kept = {} if options.topics is None else json.loads((directory / "facts.json").read_text())["facts"]
    (directory / "facts.json").write_text(dump(dict(sorted({**kept, **facts}.items()))))
    if options.topics is None:
        (directory / "promotion.json").write_text(dump_table(promotion_facts.table(ms, refusal)))
    for topic, cases in facts.items():
        silent = sum(outcome == {"unsupported": True} for outcome in cases.values())
        print(f"{topic}: {len(cases)} cases, {silent} without behaviour")


if __name__ == "__main__":
    main()
