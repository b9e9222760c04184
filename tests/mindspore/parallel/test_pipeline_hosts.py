"""Host memory in pipelines: training is that of one device, and values are where the settings say, between steps and in them."""

import re
import warnings
from functools import cache

import jax
import numpy as np
import pytest
from pipeline_cases import settings

import sporax.mindspore as ms
from sporax.lowering.marks.host_transfer import transfers
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.context import reset_offload_context
from sporax.mindspore.parallel.nn import PipelineCell
from sporax.runtime.pipeline.stage_program import bytes_on, jitted_program

ROWS, WIDTH, BATCH, FIELDS, MICRO = 64, 8, 16, 3, 4
IDS = np.random.default_rng(0).integers(-1, ROWS + 1, (BATCH, FIELDS)).astype(np.int32)  # some are outside of the table
ALL = {"offload_param": "cpu", "auto_offload": False}
OPTIMIZER_PARALLEL = {
    "enable_parallel_optimizer": True,
    "parallel_optimizer_config": {"parallel_optimizer_threshold": 0},
}


@pytest.fixture(autouse=True)
def without_offload():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    reset_offload_context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ms.set_context(memory_offload="OFF", max_device_memory="1024GB")


class Net(nn.Cell):
    """Rows of a table, and a layer in each of two stages, cut over the four devices of its stage where that is requested."""

    def __init__(self, sharded=False, **table):
        super().__init__()
        self.table = nn.EmbeddingLookup(ROWS, WIDTH, **table)
        self.layers = nn.CellList([nn.SequentialCell(nn.Dense(WIDTH, WIDTH), nn.Tanh()) for _ in range(2)])
        self.table.pipeline_stage = 0
        for number, layer in enumerate(self.layers):
            layer.pipeline_stage = number
            if sharded:
                layer[0].matmul.shard(((2, 1), (2, 1)) if number % 2 else ((1, 2), (2, 2)))

    def construct(self, ids):
        x = self.table(ids).sum(1)
        for layer in self.layers:
            x = x + layer(x)
        return ops.square(x).mean()


def built(
    stages=2, net=None, prepare=lambda net: None, offload=None, target=None, optimizer=nn.Adam, schedule="1f1b", **more
):
    """A step of the network with these settings (`net`), its optimizer with this `target`, under these settings of offload."""
    settings(stages, schedule, **({"full_batch": True, **more} if stages > 1 else {}))
    reset_offload_context()
    ms.set_context(memory_offload="OFF" if offload is None else "ON")
    ms.set_offload_context(offload or {})
    ms.set_seed(2)
    network = Net(**{"target": "DEVICE", **(net or {})})
    prepare(network)
    update = optimizer(network.trainable_params(), 0.1)
    if target is not None:
        update.target = target
    return nn.TrainOneStepCell(PipelineCell(network, MICRO), update).set_train()


def trained(*args, **kwargs):
    """Losses of two steps, values afterwards, and the step."""
    step = built(*args, **kwargs)
    losses = [step(Tensor(IDS)).asnumpy().item() for _ in range(2)]
    assert len(step.program.compilations) == 1
    return losses, {parameter.name: parameter.asnumpy() for parameter in step.get_parameters()}, step


@cache
def on_one_device(optimizer):
    ms.set_context(memory_offload="OFF")
    return trained(1, optimizer=optimizer)[:2]


