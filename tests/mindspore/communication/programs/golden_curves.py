"""The losses of `rank_recipes` on every rank against those of the real MindSpore; one of them in both modes."""

import json
import sys
from pathlib import Path

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore.communication import get_group_size, get_rank, init

sys.path.insert(0, str(Path(__file__).parents[2] / "golden"))
import rank_recipes

GOLDEN = Path(rank_recipes.__file__).parent
RELATIVE_ERROR = 1e-4
IN_BOTH_MODES = {"mlp_reducer"}

init()
assert get_group_size() == rank_recipes.NUM_RANKS
curves = json.loads((GOLDEN / "rank_curves.json").read_text())["curves"]
assert curves.keys() == rank_recipes.RANK_RECIPES.keys()
for name, by_rank in curves.items():
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE)[: 2 if name in IN_BOTH_MODES else 1]:
        ms.set_context(mode=mode)
        losses = rank_recipes.run(ms, name)
        np.testing.assert_allclose(losses, by_rank[get_rank()], rtol=RELATIVE_ERROR, err_msg=f"{name}, mode {mode}")
        difference = np.max(np.abs(np.divide(losses, by_rank[get_rank()]) - 1))
        print(f"{name} in mode {mode}: {difference:.1e}")
print("all is well")
