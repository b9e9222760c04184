"""The losses of `rank_recipes` on every rank, in both modes, against those of the real MindSpore."""

import json
import sys
from pathlib import Path

import numpy as np

import sporax as ms
from sporax.communication import get_group_size, get_rank, init

GOLDEN = Path(__file__).parents[2] / "golden"
sys.path.insert(0, str(GOLDEN))
import rank_recipes

RELATIVE_ERROR = 1e-4

init()
assert get_group_size() == rank_recipes.NUM_RANKS
curves = json.loads((GOLDEN / "rank_curves.json").read_text())["curves"]
assert curves.keys() == rank_recipes.RANK_RECIPES.keys()
for name, by_rank in curves.items():
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
        ms.set_context(mode=mode)
        losses = rank_recipes.run(ms, name)
        np.testing.assert_allclose(losses, by_rank[get_rank()], rtol=RELATIVE_ERROR, err_msg=f"{name}, mode {mode}")
        difference = np.max(np.abs(np.divide(losses, by_rank[get_rank()]) - 1))
        print(f"{name} in mode {mode}: {difference:.1e}")
print("all is well")
