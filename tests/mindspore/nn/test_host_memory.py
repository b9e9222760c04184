"""Host memory in compiled steps: operators of the host, tables and optimizers there, offloaded variables and activations."""

import warnings
from functools import cache

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.lowering.marks.host_transfer import DEVICE, space_of, transfers
from sporax.lowering.passes import pass_order
from sporax.lowering.rewriter import flat
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.context import reset_offload_context
from sporax.runtime import planned

ROWS, WIDTH = 200, 8


@pytest.fixture(autouse=True)
def _untouched():
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=mode, memory_offload="OFF")
    reset_offload_context()


class WideAndDeep(nn.Cell):
    def __init__(self, on_host):
        super().__init__()
        self.table = nn.EmbeddingLookup(ROWS, WIDTH, target="CPU" if on_host else "DEVICE")
        self.weight = ms.Parameter(Tensor(np.eye(WIDTH, dtype=np.float32)), name="weight")
        self.matmul, self.tanh = ops.MatMul(), ops.Tanh()
        self.last = nn.Dense(WIDTH, 1)
        if on_host:
            self.matmul.set_device("CPU")

    def construct(self, ids, labels):
        deep = self.tanh(self.matmul(self.table(ids).mean(1), self.weight))
        return ops.square(self.last(deep) - labels).mean()


def train(on_host=False, optimizer=nn.LazyAdam, target=None, prepare=lambda net: None):
    """Losses, Parameters, the step, and the lowered program after three steps."""
    ms.set_seed(1)
    net = WideAndDeep(on_host)
    prepare(net)
    update = optimizer(net.trainable_params(), learning_rate=0.1)
    if target is not None:
        update.target = target
    step = nn.TrainOneStepCell(net, update).set_train()
    ids = Tensor(np.random.default_rng(0).integers(0, ROWS, (4, 3)).astype(np.int32))
    labels = Tensor(np.ones((4, 1), np.float32))
    losses = [step(ids, labels).asnumpy().item() for _ in range(3)]
    return (
        losses,
        {parameter.name: parameter.asnumpy() for parameter in step.get_parameters()},
        step,
        step.program.lower(ids, labels),
    )


@cache
def plain(optimizer):
    return train(optimizer=optimizer)[:2]


def kinds(step):
    """Memory of every Parameter between steps."""
    return {item.name: item.raw.sharding.memory_kind for item in step.get_parameters()}


def check_equal(run, optimizer=nn.LazyAdam):
    losses, parameters = plain(optimizer)
    assert run[0] == losses
    for name, value in parameters.items():
        np.testing.assert_array_equal(run[1][name], value, err_msg=name)


@pytest.mark.parametrize("optimizer", [nn.LazyAdam, nn.FTRL])
def test_table_and_update_on_the_host(optimizer):
    """The table, its moments and all that the optimizer updates lie in host memory, step after step; values are equal."""
    run = train(True, optimizer, "CPU")
    where = kinds(run[2])
    assert (
        where["network.table.embedding_table" if "network.table.embedding_table" in where else "table.embedding_table"]
        == "pinned_host"
    )
    assert sum(kind == "pinned_host" for kind in where.values()) >= 3 * 4
    assert len(run[2].program.compilations) == 1
    check_equal(run, optimizer)


def test_adam_with_use_offload_is_moved_by_the_host():
    losses, parameters, step, _ = train(optimizer=lambda *a, **k: nn.Adam(*a, **k, use_offload=True))
    assert step.optimizer.target == "CPU"
    assert {kind for name, kind in kinds(step).items() if "moment" in name} == {"pinned_host"}
    check_equal((losses, parameters), nn.Adam)


@pytest.fixture
def rewritten_programs(monkeypatch):
    """The programs that steps are compiled from, after all passes."""
    programs = []
    original = pass_order.run_rewrites

    def run_rewrites(*args, **settings):
        result = original(*args, **settings)
        programs.append(result[0])
        return result

    monkeypatch.setattr(pass_order, "run_rewrites", run_rewrites)
    return programs


@pytest.mark.parametrize("optimizer", [nn.LazyAdam, nn.FTRL])
def test_ids_and_rows_travel_and_no_table(optimizer, rewritten_programs):
    """The table is larger than what the device ever holds: ids go once, rows come once, rows of the gradient go once."""
    run = train(True, optimizer, "CPU")
    ids, table_bytes = 4 * 3, ROWS * WIDTH * 4
    program = rewritten_programs[0]
    sizes = transfers(program)
    assert [direction for direction, size in sizes if size == ids * WIDTH * 4] == ["to device", "to host"]
    assert [direction for direction, size in sizes if size == ids * 4] == ["to host"]
    assert max(size for _, size in sizes) == ids * WIDTH * 4
    on_device = [var.aval for eqn in program.jaxpr.eqns for var in eqn.outvars if space_of(var) == DEVICE]
    assert max(aval.size * aval.dtype.itemsize for aval in on_device) < table_bytes
    arguments = [var.aval for var in program.jaxpr.invars if space_of(var) == DEVICE]
    assert sum(aval.size * aval.dtype.itemsize for aval in arguments) < table_bytes
    check_equal(run, optimizer)


