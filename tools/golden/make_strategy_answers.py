"""Test which strategies of `tests/mindspore/golden/strategy_answers.json` the real MindSpore wheel accepts, and record it.

Run it with a Python that has MindSpore 2.10 (CPU) and numpy, and nothing of this project. A new case is a line in that file:
operator, devices, number of the list of further inputs, strategy, and any answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import _oracle  # first: it sets what MindSpore reads when it is imported

import mindspore as ms

GOLDEN = Path(__file__).parents[2] / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(GOLDEN))

import strategy_recipes as recipes

FILE = GOLDEN / "strategy_answers.json"


def accepted(name: str, devices: int, further: int, strategy: Any) -> bool:
    """Whether the compiler takes a strategy. Errors behind its parallel passes are about nets without a loss."""
    _oracle.start(device_num=devices, global_rank=0, parallel_mode="semi_auto_parallel", full_batch=True)
    net = recipes.net_of(ms, name, further, tuple(map(tuple, strategy)))
    answer = _oracle.compile_net(net, tuple(recipes.inputs_of(ms, name)), train=False)
    return answer.get("error", [""])[0] != "RuntimeError"


def main() -> None:
    """Answer every case again."""
    cases = [case for *case, _ in json.loads(FILE.read_text())["answers"]]
    lines = ",\n".join("  " + json.dumps([*case, accepted(*case)]) for case in cases)
    FILE.write_text(f'{{"mindspore": {json.dumps(ms.__version__)}, "answers": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
