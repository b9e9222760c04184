"""Record the golden loss curves of `tests/mindspore/golden/rank_recipes.py` on two ranks of the real MindSpore wheel.

Run it with the `msrun` of a Python that has MindSpore 2.10 (CPU) and numpy, and nothing of this project:

    msrun --worker_num=2 --local_worker_num=2 --join=True --log_dir=logs tools/golden/make_rank_curves.py

Each rank writes its curves of GRAPH_MODE next to the file; rank 0 puts them together when both are there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(GOLDEN))

import rank_recipes

import mindspore as ms
from mindspore.communication import get_rank, init

OUTPUT = GOLDEN / "rank_curves.json"
SECONDS = 60


def own_path(rank: int) -> Path:
    return OUTPUT.with_suffix(f".{rank}")


def main() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    init()
    curves = {name: rank_recipes.run(ms, name) for name in rank_recipes.RANK_RECIPES}
    rounded = {name: [float(f"{loss:.9g}") for loss in losses] for name, losses in curves.items()}
    unfinished = own_path(get_rank()).with_suffix(".part")
    unfinished.write_text(json.dumps(rounded))
    unfinished.rename(own_path(get_rank()))
    if get_rank() == 0:
        put_together()


def put_together() -> None:
    """Write one file: for each recipe the curve of each rank."""
    paths = [own_path(rank) for rank in range(rank_recipes.NUM_RANKS)]
    deadline = time.monotonic() + SECONDS
    while not all(path.exists() for path in paths) and time.monotonic() < deadline:
        time.sleep(0.1)
    by_rank = [json.loads(path.read_text()) for path in paths]
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps([each[name] for each in by_rank])}" for name in by_rank[0])
    OUTPUT.write_text(f'{{"mindspore": {json.dumps(ms.__version__)}, "curves": {{\n{lines}\n}}}}\n')
    for path in paths:
        path.unlink()


if __name__ == "__main__":
    main()
