"""Small checkpoints in slices."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sporax.mindspore import Tensor
from sporax.mindspore.train import save_checkpoint
from sporax.mindspore.train.checkpoint.strategy import read_strategy

sys.path.insert(0, str(Path(__file__).parent))
from sharded_recipes import slices


@pytest.fixture
def strategy_file(tmp_path: Path) -> Callable[..., str]:
    """Writes a JSON strategy file with one layout per keyword: (device matrix, tensor map, size of optimizer shards)."""

    def write(name: str, **layouts: Any) -> str:
        items = {
            parameter.replace("__", "-"): {
                "dev_matrix": matrix,
                "tensor_map": tensor_map,
                "field": 0,
                "opt_weight_shard_size": opt,
                "opt_weight_shard_step": 1 if opt else 0,
            }
            for parameter, (matrix, tensor_map, opt) in layouts.items()
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"current_stage": 0, "parallel_layout_item": items, "parallel_strategy_item": {}}))
        return str(path)

    return write


@pytest.fixture
def save_ranks(tmp_path: Path) -> Callable[..., Path]:
    """Saves `WHOLE` in slices, a file per rank."""

    def save(name: str, strategy: str | None, format: str = "ckpt", values: Any = None) -> Path:
        target = read_strategy("test", "strategy", strategy)
        folder = tmp_path / name
        for rank in range(target.num_ranks):
            (folder / f"rank_{rank}").mkdir(parents=True)
            path = str(folder / f"rank_{rank}" / f"net.{format}")
            save_checkpoint({n: Tensor(v) for n, v in slices(target, rank, values).items()}, path, format=format)
        return folder

    return save
