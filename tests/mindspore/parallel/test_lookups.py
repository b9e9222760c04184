"""Recommendation operators on eight devices: lookups in cut tables, tables in uneven parts, and the layers made of them."""

import re

import numpy as np
import pytest
from program_text import planned_bytes, read_collectives

import sporax.mindspore as ms
from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.nn.utils import no_init_parameters
from sporax.mindspore.parallel import plan_of, shard
from sporax.mindspore.train import load_checkpoint, save_checkpoint, transform_checkpoints
from sporax.mindspore.train.checkpoint.strategy import read_strategy

RNG = np.random.default_rng(0)
ROWS = (5, 9, 4, 6, 8, 4, 7, 5)
BATCH, FIELDS, WIDTH, CLASSES = 16, 16, 8, 4
TABLE = RNG.normal(size=(16, 8)).astype(np.float32)
IDS = RNG.integers(0, 16, (8, 4)).astype(np.int32)
LABELS = RNG.integers(0, CLASSES, BATCH).astype(np.int32)


@pytest.fixture(autouse=True)
def graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


def ids_in(rows, offsets=None):
    """Indices whose fields point into their parts."""
    starts = np.cumsum((0, *rows[:-1])) if offsets is None else offsets
    per_part = FIELDS // len(rows)
    columns = [RNG.integers(0, rows[field // per_part], BATCH) + starts[field // per_part] for field in range(FIELDS)]
    return np.stack(columns, 1).astype(np.int32)


SPLIT_IDS = ids_in(ROWS)


def on_devices(**settings):
    context.reset_auto_parallel_context()
    settings = {"parallel_mode": "semi_auto_parallel", "dataset_strategy": "full_batch", **settings}
    context.set_auto_parallel_context(device_num=8, **settings)


def on_one():
    context.reset_auto_parallel_context()


def slice_shape(parameter):
    """What one device holds of a Parameter, in the form that steps use."""
    held = parameter.parts.array if hasattr(parameter, "parts") else parameter.array
    return held.addressable_shards[0].data.shape


# ------------------------------------------------------------------------------------------------------ tables in even parts


class Slopes(nn.Cell):
    """The sum of the squares of what is found, for its slopes in the table."""

    def __init__(self, find):
        super().__init__()
        self.table = ms.Parameter(Tensor(TABLE), name="table")
        self.find = find

    def construct(self, ids):
        return ops.square(self.find(self.table, ids)).sum()


def slopes(find, ids=IDS):
    net = Slopes(find)
    step = ms.jit(ms.value_and_grad(net, None, net.trainable_params()))
    value, gradients = step(Tensor(ids))
    return float(value), gradients[0].asnumpy(), step


def gather(primitive):
    return lambda table, ids: primitive(table, ids, 0)


def embedding(*strategy):
    actual = shard(ops.embedding, *strategy)
    return lambda table, ids: actual(ids, table)


BY_ROW = ((8, 1), (1, 1))
CASES = {
    "rows": (lambda: gather(ops.Gather().shard(BY_ROW)), "reduce_scatter"),
    "rows, gathered": (lambda: gather(ops.Gather().shard(BY_ROW, ((1, 1, 1),))), "all_reduce"),
    "rows, scattered": (lambda: gather(ops.Gather().shard(BY_ROW, ((8, 1, 1),))), "reduce_scatter"),
    "columns": (lambda: gather(ops.Gather().shard(((1, 8), (1, 1)))), None),
    "batch": (lambda: gather(ops.Gather().shard(((1, 1), (8, 1)))), None),
    "batch and rows": (lambda: gather(ops.Gather().shard(((4, 1), (2, 1)))), "all_reduce"),
    "batch, fields and rows": (lambda: gather(ops.Gather().shard(((2, 1), (2, 2)))), "all_reduce"),
    "repeated": (lambda: gather(ops.Gather().shard(((4, 1), (1, 1)))), "reduce_scatter"),
    "sparse": (lambda: gather(ops.SparseGatherV2().shard(BY_ROW)), "reduce_scatter"),
    "lookup": (lambda: gather(ops.EmbeddingLookup().shard(BY_ROW)), "reduce_scatter"),
    "lookup on the host": (
        lambda: gather(ops.EmbeddingLookup().shard(BY_ROW).add_prim_attr("primitive_target", "CPU")),
        "reduce_scatter",
    ),
    "embedding": (lambda: embedding(((1, 1), (8, 1))), "reduce_scatter"),
    "embedding, gathered": (lambda: embedding(((1, 1), (8, 1)), ((1, 1, 1),)), "all_reduce"),
    "embedding, batch and rows": (lambda: embedding(((2, 1), (4, 1))), "all_reduce"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(7)
def test_a_sharded_table_finds_what_an_unsharded_one_does(name):
    make, combined = CASES[name]
    value, gradient, _ = slopes(lambda table, ids: ops.gather(table, ids, 0))
    on_devices()
    actual, slope, step = slopes(make())
    np.testing.assert_allclose(actual, value, rtol=1e-5)
    np.testing.assert_allclose(slope, gradient, rtol=1e-5)
    planned = plan_of(step, Tensor(IDS))
    on_host = [note for note in planned.plan.notes if note.startswith("every device sends")]
    assert (list(planned.plan.notes), bool(on_host)) == (on_host, name == "lookup on the host")
    assert planned_bytes(planned) == read_collectives(step.program.executable.as_text())
    (row,) = (
        row
        for row in planned.summary().operators
        if row.phase == "forward" and row.name in {"Gather", "SparseGatherV2", "EmbeddingLookup", "embedding"}
    )
    assert [collective.kind for collective in row.collectives] == ([] if combined is None else [combined])


def test_a_lookup_may_count_from_an_offset():
    lookup = ops.EmbeddingLookup()
    value, gradient, _ = slopes(lambda table, ids: lookup(table, ids, 3))
    on_devices()
    actual, slope, _ = slopes(lambda table, ids: lookup.shard(BY_ROW)(table, ids, 3))
    np.testing.assert_allclose(actual, value, rtol=1e-5)
    np.testing.assert_allclose(slope, gradient, rtol=1e-5)


def test_rows_are_all_reduced_where_the_batch_does_not_divide():
    ids = IDS[:6]
    value, gradient, _ = slopes(lambda table, ids: ops.gather(table, ids, 0), ids)
    on_devices()
    actual, slope, step = slopes(gather(ops.Gather().shard(BY_ROW)), ids)
    np.testing.assert_allclose(actual, value, rtol=1e-5)
    np.testing.assert_allclose(slope, gradient, rtol=1e-5)
    assert "reduce_scatter" not in planned_bytes(plan_of(step, Tensor(ids)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gather(ops.Gather().shard(((4, 1), (1, 2)))), "indices must stay whole"),
        (lambda: gather(ops.Gather().shard(((2, 2), (2, 1)))), "indices must stay whole"),
        (lambda: gather(ops.Gather().shard(((2, 1), (2, 1)))), r"all numbers multiply to 8"),
        (lambda: embedding(((1, 2), (4, 1))), "indices must stay whole"),
        (lambda: lambda table, ids: ops.Gather().shard(((1, 4), (1, 1)))(table, ids % 8, 1), "must use all 8 devices"),
        (lambda: gather(ops.Gather().shard(BY_ROW, ((2, 1, 1),))), "'out_strategy' must be one of"),
        (lambda: lambda table, ids: ops.Gather().shard(((8, 1), ()))(table, ids[0, 0], 0), "indices at least 1"),
        (
            lambda: lambda table, ids: ops.Gather().shard(((8, 1, 1), (1, 1)))(table.reshape((8, 2, 8)), ids % 8, 0),
            "1 or 2 dimensions",
        ),
    ],
)
def test_strategies_that_a_lookup_refuses(make, words):
    on_devices()
    with pytest.raises(SporaxRuntimeError, match=words) as error:
        slopes(make())
    assert "Slopes" in str(error.value)


def test_a_batch_dimension_of_a_lookup_keeps_its_axis_whole():
    on_devices()
    lookup = ops.Gather(1).shard(((2, 4), (2, 1)))
    with pytest.raises(SporaxRuntimeError, match="must stay whole"):
        slopes(lambda table, ids: lookup(table[:8], ids, 1))


# ---------------------------------------------------------------------------------------------------- tables in uneven parts


class Net(nn.Cell):
    """One table for all fields, and a layer on top."""

    def __init__(self, strategy=((8, 1), (1, 8)), table=None, axis=0, operator=ops.Gather, **attributes):
        super().__init__()
        shape = [sum(attributes.get("rows", ROWS)), WIDTH]
        self.table = ms.Parameter(initializer("normal", shape, ms.float32) if table is None else table, name="table")
        self.gather = operator()
        if strategy is not None:
            self.gather.shard(strategy)
        for name, value in attributes.items():
            if name != "rows":
                self.gather.add_prim_attr(name, value)
        self.fc = nn.Dense(FIELDS * WIDTH, CLASSES)
        self.axis = axis

    def construct(self, ids):
        return self.fc(ops.reshape(self.gather(self.table, ids, self.axis), (-1, FIELDS * WIDTH)))


def train(build, ids=SPLIT_IDS, steps=4, optimizer=None):
    """Losses, the step, and the net."""
    ms.set_seed(1)
    net = build()
    net.set_train()
    optimizer = (optimizer or (lambda params: nn.Adam(params, 0.01)))(net.trainable_params())
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    return [float(step(Tensor(ids), Tensor(LABELS))) for _ in range(steps)], step, net


def uneven():
    return Net(manual_split=ROWS)


def both(build, **settings):
    """A net trained on one device and on eight: table and step of the second, after comparing the losses."""
    on_one()
    ids = settings.pop("ids", SPLIT_IDS)
    optimizer = settings.pop("optimizer", None)
    alone, _, first = train(lambda: Net(None, rows=settings.get("rows", ROWS)), ids, optimizer=optimizer)
    settings.pop("rows", None)
    on_devices(**settings)
    cut, step, second = train(build, ids, optimizer=optimizer)
    np.testing.assert_allclose(cut, alone, rtol=2e-5)
    np.testing.assert_allclose(second.table.asnumpy(), first.table.asnumpy(), atol=2e-6)
    step(Tensor(ids), Tensor(LABELS))
    return second, step, step.program.plan(Tensor(ids), Tensor(LABELS))


def brought_together(planned):
    return [note for note in planned.plan.notes if "gathered for an operator" in note]


def test_uneven_parts_train_as_one_device_does_and_nothing_travels():
    net, step, planned = both(uneven)
    assert slice_shape(net.table) == (max(ROWS), WIDTH)
    assert planned_bytes(planned) == read_collectives(step.program.executable.as_text())
    reduced = re.findall(r"= (.*?) all-reduce\(", step.program.executable.as_text())
    shapes = {shape for item in reduced for shape in re.findall(r"f32\[[\d,]*\]", item)}  # XLA may merge them
    assert shapes == {"f32[]", f"f32[{CLASSES},{FIELDS * WIDTH}]", f"f32[{CLASSES}]"}  # loss, fc.weight, fc.bias
    rows = [row for row in planned.summary().operators if row.name == "Gather"]
    assert {row.phase for row in rows} == {"forward", "backward"}
    assert not any(row.collectives for row in rows)


@pytest.mark.parametrize("suffix", ["json", "ckpt"])
def test_strategy_files_have_the_sizes_of_the_parts(tmp_path, suffix):
    file = str(tmp_path / f"strategy.{suffix}")
    net, _, _ = both(uneven, strategy_ckpt_save_file=file)
    strategy = read_strategy("test", "file", file)
    layout = strategy.layout("table", 0)
    assert layout.split_rows == ROWS
    table = net.table.asnumpy()
    for rank in range(8):
        (tmp_path / f"rank_{rank}").mkdir()
        held = {"table": Tensor(table[layout.region(rank, table.shape)])}
        save_checkpoint(held, str(tmp_path / f"rank_{rank}" / "net.ckpt"))
    transform_checkpoints(str(tmp_path), str(tmp_path / "whole"), "net", file, None)
    (whole,) = load_checkpoint(str(tmp_path / "whole" / "rank_0" / "net0.ckpt")).values()
    np.testing.assert_array_equal(whole.asnumpy(), table)


def test_columns_may_be_sharded_as_well():
    rows = (14, 10, 12, 12)
    net, _, planned = both(lambda: Net(((4, 2), (1, 4)), manual_split=rows), ids=ids_in(rows))
    assert slice_shape(net.table) == (14, WIDTH // 2)
    places = planned.graph.inputs, planned.plan.inputs
    (table,) = (where for item, where in zip(*places, strict=True) if item.name == "table")
    assert table.dims == ((0, 1), (2,))  # rank r has part r // 2


OPTIMIZERS = {
    "momentum": lambda params: nn.Momentum(params, 0.01, 0.9),
    "lamb": lambda params: nn.Lamb(params, 0.01),  # norms of the whole table
    "adafactor": lambda params: nn.AdaFactor(params, 0.01, scale_parameter=False, relative_step=False),  # means of it
    "lazy": lambda params: nn.LazyAdam(params, 0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_update_the_rows_that_there_are(name):
    _, step, planned = both(uneven, optimizer=OPTIMIZERS[name])
    assert not brought_together(planned)
    state = [item for item in step.get_parameters() if hasattr(item, "parts")]
    assert len(state) == len(planned.blocked) >= 2


def test_state_settings_and_searches_keep_the_parts():
    parallel = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    assert slice_shape(both(uneven, **parallel)[0].table) == (9, WIDTH)
    for search in ("recursive_programming", "dynamic_programming", "sharding_propagation"):
        net, _, planned = both(uneven, parallel_mode="auto_parallel", search_mode=search)
        assert slice_shape(net.table) == (9, WIDTH), search
        assert not brought_together(planned)


def test_offsets_count_each_field_from_where_it_likes():
    offsets = (0, 0, 100, 3, 0, 20, 0, 7)
    ids = ids_in(ROWS, offsets)
    shifted = ids + np.repeat(np.cumsum((0, *ROWS[:-1])) - offsets, 2).astype(np.int32)
    alone, _, _ = train(lambda: Net(None), shifted)
    on_devices()
    cut, _, _ = train(lambda: Net(manual_split_with_offset=tuple(zip(ROWS, offsets, strict=True))), ids)
    np.testing.assert_allclose(cut, alone, rtol=2e-5)


def test_an_index_outside_its_part_finds_zeros():
    on_devices()
    net = Net(manual_split=ROWS)
    actual = ms.jit(lambda ids: net.gather(net.table, ids, 0))(Tensor(np.full((1, FIELDS), 7, np.int32))).asnumpy()
    assert np.flatnonzero(actual[0].any(1)).tolist() == [2, 3]  # the second part has rows 5 to 13
    np.testing.assert_array_equal(actual[0, 2], net.table.asnumpy()[7])


def test_equal_parts_need_no_spare_rows():
    net, _, planned = both(lambda: Net(rows=(6,) * 8, manual_split=(6,) * 8), ids=ids_in((6,) * 8), rows=(6,) * 8)
    assert slice_shape(net.table) == (6, WIDTH)
    assert planned.blocked == {}


def test_loss_scaling_chooses_between_updates_on_blocks():
    def run():
        ms.set_seed(1)
        net = Net(manual_split=ROWS) if context.get_auto_parallel_context("device_num") == 8 else Net(None)
        scale = ms.DynamicLossScaleManager(init_loss_scale=1024)
        step = ms.amp.build_train_network(
            net, nn.Adam(net.trainable_params(), 0.01), nn.CrossEntropyLoss(), "O0", loss_scale_manager=scale
        )
        results = [float(step(Tensor(SPLIT_IDS), Tensor(LABELS))[0]) for _ in range(3)]
        return results, step

    alone, _ = run()
    on_devices()
    cut, step = run()
    assert cut[2] != cut[0]
    np.testing.assert_allclose(cut, alone, rtol=2e-5)
    assert not brought_together(step.program.plan(Tensor(SPLIT_IDS), Tensor(LABELS)))


def test_whoever_reads_sees_rows():
    """Values, checkpoints, gradients handed out: the table as its user made it."""
    on_devices()
    net = uneven()
    step = ms.jit(ms.value_and_grad(lambda ids: ops.square(net(ids)).sum(), None, net.trainable_params()))
    _, gradients = step(Tensor(SPLIT_IDS))
    assert gradients[0].shape == net.table.shape == (sum(ROWS), WIDTH)
    assert brought_together(plan_of(step, Tensor(SPLIT_IDS)))
    on_one()
    alone = ms.jit(ms.value_and_grad(lambda ids: ops.square(net(ids)).sum(), None, net.trainable_params()))
    np.testing.assert_allclose(gradients[0].asnumpy(), alone(Tensor(SPLIT_IDS))[1][0].asnumpy(), rtol=1e-4, atol=1e-6)


def test_checkpoints_hold_the_table(tmp_path):
    on_devices()
    _, step, net = train(uneven, steps=1)
    path = str(tmp_path / "net.ckpt")
    ms.save_checkpoint(net, path)
    before = net(Tensor(SPLIT_IDS)).asnumpy()
    step(Tensor(SPLIT_IDS), Tensor(LABELS))
    assert np.abs(net(Tensor(SPLIT_IDS)).asnumpy() - before).max() > 0
    loaded = ms.load_checkpoint(path)
    assert loaded["table"].shape == (sum(ROWS), WIDTH)
    ms.load_param_into_net(net, loaded)
    np.testing.assert_array_equal(net(Tensor(SPLIT_IDS)).asnumpy(), before)
    on_one()
    np.testing.assert_allclose(net(Tensor(SPLIT_IDS)).asnumpy(), before, rtol=1e-5, atol=1e-6)


def test_lazy_tables_are_made_in_blocks_with_the_values_of_one_device():
    ms.set_seed(5)
    whole = Net(None).table.asnumpy()
    on_devices()
    ms.set_seed(5)
    with no_init_parameters():
        net = uneven()
    assert net.table.has_init
    net(Tensor(SPLIT_IDS))
    assert slice_shape(net.table) == (9, WIDTH)
    np.testing.assert_array_equal(net.table.asnumpy(), whole)


def test_the_plan_says_how_a_table_is_kept():
    on_devices()
    summary = plan_of(uneven(), Tensor(SPLIT_IDS)).summary()
    (row,) = (row for row in summary.tensors if row.name == "table")
    assert row.num_bytes == max(ROWS) * WIDTH * 4
    assert f"table: 48 rows in parts of {ROWS}, kept in blocks of 9" in summary.notes


# -------------------------------------------------------------------------------------------------------- what is refused

EVEN = {"rows": (6,) * 8, "manual_split": (6,) * 8}
REFUSED = {
    "list": (lambda: Net(manual_split=list(ROWS)), r"must be a tuple of positive ints.* but got \[5, 9"),
    "negative": (lambda: Net(manual_split=(-5, 9, 4, 6, 8, 4, 7, 15)), "must be a tuple of positive ints"),
    "sum": (lambda: Net(manual_split=(5,) * 8), "sum up to the 48 rows of the table, but got 40"),
    "table cut": (lambda: Net(((4, 1), (1, 8)), manual_split=ROWS), "sharded into 8, but got 4 and 8"),
    "fields cut": (lambda: Net(((8, 1), (1, 4)), manual_split=ROWS), "sharded into 8, but got 8 and 4"),
    "parts": (lambda: Net(((4, 1), (1, 4)), **EVEN), "has 8 parts.* but got 4 and 4"),
    "batch cut": (
        lambda: Net(((4, 1), (2, 4)), rows=(12,) * 4, manual_split=(12,) * 4),
        "last dimension of the indices only",
    ),
    "small part": (lambda: Net(manual_split=(1, 13, 4, 6, 8, 4, 7, 5)), "at least 2 rows in each part.* but got 1"),
    "repeated": (lambda: Net(((4, 1), (1, 4)), rows=(12,) * 4, manual_split=(12,) * 4), "all 8 devices.* but got 4"),
    "strategy": (lambda: Net(None, manual_split=ROWS), "needs a strategy"),
    "values": (
        lambda: Net(table=Tensor(np.zeros((48, WIDTH), np.float32)), manual_split=ROWS),
        "made by an initializer",
    ),
    "pairs": (lambda: Net(manual_split_with_offset=ROWS), r"must be a tuple of \(rows, offset\) pairs"),
    "both": (
        lambda: Net(manual_split=ROWS, manual_split_with_offset=tuple((rows, 0) for rows in ROWS)),
        "must not be given together",
    ),
    "offset": (lambda: Net(axis=3, operator=ops.EmbeddingLookup, manual_split=ROWS), "'offset' of 0, but got 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_parts_that_do_not_fit_name_the_operator_and_both_values(name):
    build, words = REFUSED[name]
    on_devices()
    with pytest.raises(SporaxRuntimeError, match=words) as error:
        train(build, steps=1)
    assert "_backbone.gather" in str(error.value)


def test_few_rows_odd_fields_and_other_axes_are_refused():
    on_devices()
    with pytest.raises(SporaxRuntimeError, match="as many rows as the 16 fields of the indices, but got 8"):
        train(lambda: Net(rows=(1,) * 8, manual_split=(1,) * 8), steps=1)
    net = uneven()
    lookup = ms.jit(lambda ids: net.gather(net.table, ids, 0))
    with pytest.raises(SporaxRuntimeError, match="must divide the fields of the indices, but got 12"):
        lookup(Tensor(SPLIT_IDS[:, :12]))
    with pytest.raises(SporaxRuntimeError, match=r"For 'gather \(Gather\)'.* 'axis' must be 0, but got 1"):
        ms.jit(lambda ids: net.gather(net.table, ids, 1))(Tensor(SPLIT_IDS % WIDTH))


def test_automatic_parallelism_wants_a_strategy():
    on_devices(parallel_mode="auto_parallel", search_mode="dynamic_programming")
    with pytest.raises(SporaxRuntimeError, match="no search can choose one"):
        train(lambda: Net(None, manual_split=ROWS), steps=1)


def test_two_users_of_a_table_shard_it_equally():
    class Twice(nn.Cell):
        def __init__(self, second):
            super().__init__()
            self.table = ms.Parameter(initializer("normal", [sum(ROWS), WIDTH], ms.float32), name="table")
            self.left = ops.Gather().shard(((8, 1), (1, 8))).add_prim_attr("manual_split", ROWS)
            self.right = ops.Gather().shard(((8, 1), (1, 8))).add_prim_attr("manual_split", second)

        def construct(self, ids):
            return self.left(self.table, ids, 0) * self.right(self.table, ids, 0)

    on_devices()
    expected = None
    net = Twice(ROWS)
    expected = net.table.asnumpy()[SPLIT_IDS] ** 2
    np.testing.assert_allclose(net(Tensor(SPLIT_IDS)).asnumpy(), expected, rtol=1e-6)
    with pytest.raises(SporaxRuntimeError, match="same parts by all its users"):
        Twice((6,) * 8)(Tensor(SPLIT_IDS))


def test_lookups_inside_loops_are_not_offered():
    on_devices()
    net = uneven()

    def loop(ids):
        return ops.ForiLoop()(0, 2, lambda _, x: x + net.gather(net.table, ids, 0), ops.zeros((BATCH, FIELDS, WIDTH)))

    with pytest.raises(SporaxNotImplementedError, match="outside of loops"):
        ms.jit(loop)(Tensor(SPLIT_IDS))


def test_without_devices_parts_mean_nothing():
    np.testing.assert_array_equal(train(uneven)[0], train(lambda: Net(None))[0])


# ------------------------------------------------------------------------------------------------------------------ layers


class Layer(nn.Cell):
    """An embedding layer, and a product with its rows."""

    def __init__(self, **settings):
        super().__init__()
        self.lookup = nn.EmbeddingLookup(sum(ROWS), WIDTH, **settings)
        self.fc = nn.Dense(FIELDS * WIDTH, CLASSES)

    def construct(self, ids):
        return self.fc(ops.reshape(self.lookup(ids), (-1, FIELDS * WIDTH)))


SLICES = {
    "batch_slice": ((sum(ROWS), WIDTH), {"all_reduce"}),
    "table_row_slice": ((sum(ROWS) // 8, WIDTH), {"reduce_scatter"}),
    "table_column_slice": ((sum(ROWS), WIDTH // 8), set()),
    "field_slice": ((max(ROWS), WIDTH), set()),
}


@pytest.mark.parametrize("target", ["CPU", "DEVICE"])
@pytest.mark.parametrize("mode", SLICES)
@pytest.mark.sampled(4)
def test_layers_are_sharded_by_their_slice_mode(mode, target):
    alone, _, _ = train(lambda: Layer(target=target))
    on_devices()
    shapes = ROWS if mode == "field_slice" else None
    cut, step, net = train(lambda: Layer(slice_mode=mode, manual_shapes=shapes, target=target))
    np.testing.assert_allclose(cut, alone, rtol=2e-5)
    step(Tensor(SPLIT_IDS), Tensor(LABELS))
    held, kinds = SLICES[mode]
    assert slice_shape(net.lookup.embedding_table) == held
    planned = step.program.plan(Tensor(SPLIT_IDS), Tensor(LABELS))
    assert not brought_together(planned)
    rows = [row for row in planned.summary().operators if row.name == "EmbeddingLookup" and row.phase == "forward"]
    used = {item.kind for row in rows for item in row.collectives}
    assert used == kinds - {"all_reduce"}  # with a cut batch, the gradient alone is combined


@pytest.mark.parametrize("target", ["CPU", "DEVICE"])
@pytest.mark.parametrize("mode", ["batch_slice", "table_row_slice", "table_column_slice"])
def test_layers_take_ids_of_any_rank(mode, target):
    on_devices()
    layer = nn.EmbeddingLookup(16, 8, slice_mode=mode, target=target)
    for shape in [(8,), (8, 2), (8, 2, 3)]:
        ids = RNG.integers(0, 16, shape).astype(np.int32)
        np.testing.assert_array_equal(layer(Tensor(ids)).asnumpy(), layer.embedding_table.asnumpy()[ids])
        parts = {"batch_slice": ((1, 1), (8, *(1,) * (len(shape) - 1)))}
        assert layer.embeddinglookup.attrs["in_strategy"] == parts.get(mode, layer.embeddinglookup.attrs["in_strategy"])
    layer.embeddinglookup.shard(((1, 1), (8, 1)))
    with pytest.raises(SporaxRuntimeError, match="must have 1 numbers for its shape"):
        layer(Tensor(np.zeros(8, np.int32)))  # a strategy of the user's stays as it is


def test_uneven_parts_of_a_host_table_stay_in_host_memory_between_steps():
    on_devices()
    _, _, net = train(lambda: Layer(slice_mode="field_slice", manual_shapes=ROWS, target="CPU"))
    blocks = net.lookup.embedding_table.parts.array
    assert blocks.sharding.memory_kind == "pinned_host"
    assert blocks.addressable_shards[0].data.shape == (max(ROWS), WIDTH)


@pytest.mark.parametrize("mode", ["batch_slice", "table_row_slice", "table_column_slice"])
@pytest.mark.parametrize("operator", ["SUM", "MEAN", "MAX"])
@pytest.mark.sampled(4)
def test_merged_fields_are_sharded_by_the_slice_mode(mode, operator):
    weights = RNG.uniform(0.5, 1.5, (BATCH, FIELDS)).astype(np.float32)
    fields = np.tile(np.arange(FIELDS) // 4, (BATCH, 1)).astype(np.int32)

    def run():
        ms.set_seed(2)
        layer = nn.MultiFieldEmbeddingLookup(sum(ROWS), WIDTH, 4, slice_mode=mode, operator=operator)
        step = ms.jit(ms.value_and_grad(lambda *x: ops.square(layer(*x)).sum(), None, layer.trainable_params()))
        value, gradients = step(Tensor(SPLIT_IDS), Tensor(weights), Tensor(fields))
        return float(value), gradients[0].asnumpy()

    value, gradient = run()
    on_devices()
    cut, slope = run()
    np.testing.assert_allclose(cut, value, rtol=1e-5)
    np.testing.assert_allclose(slope, gradient, rtol=1e-4, atol=1e-6)


def test_settings_of_layers_that_do_not_fit():
    on_devices()
    for settings, error in [
        ({"vocab_size": 0}, SporaxValueError),
        ({"vocab_size": 1.5}, SporaxTypeError),
        ({"embedding_size": 0}, SporaxValueError),
        ({"target": "GPU"}, SporaxValueError),
        ({"slice_mode": "rows"}, SporaxValueError),
        ({"target": "CPU", "sparse": False}, SporaxValueError),
        ({"slice_mode": "field_slice"}, SporaxValueError),
        ({"slice_mode": "field_slice", "manual_shapes": [6] * 8}, SporaxTypeError),
        ({"slice_mode": "field_slice", "manual_shapes": (6.0,) * 8}, SporaxTypeError),
        ({"slice_mode": "field_slice", "manual_shapes": (0,) * 8}, SporaxValueError),
    ]:
        with pytest.raises(error, match="EmbeddingLookup"):
            nn.EmbeddingLookup(**{"vocab_size": 48, "embedding_size": 8, **settings})
    with pytest.raises(SporaxValueError, match="must not be 'field_slice'"):
        nn.MultiFieldEmbeddingLookup(48, 8, 4, slice_mode="field_slice", feature_num_list=ROWS)
    nn.EmbeddingLookup(48, 8, target="DEVICE", sparse=False)


# ------------------------------------------------------------------------------------------------------ a recommendation net


class WideDeep(nn.Cell):
    """A weight for every feature (wide), and layers on top of embeddings (deep); both tables in uneven parts."""

    def __init__(self, cut):
        super().__init__()
        self.wide = ms.Parameter(initializer("normal", [sum(ROWS), 1], ms.float32), name="wide")
        self.deep = ms.Parameter(initializer("normal", [sum(ROWS), WIDTH], ms.float32), name="deep")
        self.find_wide, self.find_deep = ops.Gather(), ops.Gather()
        self.first, self.relu = ops.MatMul(), ops.ReLU()
        self.weight = ms.Parameter(initializer("xavier_uniform", [FIELDS * WIDTH, 32], ms.float32), name="weight")
        self.last = nn.Dense(32, 1)
        if cut:
            for lookup in (self.find_wide, self.find_deep):
                lookup.shard(((8, 1), (1, 8))).add_prim_attr("manual_split", ROWS)
            self.first.shard(((1, 8), (8, 1)))

    def construct(self, ids):
        wide = ops.reduce_sum(self.find_wide(self.wide, ids, 0), 1)
        embeddings = ops.reshape(self.find_deep(self.deep, ids, 0), (-1, FIELDS * WIDTH))
        return wide + self.last(self.relu(self.first(embeddings, self.weight)))


class WithLoss(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net, self.loss = net, nn.BCEWithLogitsLoss()

    def construct(self, ids, clicks):
        return self.loss(self.net(ids), clicks) + 1e-3 * ops.reduce_mean(ops.square(self.net.deep))


def test_wide_and_deep_trains_as_on_one_device():
    ids = np.concatenate([ids_in(ROWS) for _ in range(2)])
    clicks = RNG.integers(0, 2, (2 * BATCH, 1)).astype(np.float32)

    def run(cut):
        ms.set_seed(3)
        net = WideDeep(cut)
        step = nn.TrainOneStepCell(WithLoss(net), nn.Adam(net.trainable_params(), 0.02))
        return [float(step(Tensor(ids), Tensor(clicks))) for _ in range(20)], step

    alone, _ = run(False)
    on_devices()
    cut, step = run(True)
    assert alone[-1] < 0.8 * alone[0]
    np.testing.assert_allclose(cut, alone, rtol=5e-5)
    planned = step.program.plan(Tensor(ids), Tensor(clicks))
    assert not brought_together(planned)
    assert planned_bytes(planned) == read_collectives(step.program.executable.as_text())
    assert slice_shape(next(item for item in step.get_parameters() if item.name.endswith("moment1.net.deep"))) == (
        9,
        WIDTH,
    )
    measured = sum(np.prod(slice_shape(item), dtype=int) * item.dtype.itemsize for item in step.get_parameters())
    predicted = sum(row.num_bytes for row in planned.summary().tensors if row.role != "data")
    assert abs(measured - predicted) <= 0.1 * measured
