"""Record how the real MindSpore wheel cuts the nets of `tests/mindspore/golden/operator_recipes.py`.

Run it with a Python that has MindSpore 2.10 (CPU) and numpy, and nothing of this project:

    python tools/golden/make_operator_plans.py [NAME…]

With names, only these recipes are planned and printed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import _oracle  # first: it sets what MindSpore reads when it is imported
import numpy as np

import mindspore as ms

GOLDEN = Path(__file__).parents[2] / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(GOLDEN))

import operator_recipes as recipes

OUTPUT = GOLDEN / "operator_plans.json"


def plan(name: str) -> dict[str, Any]:
    """Of one recipe: the training step, and of the collectives those of the forward pass alone."""
    recipe = recipes.RECIPES.get(name) or recipes.REFUSED[name]
    data = ms.Tensor(np.zeros(recipe.shape, recipe.dtype))
    settings = {"device_num": recipes.NUM_DEVICES, "global_rank": 0, "parallel_mode": "semi_auto_parallel"}
    _oracle.start(**settings, **recipe.settings)
    step = _oracle.compile_net(recipes.step_of(ms, recipe), (data,), train=True)
    if "error" in step:
        return step
    _oracle.start(**settings, **recipe.settings)
    forward = _oracle.compile_net(recipes.net_of(ms, recipe), (data,), train=False)
    weights = [each for each in step["collectives"] if each["fusion"]]
    moved = [each for each in step["collectives"] if not each["fusion"]]
    ahead = [each for each in forward["collectives"] if not each["fusion"]]
    return {
        "strategies": step["strategies"],
        "layouts": {
            key: {name: value[name] for name in ("matrix", "map", "slice")}
            for key, value in step["layouts"].items()
            if key.startswith("links")
        },
        "forward": list(map(_brief, ahead)),
        "backward": list(map(_brief, _without(moved, ahead))),
        "weights": list(map(_brief, weights)),
    }


def _without(members: list[Any], others: list[Any]) -> list[Any]:
    left = list(members)
    for each in others:
        if each in left:
            left.remove(each)
    return left


def _brief(collective: dict[str, Any]) -> list[Any]:
    return [collective["kind"], collective["ranks"], collective["result"]]


def main() -> None:
    chosen = sys.argv[1:] or [*recipes.RECIPES, *recipes.REFUSED]
    plans = {name: plan(name) for name in chosen}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in plans.items())
    text = f'{{"mindspore": {json.dumps(ms.__version__)}, "plans": {{\n{lines}\n}}}}\n'
    if sys.argv[1:]:
        print(text)
    else:
        OUTPUT.write_text(text)


if __name__ == "__main__":
    main()