@pytest.mark.parametrize("target", [None, "CPU"])
def test_rows_of_repeated_ids_are_summed(target):
    """Ids that occur several times, ids out of range, two lookups of one table, a loss scale, and weight decay."""

    class Twice(nn.Cell):
        def __init__(self, on_host):
            super().__init__()
            self.table = nn.EmbeddingLookup(ROWS, WIDTH, target="CPU" if on_host else "DEVICE")

        def construct(self, ids, others):
            return ((self.table(ids) * 2 + self.table(others)) ** 2).sum()

    ids, others = (Tensor(np.array(entry, np.int32)) for entry in ([[1, 5, 1], [5, 5, 300]], [[5, 2, 0], [-1, 1, 199]]))

    def run(on_host):
        ms.set_seed(1)
        net = Twice(on_host)
        update = nn.FTRL(net.trainable_params(), learning_rate=0.1, l1=0.01, weight_decay=0.01, loss_scale=4.0)
        if on_host and target:
            update.target = target
        step = nn.TrainOneStepCell(net, update, sens=4.0).set_train()
        return [step(ids, others).asnumpy().item() for _ in range(3)], net.table.embedding_table.asnumpy()

    (losses, table), (host_losses, host_table) = run(False), run(True)
    np.testing.assert_allclose(host_losses, losses, rtol=1e-6)
    np.testing.assert_allclose(host_table, table, rtol=1e-5, atol=1e-7)


def test_operators_of_the_host_say_so_in_the_program():
    """Forward and backward products of the marked operator are computed by the host."""
    marked, unmarked = (train(on_host)[3].as_text().count('_xla_compute_type = "host"') for on_host in (True, False))
    assert unmarked == 0 and marked >= 3


def test_a_table_on_the_host_can_be_read_eagerly():
    net = WideAndDeep(True)
    step = train(True)[2]
    table = next(item for item in step.get_parameters() if item.name.endswith("embedding_table"))
    assert (table + 1).asnumpy().shape == (ROWS, WIDTH)
    assert net.table.embedding_table.asnumpy().shape == (ROWS, WIDTH)


def test_offloaded_parameters_lie_on_the_host():
    """``offload_param="cpu"`` without ``auto_offload``: all Parameters and state."""
    ms.set_context(memory_offload="ON")
    ms.set_offload_context({"offload_param": "cpu", "auto_offload": False})
    run = train()
    assert {kind for name, kind in kinds(run[2]).items() if run[1][name].ndim} == {"pinned_host"}
    check_equal(run)


@pytest.fixture
def predicted(monkeypatch):
    """The peaks that were predicted, in order."""
    peaks = []
    original = planned.peak_of_one_device

    def peak(*args):
        peaks.append(original(*args))
        return peaks[-1]

    monkeypatch.setattr(planned, "peak_of_one_device", peak)
    return peaks


