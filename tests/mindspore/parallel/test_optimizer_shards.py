"""Layouts in strategy files, merged as tools merge them: each rank's slice goes where the plan has it."""

import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.placement import Placement, axes_index, num_parts
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.context._strategy_files.files import layout_to_json
from sporax.mindspore.context._strategy_files.layouts import ParameterLayout, _Reader, device_arrangement
from sporax.mindspore.parallel import Layout
from sporax.mindspore.train.checkpoint.strategy import layout_of

WHOLE = (48, 48)


@pytest.fixture(autouse=True)
def _context():
    mode = ms.get_context("mode")
    yield
    ms.set_context(mode=mode)
    ms.reset_auto_parallel_context()


def kept_by(placement, mesh, rank):
    """The region of a rank by the plan."""
    sizes = [size // num_parts(mesh, axes) for size, axes in zip(WHOLE, placement.dims, strict=True)]
    places = [axes_index(mesh, axes, rank) for axes in placement.dims]
    return tuple(slice(place * size, (place + 1) * size) for place, size in zip(places, sizes, strict=True))


def placements(mesh):
    """Every way to shard two dimensions, and every number of the innermost free axes for the optimizer."""
    axes = range(mesh.num_axes)
    for first in itertools.chain(*(itertools.permutations(axes, count) for count in range(mesh.num_axes + 1))):
        rest = [axis for axis in axes if axis not in first]
        for second in itertools.chain(*(itertools.permutations(rest, count) for count in range(len(rest) + 1))):
            used = Placement((first, second))
            free = tuple(axis for axis in axes if axis not in used.used)
            for start in range(len(free) + 1):
                stored = Placement(((*first, *free[start:]), second))
                if not WHOLE[0] % num_parts(mesh, stored.dims[0]):
                    yield used, stored


def entry_of(used, stored, mesh):
    matrix, tensor_map = device_arrangement(used, mesh)
    reader = _Reader(SimpleNamespace(plan=SimpleNamespace(mesh=mesh)), 0)
    group = reader._group(used, stored)
    shapes = [tuple(placement.local_shape(WHOLE, mesh)) for placement in (used, stored)]
    return json.loads(
        json.dumps(layout_to_json(ParameterLayout(matrix, tensor_map, shapes[0], 0, True, group, WHOLE, shapes[1])))
    )


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (2, 2, 2), (2, 2, 3), (2, 2, 2, 2)])
def test_slices_merge_to_the_parameter(shape):
    mesh = DeviceMatrix(shape)
    for used, stored in placements(mesh):
        entry = entry_of(used, stored, mesh)
        shared = math.prod(mesh.shape[axis] for axis in stored.used - used.used)
        assert entry["opt_weight_shard_size"] == (shared if shared > 1 else 0)
        layout = layout_of(entry)
        for rank in mesh.ranks:
            assert layout.region(rank, WHOLE) == kept_by(stored, mesh, rank), (used, stored, entry, rank)


def misread(entry):
    """Whether MindSpore's `transform_checkpoints` takes a map of plain numbers to be in the order of the device matrix.

    It does where the first axis is the only one that shards nothing; tried with its wheel, which reads no lists from files.
    """
    matrix, dims = entry["dev_matrix"], entry["tensor_map"]
    used = [dim for dim in dims if dim != -1]
    unused = [axis for axis, size in enumerate(matrix) if size > 1 and len(matrix) - 1 - axis not in used]
    return entry["opt_weight_shard_size"] > 0 and unused == [0] and used != sorted(used, reverse=True)


@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 2), (2, 2, 3), (2, 2, 2, 2)])
def test_maps_are_plain_numbers_that_mindspores_tools_read_rightly(shape):
    mesh = DeviceMatrix(shape)
    for used, stored in placements(mesh):
        # Two axes of one dimension in another order than the devices' are a list in any file.
        if any(axes != tuple(range(axes[0], axes[0] + len(axes))) for axes in used.dims if axes):
            continue
        entry = entry_of(used, stored, mesh)
        assert all(isinstance(dim, int) for dim in entry["tensor_map"])
        assert not misread(entry), entry


def test_an_axis_of_one_device_stands_where_maps_would_be_misread():
    mesh = DeviceMatrix((2, 2, 2))
    used, stored = Placement(((2,), (1,))), Placement(((2, 0), (1,)))
    assert (entry_of(used, stored, mesh)["dev_matrix"], entry_of(used, stored, mesh)["tensor_map"]) == (
        [1, 2, 2, 2],
        [0, 1],
    )
    assert entry_of(used, used, mesh)["dev_matrix"] == [2, 2, 2]
    assert entry_of(Placement(((1,), (2,))), Placement(((1, 0), (2,))), mesh)["dev_matrix"] == [2, 2, 2]


AXES = Layout((2, 2, 2), ("a", "b", "c"))
INTERLEAVED = Layout((4, 2, 2), ("a", "b", "interleaved_parallel"))


@pytest.mark.filterwarnings("ignore:.*interleaved_parallel")
@pytest.mark.parametrize("size", [0, 2, 4])
@pytest.mark.parametrize(
    "strategy",
    [
        ((2, 1), (1, 4)),
        ((8, 1), (1, 1)),
        (AXES("None", "c"), AXES("c", "b")),
        (AXES("b", "c"), AXES("c", "a")),
        (AXES("None", ("b", "a")), AXES(("b", "a"), "None")),
        (INTERLEAVED(("a", "interleaved_parallel"), "None"), INTERLEAVED("None", "b")),
    ],
    ids=["strategy", "rows", "reversed", "other order", "two axes", "interleaved"],
)
def test_devices_of_a_job_hold_what_its_file_says(strategy, size, tmp_path):
    class Product(nn.Cell):
        def __init__(self):
            super().__init__()
            self.product = ops.MatMul().shard(strategy)
            self.w = ms.Parameter(Tensor(np.arange(32 * 16, dtype=np.float32).reshape(32, 16) / 500), name="w")

        def construct(self, x):
            return (self.product(x, self.w) ** 2).mean()

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=8,
        dataset_strategy="full_batch",
        enable_parallel_optimizer=True,
        parallel_optimizer_config={"parallel_optimizer_threshold": 0},
        strategy_ckpt_save_file=str(tmp_path / "strategy.json"),
        **({"optimizer_weight_shard_size": size} if size else {}),
    )
    net = Product()
    nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))(Tensor(np.ones((16, 32), np.float32)))
    layouts = json.loads((tmp_path / "strategy.json").read_text())["parallel_layout_item"]
    layout = layout_of(layouts["w"])
    assert layouts["moments.w"] == layouts["w"]
    assert size == 0 or layouts["w"]["opt_weight_shard_size"] in (0, size)
    for slice_ in net.w.raw.addressable_shards:
        expected = net.w.asnumpy()[layout.region(slice_.device.id, (32, 16))]
        assert np.array_equal(slice_.data, expected), (layouts["w"], slice_.device)
