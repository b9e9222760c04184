"""Record ten steps of every optimizer in `tests/mindspore/golden/optimizer_recipes.py` under the real MindSpore wheel.

Run it with a Python that has MindSpore 2.10 (CPU) and numpy, and nothing of this project:

    python tools/golden/make_optimizers.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(GOLDEN))

import optimizer_recipes

import mindspore as ms


def record(name: str) -> list[list[float]]:
    return [[float(f"{value:.8g}") for value in row] for row in optimizer_recipes.run(ms, name)]


def main() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    rows = {name: record(name) for name in optimizer_recipes.RECIPES}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    (GOLDEN / "optimizers.json").write_text(
        f'{{"mindspore": {json.dumps(ms.__version__)}, "parameters": {{\n{lines}\n}}}}\n'
    )


if __name__ == "__main__":
    main()
