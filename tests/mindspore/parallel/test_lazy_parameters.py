"""Parameters wait for the plan of a step: every device draws its slice, with the bits that one device would draw."""

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.common import initializer as I
from sporax.mindspore.common.initializer import BoundInitializer, initializer
from sporax.mindspore.communication import init
from sporax.mindspore.parallel.auto_parallel import AutoParallel

ROWS, COLUMNS = 512, 256
MODES = ("semi_auto_parallel", "auto_parallel")


@pytest.fixture(autouse=True)
def _graph_mode():
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=mode)
    context.reset_auto_parallel_context()


@pytest.fixture
def draws(monkeypatch):
    """Shapes that numpy or a program made in one piece."""
    shapes = []
    for kind in ("normal", "uniform", "truncated_normal"):
        draw = getattr(I.threefry, kind)

        def noted(key, of, *bounds, draw=draw):
            shapes.append(getattr(of, "shape", of))
            return draw(key, of, *bounds)

        monkeypatch.setattr(I.threefry, kind, noted)
    return shapes


class Net(nn.Cell):
    """Two products, one cut by rows and one by columns."""

    def __init__(self):
        super().__init__()
        self.rows = ms.Parameter(initializer("normal", (ROWS, COLUMNS)), name="rows")
        self.columns = ms.Parameter(initializer(I.HeUniform(), (COLUMNS, ROWS)), name="columns")
        self.first = ops.MatMul().shard(((1, 8), (8, 1)))
        self.second = ops.MatMul().shard(((1, 1), (1, 8)))

    def construct(self, x):
        return self.second(self.first(x, self.rows), self.columns).sum()


def plan(mode):
    search = {"search_mode": "sharding_propagation"} if mode == "auto_parallel" else {}
    context.set_auto_parallel_context(parallel_mode=mode, device_num=8, dataset_strategy="full_batch", **search)


