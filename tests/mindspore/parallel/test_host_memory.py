"""Host memory in steps that a plan cuts: variables lie in pinned host memory, marked operators run on the host."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn, ops

ROWS, WIDTH = 64, 8


class WideAndDeep(nn.Cell):
    def __init__(self, on_host):
        super().__init__()
        self.table = nn.EmbeddingLookup(ROWS, WIDTH, target="CPU" if on_host else "DEVICE")
        self.weight = ms.Parameter(Tensor(np.eye(WIDTH, dtype=np.float32)), name="weight")
        self.matmul, self.tanh = ops.MatMul(), ops.Tanh()
        self.matmul.shard(((2, 1), (1, 4)))
        if on_host:
            self.matmul.set_device("CPU")

    def construct(self, ids, labels):
        deep = self.tanh(self.matmul(self.table(ids).mean(1), self.weight))
        return ops.square(deep - labels).mean()


def built(on_host=False, target=None, network=WideAndDeep, **config):
    """A step in semi-automatic parallelism, and a batch."""
    ms.set_context(mode=ms.GRAPH_MODE)
    config = {"parallel_mode": "semi_auto_parallel", "full_batch": True, **config}
    context.set_auto_parallel_context(device_num=8, **config)
    ms.set_seed(1)
    net = network(on_host)
    update = nn.LazyAdam(net.trainable_params(), learning_rate=0.1)
    if target is not None:
        update.target = target
    step = nn.TrainOneStepCell(net, update).set_train()
    ids = Tensor(np.random.default_rng(0).integers(0, ROWS, (8, 3)).astype(np.int32))
    return step, (ids, Tensor(np.ones((8, 1), np.float32)))


def trained(**settings):
    """Losses, Parameters, the step, and the text of the lowered program after three steps."""
    step, batch = built(**settings)
    losses = [step(*batch).asnumpy().item() for _ in range(3)]
    values = {parameter.name: parameter.asnumpy() for parameter in step.get_parameters()}
    return losses, values, step, step.program.lower(*batch).as_text()


def by_host(text):
    return text.count('_xla_compute_type = "host"')


@pytest.mark.filterwarnings("ignore:With search_mode='recursive_programming'")  # which replaces strategies, and says so
@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_tables_and_updates_lie_on_the_host_and_nothing_else_changes(mode):
    """Parameters and their state stay in pinned host memory, the program computes on the host, values are equal."""
    losses, values, _, plain = trained(parallel_mode=mode)
    host_losses, host_values, step, text = trained(on_host=True, target="CPU", parallel_mode=mode)
    where = {item.name: item.raw.sharding.memory_kind for item in step.get_parameters()}
    away = [name for name, kind in where.items() if kind == "pinned_host"]
    assert sum("table" in name for name in away) == 3 and sum(name.endswith("weight") for name in away) == 3
    assert by_host(plain) == 0 and by_host(text) > 10
    assert len(step.program.compilations) == 1
    np.testing.assert_allclose(host_losses, losses, rtol=1e-6)
    for name, value in values.items():
        np.testing.assert_allclose(host_values[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_marked_operator_alone_runs_on_the_host():
    """Products of forward and backward pass are computed by each device's host, on its part."""
    text = trained(on_host=True)[3]
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert len(products) == 3 and all('"host"' in line for line in products)


def test_the_plan_says_what_travels():
    step, batch = built(on_host=True, target="CPU")
    notes = " ".join(str(step.program.plan(*batch).summary()).split())
    assert "host memory of each device:" in notes and "table.embedding_table" in notes
    sent = [size for way, size in step.program.memory(*batch).transfers if way == "to host"]
    assert f"to its host in {len(sent)} transfers a step" in notes


def test_ids_and_rows_travel_and_no_table():
    """Each device fetches the rows of its part of the batch, and sends ids and rows of the whole batch."""
    step, batch = built(on_host=True, target="CPU")
    report = step.program.memory(*batch)
    ids = batch[0].size
    assert max(size for _, size in report.transfers) == ids * WIDTH * 4 < ROWS * WIDTH * 4
    assert ("to device", ids // 8 * WIDTH * 4) in report.transfers
    assert ("to host", ids * 4) in report.transfers
    assert report.host_bytes == 3 * 4 * (ROWS * WIDTH + WIDTH * WIDTH // 4)


@pytest.mark.parametrize("slice_mode", ["table_row_slice", "table_column_slice"])
@pytest.mark.sampled(1)
def test_tables_in_slices_are_updated_where_they_are(slice_mode):
    """Strategies of a table hold on the host as well, and values are equal to those of a run on the devices."""

    class Sliced(WideAndDeep):
        def __init__(self, on_host):
            super().__init__(on_host)
            target = "CPU" if on_host else "DEVICE"
            self.table = nn.EmbeddingLookup(ROWS, WIDTH, target=target, slice_mode=slice_mode)

    losses, values, _, _ = trained(network=Sliced)
    host_losses, host_values, step, _ = trained(network=Sliced, on_host=True, target="CPU")
    np.testing.assert_allclose(host_losses, losses, rtol=1e-6)
    for name, value in values.items():
        np.testing.assert_allclose(host_values[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    table = next(item for item in step.get_parameters() if item.name.endswith("embedding_table"))
    assert table.raw.sharding.memory_kind == "pinned_host"
    assert table.raw.sharding.shard_shape(table.shape) != table.shape