def assert_same(result, optimizer=nn.Adam):
    losses, values = on_one_device(optimizer)
    np.testing.assert_allclose(result[0], losses, rtol=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(result[1][name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def on_hosts(step):
    return {item.name for item in step.get_parameters() if item.raw.sharding.memory_kind == "pinned_host"}


def pipeline(step):
    # Settings may be others by now, under which it would be planned anew.
    return (step.program.planned or step.program.plan(Tensor(IDS))).pipeline


def sent(step, chunk):
    """What each device of a stage sends, by program: directions and bytes."""
    programs = pipeline(step).chunks[chunk].programs
    found = {}
    for name in ("prepare", "forward", "backward"):
        jitted, shapes = jitted_program(getattr(programs, name), {})
        found[name] = transfers(jitted.trace(*shapes).jaxpr)
    jitted, shapes = jitted_program(programs.updates[-1], {})
    return {**found, "update": transfers(jitted.trace(*shapes).jaxpr)}


@pytest.mark.parametrize("sharding", [{}, {"net": {"sharded": True}, **OPTIMIZER_PARALLEL}], ids=["whole", "sharded"])
@pytest.mark.sampled(1)
def test_parameters_and_state_are_on_the_hosts_between_steps(sharding):
    result = trained(offload=ALL, **sharding)
    assert_same(result)
    step = result[2]
    variables = {item.name: item for item in step.get_parameters()}
    assert on_hosts(step) == {name for name, item in variables.items() if item.shape}
    # Of each stage's first device: nothing is left there but the learning rate and the like.
    for device in (jax.devices()[0], jax.devices()[4]):
        assert bytes_on(device, [item.raw for item in variables.values()]) <= 4 * len(variables.keys() - on_hosts(step))


def test_a_prediction_reads_what_offload_has_sent_away():
    step = built(offload=ALL)
    step(Tensor(IDS))
    network = step.network.network.set_train(False)
    loss = network(Tensor(IDS)).asnumpy().item()
    np.testing.assert_allclose((network.layers[0][0].weight * 2).asnumpy(), 2 * network.layers[0][0].weight.asnumpy())
    assert on_hosts(step) >= {"table.embedding_table", "layers.0.0.weight"}
    # PipelineCell adds the losses of micro batches up.
    np.testing.assert_allclose(step(Tensor(IDS)).asnumpy().item(), MICRO * loss, rtol=1e-5)


def test_weights_are_fetched_once_a_step_and_moments_only_by_the_update():
    step = built(offload=ALL)
    weight = WIDTH * WIDTH * 4
    ways = sent(step, 1)
    assert ways["forward"] == ways["backward"] == []
    assert [entry for entry in ways["prepare"] if entry[1] == weight] == [("to device", weight)]
    assert len([entry for entry in ways["update"] if entry == ("to device", weight)]) == 3
    assert len([entry for entry in ways["update"] if entry == ("to host", weight)]) == 3


def test_an_optimizer_of_the_host_updates_there():
    """Parameters and state never come back to a device in the update: gradients go to the host."""
    result = trained(net={"sharded": True}, target="CPU")
    assert_same(result)
    names = on_hosts(result[2])
    assert {name.split(".")[0] for name in names} == {"table", "layers", "moment1", "moment2"}
    assert "to device" not in {way for way, _ in sent(result[2], 1)["update"]}


@pytest.mark.parametrize(("optimizer", "target"), [(nn.LazyAdam, "CPU"), (nn.LazyAdam, None), (nn.Adam, "CPU")])
@pytest.mark.sampled(1)
def test_a_table_of_the_host_trains_like_one_of_a_device(optimizer, target):
    result = trained(net={"target": "CPU"}, optimizer=optimizer, target=target)
    assert_same(result, optimizer)
    tables = {name for name in on_hosts(result[2]) if "embedding_table" in name}
    assert len(tables) == (1 if target is None else 3)


@pytest.mark.parametrize("slice_mode", ["table_row_slice", "table_column_slice"])
@pytest.mark.sampled(1)
def test_each_host_has_its_part_of_a_table_in_slices(slice_mode):
    result = trained(
        net={"target": "CPU", "slice_mode": slice_mode, "sharded": True}, target="CPU", optimizer=nn.LazyAdam
    )
    assert_same(result, nn.LazyAdam)
    table = next(item for item in result[2].get_parameters() if item.name == "table.embedding_table")
    assert table.raw.sharding.memory_kind == "pinned_host"
    assert len(table.raw.sharding.device_set) == 4
    assert np.prod(table.raw.sharding.shard_shape(table.shape)) == ROWS * WIDTH // 4


def test_ids_and_rows_travel_and_no_table():
    """Each device fetches the rows of its part of a micro batch; ids and rows of all of it go to every host, which adds them up."""
    ways = sent(built(net={"target": "CPU"}, target="CPU", optimizer=nn.LazyAdam), 0)
    ids = BATCH // MICRO * FIELDS
    assert ways["forward"] == [("to host", ids // 4 * 4), ("to device", ids // 4 * WIDTH * 4)]
    assert ways["backward"] == [("to host", ids * 4), ("to host", ids * WIDTH * 4)]
    assert max(size for _, size in ways["update"]) <= WIDTH * WIDTH * 4 < ROWS * WIDTH * 4


def test_a_marked_operator_runs_on_the_host_of_its_stage():
    result = trained(prepare=lambda net: net.layers[1][0].matmul.set_device("CPU"))
    assert_same(result)
    rows, weight = BATCH // MICRO * WIDTH * 4 // 4, WIDTH * WIDTH * 4
    assert sent(result[2], 1)["forward"] == [("to host", weight), ("to host", rows), ("to device", rows)]
    assert sent(result[2], 0)["forward"] == []


def every_layer(method):
    def prepare(net):
        for layer in net.layers:
            getattr(layer, method)()

    return prepare


@pytest.mark.parametrize(
    ("prepare", "offload", "schedule"),
    [
        (every_layer("offload"), None, "gpipe"),
        (lambda net: net.layers[1][1].tanh._offload(), None, "1f1b"),
        (every_layer("recompute"), {"offload_checkpoint": "cpu"}, "1f1b"),
    ],
    ids=["Cell.offload", "Primitive._offload", "offload_checkpoint"],
)
def test_activations_wait_on_the_hosts(prepare, offload, schedule):
    """What the forward program of a stage sends, its backward program fetches; what arrives from the stage before waits as well."""
    result = trained(prepare=prepare, offload=offload, schedule=schedule)
    assert_same(result)
    ways = sent(result[2], 1)
    assert {way for way, _ in ways["forward"]} == {"to host"} and {way for way, _ in ways["backward"]} == {"to device"}
    assert len(ways["forward"]) == len(ways["backward"])
    assert {size for _, size in ways["forward"]} == {BATCH // MICRO * WIDTH * 4 // 4}


def test_a_prefetch_that_stages_do_not_have_is_reported():
    def prepare(net):
        net.layers[0].offload(backward_prefetch=3)

    step = built(prepare=prepare)
    with pytest.warns(UserWarning, match="'backward_prefetch' 3 has no effect with 2 pipeline stages"):
        step.program.plan(Tensor(IDS))


def test_automatic_offload_takes_of_each_stage_what_does_not_fit():
    """The largest that helps goes first: moments of the table. The stage that fits keeps all."""
    step = built()
    peaks = [stage.peak_bytes for stage in step.program.plan(Tensor(IDS)).simulate().stages]
    assert peaks[1] < peaks[0] - 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ms.set_context(max_device_memory=f"{(peaks[0] - 100) / 2**30:.12f}GB")
    result = trained(offload={"auto_offload": True})
    assert_same(result)
    assert on_hosts(result[2]) == {"moment1.table.embedding_table"}
    after = [stage.peak_bytes for stage in result[2].program.planned.simulate().stages]
    assert after[0] <= peaks[0] - 100 and after[1] == peaks[1]


def test_automatic_offload_knows_that_a_table_is_on_the_host_already():
    def planned(limit, **more):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ms.set_context(max_device_memory=f"{limit / 2**30:.12f}GB")
        return built(net={"target": "CPU"}, **more).program.plan(Tensor(IDS))

    free = planned(2**40)
    table = free.pipeline.on_host
    peak = max(stage.peak_bytes for stage in free.simulate().stages)
    assert len(table) == 1
    assert planned(peak + 10, offload={"auto_offload": True}).pipeline.on_host == table
    assert planned(peak - 10, offload={"auto_offload": True}).pipeline.on_host > table


def test_too_little_room_on_the_hosts_is_an_error():
    step = built(offload={**ALL, "offload_cpu_size": "0.000001GB"})
    with pytest.raises(RuntimeError, match="'offload_cpu_size' times 'cpu_ratio' is 1073 bytes, but"):
        step(Tensor(IDS))


@pytest.mark.parametrize("setting", ["offload_param", "offload_checkpoint"])
def test_files_are_refused(tmp_path, setting):
    step = built(offload={setting: "disk", "auto_offload": False, "offload_path": str(tmp_path)})
    with pytest.raises(NotImplementedError, match="'disk' is offered in steps of one device"):
        step(Tensor(IDS))


def test_the_plan_says_what_is_on_the_hosts_and_what_travels():
    step = built(net={"target": "CPU"}, offload=ALL)
    text = " ".join(str(step.program.plan(Tensor(IDS)).summary()).split())
    assert re.search(r"stage 0: host memory of each device: .* of table.embedding_table", text)
    assert re.search(r"stage 1: every device sends .* to its host in \d+ transfers a step, and fetches", text)
    other = " ".join(str(built().program.plan(Tensor(IDS)).summary()).split())
    assert "host" not in other


def test_checkpoints_of_such_a_step_go_on_where_they_were(tmp_path):
    def make():
        return built(net={"target": "CPU", "sharded": True}, target="CPU", optimizer=nn.LazyAdam)

    step = make()
    losses = [step(Tensor(IDS)).asnumpy().item() for _ in range(2)]
    ms.save_checkpoint(step, str(tmp_path / "step.ckpt"))
    losses.append(step(Tensor(IDS)).asnumpy().item())
    other = make()
    other(Tensor(IDS))
    missing, _ = ms.load_param_into_net(other, ms.load_checkpoint(str(tmp_path / "step.ckpt")))
    assert not missing
    assert other(Tensor(IDS)).asnumpy().item() == losses[2]
    assert on_hosts(other) == on_hosts(step) and "table.embedding_table" in on_hosts(step)


@pytest.mark.parametrize("cut", [True, False], ids=["a table in parts", "a whole table"])
@pytest.mark.sampled(1)
def test_all_five_features_in_one_program(cut):
    """Operator parallelism, pipeline, optimizer parallelism, recomputation and host-device training, like one device."""

    def prepare(net):
        net.table.embedding_table.parallel_optimizer = cut
        for layer in net.layers:
            layer.recompute()

    result = trained(
        net={"target": "CPU", "sharded": True},
        prepare=prepare,
        target="CPU",
        optimizer=nn.LazyAdam,
        offload={**ALL, "offload_checkpoint": "cpu"},
        **OPTIMIZER_PARALLEL,
    )
    assert_same(result, nn.LazyAdam)
    step = result[2]
    chunks = pipeline(step).chunks
    assert len(chunks) == 2
    assert any(equation.again for chunk in chunks for equation in chunk.chunk.step.equations)
    variables = {item.name: item.raw for item in step.get_parameters()}
    assert {"table.embedding_table", "layers.1.0.weight", "moment1.layers.0.0.weight"} <= on_hosts(step)
    # A moment is cut further than its product needs.
    moment = variables["moment1.layers.1.0.weight"]
    assert np.prod(moment.sharding.shard_shape(moment.shape)) == WIDTH * WIDTH // 4
    # Optimizer parallelism gathers what it keeps in parts; a whole table never leaves its hosts.
    table = variables["table.embedding_table"]
    assert np.prod(table.sharding.shard_shape(table.shape)) == ROWS * WIDTH // (4 if cut else 1)
    largest = max(size for ways in sent(step, 0).values() for _, size in ways)
    assert cut or largest <= BATCH // MICRO * FIELDS * WIDTH * 4