def values_alone():
    ms.set_seed(3)
    return {item.name: item.asnumpy() for item in Net().get_parameters()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("before", [True, False], ids=["mode first", "network first"])
def test_no_device_draws_more_than_its_slice(draws, mode, before):
    alone = values_alone()
    draws.clear()
    ms.set_seed(3)
    if before:
        plan(mode)
    net = Net()
    optimizer = nn.Momentum(net.trainable_params(), 0.0, 0.9)  # a rate of 0: the step changes no weight
    step = nn.TrainOneStepCell(net, optimizer)
    weights = list(net.get_parameters())
    state = list(optimizer.moments)
    assert all(item.has_init for item in (*weights, *state))
    if not before:
        plan(mode)
    assert not draws
    step(Tensor(np.ones((8, ROWS), np.float32)))
    assert set(map(np.prod, draws)) == {ROWS * COLUMNS // 8}
    for item in (*weights, *state):
        assert max(shard.data.nbytes for shard in item.raw.addressable_shards) == item.nbytes // 8
    for item in weights:
        np.testing.assert_array_equal(item.asnumpy(), alone[item.name])


def test_a_network_that_auto_parallel_wraps_waits_too(draws):
    alone = values_alone()
    draws.clear()
    ms.set_seed(3)
    net = Net()
    init()
    AutoParallel(net, parallel_mode="semi_auto")(Tensor(np.ones((8, ROWS), np.float32)))
    assert set(map(np.prod, draws)) == {ROWS * COLUMNS // 8}
    for item in net.get_parameters():
        np.testing.assert_array_equal(item.asnumpy(), alone[item.name])


@pytest.mark.parametrize("mode", MODES)
def test_values_read_before_the_first_step_are_the_whole(mode):
    alone = values_alone()
    plan(mode)
    ms.set_seed(3)
    net = Net()
    for item in net.get_parameters():
        np.testing.assert_array_equal(item.asnumpy(), alone[item.name])
    net(Tensor(np.ones((8, ROWS), np.float32)))
    for item in net.get_parameters():
        np.testing.assert_array_equal(item.asnumpy(), alone[item.name])


def test_small_parameters_and_clones_wait_in_planned_modes():
    plan("semi_auto_parallel")
    weight = ms.Parameter(initializer("normal", (2, 3)), name="weight")
    twin, zeros = weight.clone(), weight.clone("zeros")
    assert weight.has_init and twin.has_init and zeros.has_init
    np.testing.assert_array_equal(twin.asnumpy(), weight.asnumpy())
    np.testing.assert_array_equal(zeros.asnumpy(), np.zeros((2, 3)))


@pytest.mark.parametrize("make", [nn.AdaFactor, nn.ASGD, nn.Rprop, nn.Lamb, ms.mint.optim.AdamW])
def test_state_of_every_size_waits(make):
    plan("semi_auto_parallel")
    net = Net()
    optimizer = make(net.trainable_params(), **({"learning_rate": 0.1} if make is nn.Lamb else {}))
    state = [item for item in optimizer.get_parameters() if item.size >= ROWS * COLUMNS]
    assert state
    assert all(item.has_init for item in state)


def test_tables_with_a_row_for_padding_are_made_in_slices(draws):
    ms.set_seed(3)
    whole = nn.Embedding(ROWS, 64, padding_idx=70).embedding_table.asnumpy()
    draws.clear()
    plan("semi_auto_parallel")
    ms.set_seed(3)
    net = nn.Embedding(ROWS, 64, padding_idx=70)
    net.gather.shard(((8, 1), (1,)))
    assert net.embedding_table.has_init
    net(Tensor(np.arange(16).reshape(2, 8), ms.int32))
    assert set(draws) == {(ROWS // 8, 64)}
    np.testing.assert_array_equal(net.embedding_table.asnumpy(), whole)
    assert not whole[70].any()
    assert whole[69].all()


def test_recipes_with_a_stream_of_their_own_are_drawn_in_the_order_of_creation():
    class Counted(I.Initializer):
        count = 0

        def _initialize(self, arr):
            Counted.count += 1
            arr[:] = Counted.count

    plan("semi_auto_parallel")
    first, second = (ms.Parameter(initializer(Counted(), (2,)), name=name) for name in "ab")
    assert second.asnumpy()[0] == 2
    assert first.asnumpy()[0] == 1


CUT = [
    I.Normal(0.3, 0.1), I.Uniform(), I.TruncatedNormal(), I.XavierUniform(), I.XavierNormal(), I.HeUniform(), I.HeNormal(),
    I.VarianceScaling(), I.VarianceScaling(distribution="untruncated_normal"), I.VarianceScaling(distribution="uniform"),
    I.Zero(), I.One(), I.Constant(2.5),
]  # fmt: skip
WHOLE = [I.Orthogonal(), I.Sparse(0.25), I.Identity()]
SPECS = [("x", None), (None, "x"), ("x", "y"), ("y", None), (None, None)]


@pytest.mark.parametrize("dtype", [ms.float32, ms.float16], ids=str)
@pytest.mark.parametrize("recipe", [*CUT, *WHOLE], ids=lambda recipe: type(recipe).__name__)
def test_slices_together_are_bit_for_bit_the_whole(monkeypatch, recipe, dtype):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    bound = BoundInitializer(recipe, (24, 40), dtype)
    assert bound.may_be_sharded == any(recipe is item for item in CUT)
    whole = np.asarray(bound.make())
    # As if it were large: in blocks of a few rows.
    for block in (1 << 22, 100):
        monkeypatch.setattr(I, "_BLOCK", block)
        monkeypatch.setattr(I, "ON_HOST", 0)
        assert np.asarray(bound.make()).tobytes() == whole.tobytes()
        for spec in SPECS:
            sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
            cut = bound.make(sharding)
            assert cut.sharding == sharding
            assert cut.dtype == whole.dtype
            assert np.asarray(cut).tobytes() == whole.tobytes()
            for shard in cut.addressable_shards:
                assert np.asarray(shard.data).tobytes() == whole[shard.index].tobytes()


def test_a_subclass_with_values_of_its_own_is_made_whole():
    class Sorted(I.Normal):
        def values(self, draw, shape, dtype):
            return draw.xp.sort(super().values(draw, shape, dtype), axis=0)

    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    bound = BoundInitializer(Sorted(), (16, 8), ms.float32)
    cut = bound.make(jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
    np.testing.assert_array_equal(np.asarray(cut), np.asarray(bound.make()))
    assert (np.diff(np.asarray(cut), axis=0) >= 0).all()
