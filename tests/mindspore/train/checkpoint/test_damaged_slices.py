"""Changed, cut off, exchanged and missing files: an error that says which and where, or the right values; nothing half loaded."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sporax.mindspore import Parameter, Tensor, nn
from sporax.mindspore.train import load_checkpoint, load_param_into_net
from sporax.mindspore.train._stored import write_rank_file
from sporax.mindspore.train.checkpoint.loading import load_source_into_net
from sporax.mindspore.train.checkpoint.stores import complete
from sporax.runtime.storage.slice_directory import open_directory, write_slices
from sporax.runtime.storage.slices import RankPlace, held_slices

RANKS = 4
QUICK, ALL = range(40), range(40, 200)


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:RANKS]), ("a",))


def values() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    return {name: np.asarray(rng.normal(size=(16, 8)), np.float32) for name in ("fc.weight", "moments.fc.weight")}


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        whole = NamedSharding(mesh(), PartitionSpec())
        for number, name in enumerate(values()):
            parameter = Parameter(Tensor(np.zeros((16, 8), np.float32)), name=name)
            parameter.raw = jax.device_put(parameter.raw, whole)
            setattr(self, f"p{number}", parameter)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same state in files of ranks, in both formats, and as a directory with a marker; and that of another save."""
    folder = tmp_path_factory.mktemp("saved")
    for save, factor in (("first", 1), ("second", 2)):
        sharding = NamedSharding(mesh(), PartitionSpec("a"))
        arrays = {name: jax.device_put(value * factor, sharding) for name, value in values().items()}
        for rank in range(RANKS):
            place = RankPlace(rank, RANKS, lambda device: int(device.id))
            slices = list(held_slices(arrays, place, once=True))
            for suffix in ("ckpt", "safetensors"):
                path = folder / save / suffix / f"rank_{rank}" / f"net.{suffix}"
                path.parent.mkdir(parents=True)
                write_rank_file(path, slices, place, save)
            write_slices(
                folder / save / "step_3" / f"rank_{rank}.safetensors", slices, {"step": 3, "random": [0, 0, 0]}
            )
        complete(folder / save / "step_3", RANKS, 1)
    return folder


def damage(draw: random.Random, file: Path, others: list[Path], foreign: Path) -> str:
    """Do something bad to a file; returns what."""
    content = bytearray(file.read_bytes())
    how = draw.choice(["flip", "flip", "flip", "cut", "empty", "missing", "exchange", "other save", "longer"])
    if how == "flip":
        place = draw.randrange(len(content))
        content[place] ^= 1 << draw.randrange(8)
        file.write_bytes(content)
        return f"flip at {place}"
    if how == "cut":
        file.write_bytes(content[: draw.randrange(1, len(content))])
    elif how == "longer":
        file.write_bytes(content + draw.randbytes(draw.randint(1, 9)))
    elif how == "missing":
        file.unlink()
    else:
        source = {"exchange": draw.choice(others), "other save": foreign}.get(how)
        file.write_bytes(source.read_bytes() if source is not None else b"")
    return how


def check(saved: Path, tmp_path: Path, case: int) -> None:
    draw = random.Random(case)
    kind = draw.choice(["ckpt", "safetensors", "step_3"])
    shutil.copytree(saved / "first" / kind, tmp_path / kind)
    pattern = "rank_*" if kind == "step_3" else "rank_*/net.*"
    files = sorted((tmp_path / kind).glob(pattern))
    victim = draw.choice(files)
    foreign = saved / "second" / kind / victim.relative_to(tmp_path / kind)
    how = damage(draw, victim, [file for file in files if file != victim], foreign)
    start = next(file for file in files if file != victim)
    net = Net()
    try:
        if kind == "step_3":
            load_source_into_net("test", open_directory("ResumableCheckpoint", tmp_path / kind), net, strict=True)
        else:
            load_param_into_net(net, load_checkpoint(str(start)), strict_load=True)
    except (ValueError, RuntimeError) as error:
        text = str(error)
        assert re.search(r"rank_\d|ranks \[\d", text) or str(tmp_path / kind) in text, f"{how}: {text}"
        assert not any(parameter.asnumpy().any() for parameter in net.get_parameters()), f"{how}: half loaded"
        return
    # Bits that nobody reads, such as padding of a header, may change.
    for name, value in values().items():
        np.testing.assert_array_equal(net.parameters_dict()[name].asnumpy(), value, err_msg=f"{case}: {kind}, {how}")


@pytest.mark.parametrize("case", QUICK)
def test_damaged_files(saved: Path, tmp_path: Path, case: int) -> None:
    check(saved, tmp_path, case)


@pytest.mark.soak
@pytest.mark.parametrize("case", ALL)
def test_more_damaged_files(saved: Path, tmp_path: Path, case: int) -> None:
    check(saved, tmp_path, case)
