"""Files of 8 devices in 2, 4 or 8 processes, lost, copied, exchanged, changed or of another save: the right values or an error."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sporax.base.errors import SporaxError
from sporax.ir.uneven import UnevenRows
from sporax.lowering.passes.uneven_tables import Blocked
from sporax.mindspore import Parameter, Tensor, nn
from sporax.mindspore.train import (
    load_checkpoint,
    load_distributed_checkpoint,
    load_param_into_net,
    transform_checkpoint_by_rank,
    transform_checkpoints,
    unified_safetensors,
)
from sporax.mindspore.train._stored import write_rank_file
from sporax.runtime.storage import placed_variables
from sporax.runtime.storage.slices import RankPlace, held_slices

DEVICES = 8
VALUES = {
    "w": np.arange(16 * 32, dtype=np.float32).reshape(16, 32),
    "moments.w": -np.arange(16 * 32, dtype=np.float32).reshape(16, 32),
    "partly": np.arange(24, dtype=np.int32).reshape(8, 3),
    "table": np.arange(22, dtype=np.float32).reshape(11, 2),
    "b": np.arange(32, dtype=np.float32),
    "global_step": np.array(7, np.int32),
}
SHARDINGS = {"w": ("a", "b"), "moments.w": (("a", "b"),), "partly": ("b",)}
FORMATS = ["ckpt", "safetensors"]
Files = dict[int, Path]


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        for name, value in VALUES.items():
            self.insert_param_to_cell(name.replace(".", "_"), Parameter(Tensor(np.zeros_like(value)), name=name))


def save(folder: Path, num_processes: int, format: str, *, once: bool, save_number: int = 1) -> Files:
    """What processes write of values that optimizer parallelism, a table in uneven parts and partial replicas shard."""
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 4), ("a", "b"))
    arrays: dict[str, Any] = {
        name: jax.device_put(value * save_number, NamedSharding(mesh, PartitionSpec(*SHARDINGS.get(name, ()))))
        for name, value in VALUES.items()
    }
    table = arrays["table"] = Parameter(Tensor(VALUES["table"] * save_number), name="table")
    how = Blocked(0, UnevenRows((2, 4, 3, 2)))
    placed_variables.keep(table, placed_variables.stored(table, how, NamedSharding(mesh, PartitionSpec("b"))), how)
    each = DEVICES // num_processes
    files = {}
    for process in range(num_processes):
        place = RankPlace(process, num_processes, lambda device: int(device.id) // each)
        path = files[process * each] = folder / f"rank_{process * each}" / f"net.{format}"
        path.parent.mkdir(parents=True)
        write_rank_file(path, list(held_slices(arrays, place, once=once)), place, f"job {save_number}")
    return files


def into_net(load: Callable[[Net], Any]) -> dict[str, Any]:
    net = Net()
    load(net)
    return {parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}


def uses(files: Files, folder: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """All ways to use the files."""
    format = next(iter(files.values())).suffix[1:]
    paths = {rank: str(path) for rank, path in files.items()}

    def transformed() -> dict[str, Any]:
        transform_checkpoints(str(folder), str(folder / "made"), "net", None, None, output_format=format)
        return {n: p.asnumpy() for n, p in load_checkpoint(str(folder / "made" / "rank_0" / f"net0.{format}")).items()}

    def by_rank() -> dict[str, Any]:
        transform_checkpoint_by_rank(0, paths, str(folder / "made.ckpt"))
        return {name: value.asnumpy() for name, value in load_checkpoint(str(folder / "made.ckpt")).items()}

    def unified() -> dict[str, Any]:
        unified_safetensors(str(folder), None, str(folder / "unified"))
        return into_net(
            lambda net: load_distributed_checkpoint(
                net, format="safetensors", unified_safetensors_dir=str(folder / "unified")
            )
        )

    there = [str(path) for path in files.values() if path.is_file()]
    ways = {
        "distributed": lambda: into_net(lambda net: load_distributed_checkpoint(net, [*paths.values()], format=format)),
        "those there": lambda: into_net(lambda net: load_distributed_checkpoint(net, there, format=format)),
        "first": lambda: into_net(lambda net: load_param_into_net(net, load_checkpoint(there[0]), strict_load=True)),
        "last": lambda: into_net(lambda net: load_param_into_net(net, load_checkpoint(there[-1]), strict_load=True)),
        "transformed": transformed,
        "by rank": by_rank,
    }
    return {**ways, "unified": unified} if format == "safetensors" else ways


def lost_first(files: Files, others: Files, draw: random.Random) -> None:
    files[0].unlink()


def lost_last(files: Files, others: Files, draw: random.Random) -> None:
    files[max(files)].unlink()


def copied(files: Files, others: Files, draw: random.Random) -> None:
    shutil.copy(files[0], files[max(files)])


def exchanged(files: Files, others: Files, draw: random.Random) -> None:
    first, last = (files[rank].read_bytes() for rank in (0, max(files)))
    files[0].write_bytes(last)
    files[max(files)].write_bytes(first)


def of_another_save(files: Files, others: Files, draw: random.Random) -> None:
    shutil.copy(others[max(files)], files[max(files)])


def changed(files: Files, others: Files, draw: random.Random) -> None:
    path = files[draw.choice([*files])]
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut_off(files: Files, others: Files, draw: random.Random) -> None:
    path = files[draw.choice([*files])]
    path.write_bytes(path.read_bytes()[: -draw.randrange(1, 300)])


ATTACKS = [lost_first, lost_last, copied, exchanged, of_another_save, *[changed] * 6, cut_off]


@pytest.mark.filterwarnings("ignore:.*keep their values")
@pytest.mark.parametrize(
    ("num_processes", "format", "once"), list(itertools.product([2, 4, 8], FORMATS, [False, True]))
)
def test_the_right_values_or_an_error(tmp_path: Path, num_processes: int, format: str, once: bool) -> None:
    originals = save(tmp_path / "one", num_processes, format, once=once)
    others = save(tmp_path / "two", num_processes, format, once=once, save_number=2)
    draw = random.Random(num_processes + once)
    for number, attack in enumerate([None, *ATTACKS]):
        folder = tmp_path / f"attack{number}"
        shutil.copytree(tmp_path / "one", folder)
        files = {rank: folder / path.relative_to(tmp_path / "one") for rank, path in originals.items()}
        if attack is not None:
            attack(files, others, draw)
        for way, use in uses(files, folder).items():
            what = f"{attack.__name__ if attack else 'nothing'} {number}, {way}"
            refusal = ""
            try:
                found = use()
            except SporaxError as error:
                refusal = str(error)
            if refusal:
                assert attack is not None, f"{what}: {refusal}"
                assert str(folder) in refusal or "files of all ranks must be there" in refusal, f"{what}: {refusal}"
                continue
            lost = VALUES.keys() - found.keys()
            assert not lost, f"{what}: {lost}"
            for name, value in VALUES.items():
                np.testing.assert_array_equal(found[name], value, err_msg=f"{what}: {name}")
