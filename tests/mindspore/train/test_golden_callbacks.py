"""Callbacks are notified, decide, print and save what MindSpore's do (`tools/golden/make_train.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import callback_recipes
import pytest

import sporax.mindspore as ms

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "callbacks.json").read_text())["callbacks"]
THROUGHPUT = ", N samples/s"  # what TimeMonitor reports here besides


def test_every_recipe_is_recorded() -> None:
    assert GOLDEN.keys() == callback_recipes.RECIPES.keys()


@pytest.mark.parametrize("name", callback_recipes.RECIPES)
def test_callbacks_do_what_mindspores_do(name: str) -> None:
    actual: Any = json.loads(json.dumps(callback_recipes.run(ms, name)))
    if name.startswith("TimeMonitor"):
        assert all(line.endswith(THROUGHPUT) for line in actual)
        actual = [line.removesuffix(THROUGHPUT) for line in actual]
    if name == "History":
        for metric, values in GOLDEN[name]["history"].items():
            assert actual["history"].pop(metric) == pytest.approx(values, rel=1e-6)
        assert actual == {"epoch": GOLDEN[name]["epoch"], "history": {}}
        return
    assert actual == GOLDEN[name]
