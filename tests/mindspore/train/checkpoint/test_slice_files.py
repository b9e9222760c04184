"""Files in slices: any plan writes, any other plan reads, each device its own bytes only."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import sporax.mindspore as ms
from sporax.ir.uneven import UnevenRows
from sporax.lowering.passes.uneven_tables import Blocked
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.train import load_checkpoint, load_param_into_net
from sporax.mindspore.train._stored import sibling, stored_values, write_rank_file
from sporax.runtime.storage import placed_variables
from sporax.runtime.storage.entries import CheckpointEntry
from sporax.runtime.storage.slices import RankPlace, held_slices

SHAPES: dict[str, tuple[int, ...]] = {"w": (16, 32), "b": (32,), "moments.w": (16, 32), "step": ()}
FORMATS = ["ckpt", "safetensors"]


def values_of(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


def random_sharding(rng: random.Random, shape: tuple[int, ...]) -> NamedSharding:
    sizes = rng.choice([(8,), (2, 4), (4, 2), (2, 2, 2)])
    names = ("a", "b", "c")[: len(sizes)]
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(sizes), names)
    free = list(names)
    rng.shuffle(free)
    dims: list[Any] = []
    for _ in shape:
        axes = tuple(free.pop() for _ in range(rng.randint(0, len(free))))
        dims.append(axes or None)
    return NamedSharding(mesh, PartitionSpec(*dims))


def save_ranks(folder: Path, arrays: dict[str, Any], ranks: int, format: str = "ckpt", **options: Any) -> list[Path]:
    """The files of a job of so many ranks, whose devices are those of this process in turn."""
    once, mark = options.pop("once", False), options.pop("mark", "")
    paths = []
    for rank in range(ranks):
        place = RankPlace(rank, ranks, lambda device: device.id * ranks // 8)
        path = folder / f"rank_{rank}" / f"net.{format}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_rank_file(path, list(held_slices(arrays, place, once=once)), place, mark, **options)
        paths.append(path)
    return paths


class Net(nn.Cell):
    def __init__(self, shardings: dict[str, NamedSharding] | None = None) -> None:
        super().__init__()
        for name, shape in SHAPES.items():
            parameter = Parameter(Tensor(np.zeros(shape, np.float32)), name=name)
            if shardings is not None:
                parameter.raw = jax.device_put(parameter.raw, shardings[name])
            setattr(self, name.replace(".", "_"), parameter)


def assert_holds(net: nn.Cell, values: dict[str, np.ndarray[Any, Any]]) -> None:
    for name, value in values.items():
        np.testing.assert_array_equal(net.parameters_dict()[name].asnumpy(), value)


@pytest.mark.parametrize("case", range(12))
def test_any_plan_is_read_under_any_other(tmp_path: Path, case: int) -> None:
    rng = random.Random(case)
    values = values_of(case)
    arrays = {name: jax.device_put(value, random_sharding(rng, value.shape)) for name, value in values.items()}
    ranks, once, format = rng.choice([1, 2, 4, 8]), rng.random() < 0.5, rng.choice(FORMATS)
    paths = save_ranks(tmp_path, arrays, ranks, format, once=once)
    read = load_checkpoint(str(rng.choice(paths)))
    assert set(read) == set(SHAPES)
    target = Net({name: random_sharding(rng, shape) for name, shape in SHAPES.items()})
    shardings = {parameter.name: parameter.raw.sharding for parameter in target.get_parameters()}
    assert load_param_into_net(target, read) == ([], [])
    for parameter in target.get_parameters():
        assert parameter.raw.sharding.is_equivalent_to(shardings[parameter.name], len(parameter.shape))
    assert_holds(target, values)
    later = Net()
    load_checkpoint(str(rng.choice(paths)), later, strict_load=True)
    assert_holds(later, values)


def test_each_slice_is_written_once_without_redundancy(tmp_path: Path) -> None:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("a", "b"))
    values = values_of(0)
    arrays: dict[str, Any] = {
        "w": jax.device_put(values["w"], NamedSharding(mesh, PartitionSpec("a"))),
        "b": jax.device_put(values["b"], NamedSharding(mesh, PartitionSpec())),
        "moments.w": values["moments.w"],  # every rank has a copy for itself
        "step": values["step"],
    }
    written: dict[bool, int] = {}
    for once in (True, False):
        written[once] = 0
        for rank in range(8):
            place = RankPlace(rank, 8, lambda device: int(device.id))
            written[once] += sum(part.values.size for part in held_slices(arrays, place, once=once))
    assert written[True] == sum(value.size for value in values.values())
    assert written[False] == 4 * values["w"].size + 8 * (32 + 512 + 1)


@pytest.mark.parametrize("format", FORMATS)
def test_only_the_bytes_of_own_blocks_are_read(tmp_path: Path, format: str) -> None:
    mesh = Mesh(np.array(jax.devices()[:8]), ("a",))
    values = values_of(1)
    arrays = {name: jax.device_put(value, NamedSharding(mesh, PartitionSpec())) for name, value in values.items()}
    arrays["w"] = jax.device_put(values["w"], NamedSharding(mesh, PartitionSpec("a")))
    read = load_checkpoint(str(save_ranks(tmp_path, arrays, 8, format)[3]))
    stored = stored_values(read["w"])
    assert stored is not None
    assert read["w"].shape == (2, 32)  # the slice of rank 3, as MindSpore gives it
    assert stored.source.bytes_read == 0
    half = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("a",)), PartitionSpec())
    block = stored.source.read("w", (slice(3, 7), slice(8, 16)))
    np.testing.assert_array_equal(block, values["w"][3:7, 8:16])
    assert stored.source.bytes_read == block.nbytes
    net = Net(dict.fromkeys(SHAPES, half))
    before = stored.source.bytes_read
    with pytest.warns(UserWarning, match="keep their values"):
        load_param_into_net(net, {"w": read["w"]})
    assert stored.source.bytes_read - before == values["w"].nbytes
    np.testing.assert_array_equal(read["w"].asnumpy(), values["w"][6:8])


def test_a_net_that_is_not_compiled_reads_when_its_step_is(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)

    class Line(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.matmul = ops.MatMul().shard(((1, 4), (4, 2)))
            self.w = Parameter(Tensor(np.zeros((16, 32), np.float32)), name="w")

        def construct(self, x: Any) -> Any:
            return self.matmul(x, self.w)

    mesh = Mesh(np.array(jax.devices()[:8]), ("a",))
    w = values_of(2)["w"]
    array = jax.device_put(w, NamedSharding(mesh, PartitionSpec("a")))
    read = load_checkpoint(str(save_ranks(tmp_path, {"w": array}, 8, "safetensors", once=True)[0]))
    stored = stored_values(read["w"])
    assert stored is not None
    net = Line()
    load_param_into_net(net, read)
    assert stored.source.bytes_read == 0
    x = np.ones((8, 16), np.float32)
    np.testing.assert_allclose(net(Tensor(x)).asnumpy(), x @ w, rtol=1e-5)
    assert stored.source.bytes_read == w.nbytes
    assert len(net.w.raw.sharding.device_set) == 8
    net.w.set_data(wrap(net.w.raw * 2))
    np.testing.assert_allclose(net(Tensor(x)).asnumpy(), 2 * x @ w, rtol=1e-5)


def test_uneven_parts_are_written_as_rows(tmp_path: Path) -> None:
    table = np.arange(9 * 4, dtype=np.float32).reshape(9, 4)
    parameter = Parameter(Tensor(table), name="table")
    how = Blocked(0, UnevenRows((4, 2, 3)))
    mesh = Mesh(np.array(jax.devices()[:3]), ("a",))
    placed_variables.keep(
        parameter, placed_variables.stored(parameter, how, NamedSharding(mesh, PartitionSpec("a"))), how
    )
    sizes = []
    for rank in range(3):
        place = RankPlace(rank, 3, lambda device: int(device.id))
        path = tmp_path / f"rank_{rank}" / "net.ckpt"
        path.parent.mkdir()
        (part,) = held_slices({"table": parameter}, place, once=True)
        sizes.append(part.values.shape[0])
        write_rank_file(path, [part], place)
    assert sizes == [4, 2, 3]
    read = load_checkpoint(str(tmp_path / "rank_1" / "net.ckpt"))
    stored = stored_values(read["table"])
    assert stored is not None
    np.testing.assert_array_equal(stored.source.read("table"), table)


def test_strings_and_numbers_are_the_own_ones(tmp_path: Path) -> None:
    for rank in (0, 1):
        place = RankPlace(rank, 2)
        path = tmp_path / f"rank_{rank}" / "net.ckpt"
        path.parent.mkdir()
        further = [CheckpointEntry("note", f"rank {rank}"), CheckpointEntry("epoch_num", np.asarray(3))]
        write_rank_file(path, list(held_slices({"b": np.ones(3)}, place, once=True)), place, "m", further)
        assert set(load_checkpoint(str(path))) == {"b", "note", "epoch_num"} or rank == 1
    read = load_checkpoint(str(tmp_path / "rank_1" / "net.ckpt"))
    assert read["note"] == "rank 1"
    assert int(read["epoch_num"].asnumpy()) == 3
    np.testing.assert_array_equal(read["b"].asnumpy(), np.ones(3))


def _damaged(change: Callable[[bytes], bytes]) -> Callable[[list[Path]], None]:
    def damage(paths: list[Path]) -> None:
        paths[2].write_bytes(change(paths[2].read_bytes()))

    return damage


def _gone(paths: list[Path]) -> None:
    paths[2].unlink()


def _mixed(paths: list[Path]) -> None:
    paths[2].write_bytes(paths[1].read_bytes())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (
            _gone,
            r"parameter 'w' in '.*rank_0.net.* must have 512 values .* but has 384; the files of ranks \[2\] are missing",
        ),
        (_mixed, r"rank_2.net.*' must belong to the same save as .*, but its 'rank' is 1 and not 2"),
        (_damaged(lambda content: content[: len(content) // 2]), r"rank_2.net.*' cannot be read"),
        (_damaged(lambda content: b""), r"rank_2.net.*' "),
    ],
)
def test_files_that_are_missing_mixed_up_or_truncated(
    tmp_path: Path, format: str, damage: Callable[[list[Path]], None], match: str
) -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), ("a",))
    value = values_of(3)["w"]
    arrays = {"w": jax.device_put(value, NamedSharding(mesh, PartitionSpec("a")))}
    paths = []
    for rank in range(4):
        place = RankPlace(rank, 4, lambda device: int(device.id))
        path = tmp_path / f"rank_{rank}" / f"net.{format}"
        path.parent.mkdir()
        write_rank_file(path, list(held_slices(arrays, place, once=True)), place, "a")
        paths.append(path)
    damage(paths)
    net = Net()
    with pytest.raises(ValueError, match=match):
        load_checkpoint(str(paths[0]), net)
    assert not net.w.asnumpy().any()


def test_a_changed_value_is_found_when_its_slice_is_read(tmp_path: Path) -> None:
    mesh = Mesh(np.array(jax.devices()[:8]), ("a",))
    arrays = {"w": jax.device_put(values_of(4)["w"], NamedSharding(mesh, PartitionSpec("a")))}
    paths = save_ranks(tmp_path, arrays, 2, "safetensors", once=True)
    content = bytearray(paths[1].read_bytes())
    content[-1] ^= 1
    paths[1].write_bytes(content)
    match = r"parameter 'w' in '.*rank_1.net.safetensors' of rank 1 is broken: the file says its CRC-32"
    with pytest.raises(ValueError, match=match):
        load_checkpoint(str(paths[0]), crc_check=True)
    parameters = load_checkpoint(str(paths[0]))
    one = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("a",)), PartitionSpec())
    net = Net(dict.fromkeys(SHAPES, one))
    with pytest.raises(ValueError, match=match):
        load_param_into_net(net, {"b": Parameter(Tensor(np.ones(32, np.float32)), name="b"), **parameters})
    assert not net.b.asnumpy().any()  # nothing of the rest was loaded
    with pytest.raises(ValueError, match=match):
        parameters["w"].asnumpy()


def test_the_files_of_other_ranks_have_their_number_in_the_path() -> None:
    assert sibling(Path("/a/rank_1/rank_1/net.ckpt"), 1, 3) == Path("/a/rank_1/rank_3/net.ckpt")
    assert sibling(Path("/rank_10/net.ckpt"), 1, 3) is None
    assert sibling(Path("/a/net_rank1.ckpt"), 1, 10) == Path("/a/net_rank10.ckpt")
