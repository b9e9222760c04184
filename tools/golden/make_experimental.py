"""Record what MindSpore gives for the recipes of `tests/mindspore/experimental/optim_recipes.py`.

Run it with a Python that has MindSpore 2.10 (CPU) and numpy, and nothing of this project:

    python tools/golden/make_experimental.py
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests" / "mindspore"
sys.path[:0] = [str(TESTS / "experimental"), str(TESTS / "golden")]

import optim_recipes as recipes
import optimizer_recipes

import mindspore as ms


def rounded(values: Any) -> Any:
    """The same with eight digits."""
    if isinstance(values, dict):
        return {name: rounded(value) for name, value in values.items()}
    return [rounded(value) for value in values] if isinstance(values, list) else float(f"{values:.8g}")


def main() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    with contextlib.suppress(SystemError):  # the first product of a process fails in this wheel
        ms.Tensor([1.0]) * ms.Tensor([1.0])
    optimizers = {
        name: recipes.train(ms, code, optimizer_recipes.start(), optimizer_recipes.gradients)
        for name, code in recipes.OPTIMIZERS.items()
    }
    schedules = {name: recipes.rates(ms, code, (None,) * 12) for name, code in recipes.SCHEDULES.items()}
    at_epochs = {name: recipes.rates(ms, code, recipes.EPOCHS) for name, code in recipes.AT_EPOCHS.items()}
    plateaus = {name: recipes.rates(ms, code, recipes.METRICS) for name, code in recipes.PLATEAUS.items()}
    kinds = {"optimizers": optimizers, "schedules": schedules, "at_epochs": at_epochs, "plateaus": plateaus}
    parts = []
    for kind, rows in kinds.items():
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(rounded(row))}" for name, row in rows.items())
        parts.append(f'  "{kind}": {{\n{lines}\n  }}')
    path = TESTS / "experimental" / "recorded.json"
    path.write_text(f'{{"mindspore": "{ms.__version__}",\n' + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