def automatically(limit_bytes):
    """A run with automatic offload under a limit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of max_device_memory, once a process
        ms.set_context(memory_offload="ON", max_device_memory=f"{limit_bytes / 2**30:.12f}GB")
        run = train()
        ms.set_context(max_device_memory="1024GB")
    return run


@pytest.mark.parametrize(("missing", "count"), [(-1000, 0), (1000, 1), (ROWS * WIDTH * 4 + 1000, 2)])
@pytest.mark.sampled(1)
def test_automatic_offload_moves_what_does_not_fit(missing, count, predicted):
    """The largest variables go first, and no more than the predicted peak of the step requires."""
    automatically(2**40)
    run = automatically(predicted[0] - missing)
    away = [name for name, kind in kinds(run[2]).items() if kind == "pinned_host"]
    assert len(away) == count and all(name.endswith("embedding_table") for name in away)
    check_equal(run)


def test_too_little_host_memory_is_an_error():
    ms.set_context(memory_offload="ON")
    ms.set_offload_context({"offload_param": "cpu", "auto_offload": False, "offload_cpu_size": "0.000001GB"})
    with pytest.raises(RuntimeError, match="'offload_cpu_size' times 'cpu_ratio' is 1073 bytes, but"):
        train()


def on_disk(folder, **settings):
    ms.set_context(memory_offload="ON")
    ms.set_offload_context({"offload_path": str(folder), "auto_offload": False} | settings)


@pytest.mark.parametrize("enable_aio", [True, False], ids=["queue", "one by one"])
def test_parameters_and_state_in_files(tmp_path, enable_aio):
    """The program takes numbers in place of Parameters and state, values are equal, and no file stays."""
    on_disk(tmp_path / "values", offload_param="disk", enable_aio=enable_aio)
    run = train()
    arguments = run[3].as_text().split("@main(")[1].split(") ->")[0]
    assert f"tensor<{ROWS}x{WIDTH}xf32>" not in arguments
    assert all((item.filed is not None) == bool(item.raw.ndim) for item in run[2].get_parameters())
    assert len(run[2].program.compilations) == 1
    check_equal(run)
    assert list(tmp_path.rglob("*.*")) == []


def test_what_is_assigned_reaches_the_file(tmp_path):
    on_disk(tmp_path, offload_param="disk")
    _, _, step, _ = train()
    weight = next(item for item in step.get_parameters() if item.name == "weight")
    weight.set_data(Tensor(np.zeros((WIDTH, WIDTH), np.float32)))
    ids = Tensor(np.zeros((4, 3), np.int32))
    step(ids, Tensor(np.ones((4, 1), np.float32)))
    assert 0 < np.abs(weight.asnumpy()).max() < 0.2  # one update of a learning rate of 0.1 from zero


def test_automatic_offload_to_files_takes_what_does_not_fit(tmp_path, predicted):
    on_disk(tmp_path, offload_param="disk", auto_offload=True)
    automatically(2**40)
    run = automatically(predicted[0] - 1000)
    filed = [item.name for item in run[2].get_parameters() if item.filed is not None]
    assert len(filed) == 1 and filed[0].endswith("embedding_table")
    check_equal(run)


def test_too_little_room_on_disk_is_an_error(tmp_path):
    on_disk(tmp_path, offload_param="disk", offload_disk_size="0.000001GB")
    with pytest.raises(RuntimeError, match="'offload_disk_size' is 1073 bytes, but .* bytes are needed on disk with"):
        train()


class Deep(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList([nn.SequentialCell(nn.Dense(8, 8), nn.GELU(), nn.Dense(8, 8)) for _ in range(3)])
        for block in self.blocks:
            block.recompute()

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x).mean()


def train_deep():
    """Losses and the lowered program of a network whose blocks are recomputed."""
    ms.set_seed(2)
    net = Deep()
    step = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 0.1)).set_train()
    x = Tensor(np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32))
    return [step(x).asnumpy().item() for _ in range(4)], step.program.lower(x)


@pytest.mark.parametrize("place", ["disk", "cpu"])
@pytest.mark.sampled(1)
def test_what_recomputed_cells_keep_is_sent_away(tmp_path, place):
    """What enters the second and the third block goes away once and comes back once, and losses are equal."""
    losses, plain_program = train_deep()
    on_disk(tmp_path, **({"offload_path": "./offload"} if place == "cpu" else {}), offload_checkpoint=place)
    sent_losses, program = train_deep()
    np.testing.assert_allclose(sent_losses, losses, rtol=1e-6)
    if place == "disk":
        assert program.as_text().count("custom_call @xla_ffi_python_cpu_callback") == 4
        assert "callback" not in plain_program.as_text()
    else:
        count = "stablehlo.optimization_barrier"  # CPUs compile transfers to nothing, what orders them stays
        assert program.as_text().count(count) > plain_program.as_text().count(count)


def test_steps_with_files_agree_for_many_steps(tmp_path):
    """Reads ahead are never of values from before a write."""
    losses, _ = train_deep()
    on_disk(tmp_path, offload_param="disk", offload_checkpoint="disk")
    np.testing.assert_allclose(train_deep()[0], losses, rtol=1e-6)


@pytest.mark.parametrize(
    "prepare",
    [lambda net: net.offload(), lambda net: net.tanh._offload(), lambda net: net.offload(0)],
    ids=["network", "operator", "not ahead"],
)
def test_activations_wait_on_the_host(prepare):
    """What is sent comes back, and values are equal."""
    run = train(prepare=prepare)
    check_equal(run)
    assert (
        run[3].as_text().count("optimization_barrier") >= 1
    )  # CPUs compile transfers to nothing, what orders them stays


def test_offloaded_checkpoints_are_what_recomputed_cells_keep():
    ms.set_context(memory_offload="ON")
    ms.set_offload_context({"offload_checkpoint": "cpu"})
    run = train(prepare=lambda net: net.last.recompute(output_recompute=True))
    check_equal(run)


@pytest.mark.parametrize(("value", "kind"), [(3, TypeError), ("TPU", ValueError), ("Ascend", ValueError)])
def test_targets_of_optimizers_are_checked(value, kind):
    update = nn.Adam([ms.Parameter(Tensor([1.0]), name="w")])
    with pytest.raises(kind, match="For 'Adam', 'target' must be"):
        update.target = value


@pytest.mark.parametrize(("value", "kind"), [("Soon", ValueError), (-1, ValueError), (1.5, TypeError)])
def test_prefetch_is_checked(value, kind):
    with pytest.raises(kind, match="For 'Cell.offload'"):
        nn.Dense(1, 1).offload(value)


def test_round_trips_are_taken_out():
    """A value that comes from the host and goes back is not moved."""
    from sporax.lowering.marks.host_transfer import DEVICE, HOST, stored_on_host, without_round_trips

    def program(x):
        there = jax.device_put(jax.device_put(x, DEVICE), HOST)
        return there, jax.device_put(x, DEVICE).sum()

    before = flat(jax.make_jaxpr(program)(stored_on_host(jax.numpy.ones(4))))
    assert len(transfers(before)) == 3 and len(transfers(without_round_trips(before))) == 1
