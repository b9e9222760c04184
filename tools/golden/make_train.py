"""Record checkpoint files, results of metrics and the ways of callbacks under the real MindSpore wheel.

Run it with a Python that has MindSpore 2.10 (CPU), numpy 1.26 (with a newer one MindSpore has no bfloat16 arrays) and
safetensors, and nothing of this project:

    python tools/golden/make_train.py

The files go to `tests/mindspore/golden/checkpoints`, the metrics to `tests/mindspore/golden/metrics.json`, the callbacks to
`tests/mindspore/golden/callbacks.json`. `make_train.py callbacks` records the last alone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(ROOT / "tests" / "mindspore" / "train"))

import callback_recipes
import checkpoint_recipes as recipes
import metric_recipes

import mindspore as ms
from mindspore.train import serialization


def record_checkpoints(directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    for old in (*directory.glob("*.ckpt"), *directory.glob("*.safetensors")):
        old.unlink()
    parameters = recipes.parameters(ms)
    save(parameters, directory / "dtypes.ckpt")
    save(parameters, directory / "dtypes_crc.ckpt", crc_check=True)
    save(parameters, directory / "dtypes.safetensors", format="safetensors")
    without_bfloat16 = [each for each in parameters if each.dtype != ms.bfloat16]  # its checksum fails in MindSpore
    save(without_bfloat16, directory / "dtypes_crc.safetensors", format="safetensors", crc_check=True)
    save(parameters[:1], directory / "appended.ckpt", append_dict=recipes.APPENDED)
    save(recipes.training_step(ms), directory / "training.ckpt")
    save(parameters[:1], directory / "encrypted.ckpt", enc_key=b"0123456789abcdef")
    serialization.SLICE_SIZE = recipes.SLICE_BYTES // 1024
    save(recipes.sliced(ms), directory / "sliced.ckpt")


def save(what: object, path: Path, **options: object) -> None:
    ms.save_checkpoint(what, str(path), **options)
    os.chmod(path, 0o644)  # MindSpore writes them read-only
    print(f"{path.name:24} {path.stat().st_size:6} bytes")


def record_metrics(path: Path) -> None:
    results = {name: metric_recipes.run(ms.train, ms.Tensor, name) for name in metric_recipes.RECIPES}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(result)}" for name, result in results.items())
    path.write_text(f'{{"mindspore": {json.dumps(ms.__version__)}, "metrics": {{\n{lines}\n}}}}\n')
    print(f"{path.name:24} {len(results)} metrics")


def record_callbacks(path: Path) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    results = {name: callback_recipes.run(ms, name) for name in callback_recipes.RECIPES}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(result)}" for name, result in results.items())
    path.write_text(f'{{"mindspore": {json.dumps(ms.__version__)}, "callbacks": {{\n{lines}\n}}}}\n')
    print(f"{path.name:24} {len(results)} recipes")


if __name__ == "__main__":
    if sys.argv[1:] != ["callbacks"]:
        record_checkpoints(GOLDEN / "checkpoints")
        record_metrics(GOLDEN / "metrics.json")
    record_callbacks(GOLDEN / "callbacks.json")
