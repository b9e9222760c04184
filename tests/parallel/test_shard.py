"""`Cell.shard` and `parallel.shard`: one part of a network is cut as the user says, in both modes."""

import numpy as np
import pytest

import sporax as ms
from sporax import Tensor, context, grad, nn, ops
from sporax.ir.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.parallel import Layout, shard

X = np.random.default_rng(2).normal(size=(8, 16)).astype(np.float32)
AUTO = {"parallel_mode": "auto_parallel", "search_mode": "sharding_propagation", "device_num": 8}
SEMI_AUTO = {"parallel_mode": "semi_auto_parallel", "device_num": 8, "dataset_strategy": "full_batch"}
GRID = Layout((2, 4), ("rows", "columns"))


class Net(nn.Cell):
    """Two blocks; the first is cut and called by another name, as MindSpore's example does."""

    def __init__(self, cut=(1, 8)):
        super().__init__()
        self.block = nn.SequentialCell(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 16))
        self.rest = nn.Dense(16, 4)
        self.block_cut = self.block.shard(((1, 8),), parameter_plan={"self.block.0.weight": cut})

    def construct(self, x):
        return self.rest(self.block_cut(x))


def held(parameter):
    return parameter.array.addressable_shards[0].data.shape


def test_shard_is_one_function_under_all_of_mindspores_names():
    assert ms.shard is ms.ops.shard is shard


def test_another_name_for_a_sharded_part_leaves_the_names_of_its_parameters():
    net = Net()
    assert [item.name for item in net.get_parameters()][:2] == ["block.0.weight", "block.0.bias"]
    assert [name for name, _ in net.name_cells().items()] == ["block", "rest"]
    assert net.block_cut is net.block
    outer = nn.SequentialCell(net)
    assert outer[0].block[0].weight.name == "0.block.0.weight"
    assert net.block.marks["shard"][2] == {"0.weight": (1, 8)}  # by path, which stays


@pytest.mark.parametrize("settings", [AUTO, SEMI_AUTO], ids=["auto", "semi_auto"])
def test_the_cuts_of_parameters_hold_in_every_mode(settings):
    net, x = Net(), Tensor(X)
    alone = net(x).asnumpy()
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(**settings)
    np.testing.assert_allclose(net(x).asnumpy(), alone, rtol=1e-5, atol=1e-6)
    assert held(net.block[0].weight) == (32, 2)


def test_an_eager_network_runs_its_sharded_part_on_all_devices():
    net, x = Net(GRID("columns", "rows")), Tensor(X)
    alone = net(x).asnumpy()
    context.set_context(mode=context.PYNATIVE_MODE)
    context.set_auto_parallel_context(**AUTO)
    np.testing.assert_allclose(net(x).asnumpy(), alone, rtol=1e-5, atol=1e-6)
    assert held(net.block[0].weight) == (8, 8)
    assert net.rest.weight.array.sharding.num_devices == 1 or held(net.rest.weight) == (4, 16)
    function = shard(lambda a: ops.square(a), in_strategy=((2, 4),))
    assert held(function(x)) == (4, 4)


def test_derivatives_of_eager_code_are_whole_and_say_so():
    context.set_context(mode=context.PYNATIVE_MODE)
    context.set_auto_parallel_context(**AUTO)
    square = shard(lambda a: ops.square(a), in_strategy=((2, 4),))
    with pytest.warns(UserWarning, match="has no effect inside of a derivative in PYNATIVE_MODE"):
        actual = grad(lambda x: square(x).sum())(Tensor(X))
    np.testing.assert_allclose(actual.asnumpy(), 2 * X, rtol=1e-6)


@pytest.mark.parametrize(
    ("plan", "error", "words"),
    [
        (
            {"0.weight": (8,)},
            SporaxValueError,
            r"'0\.weight' .*must have 2 numbers for its shape \(32, 16\), but got \(8,\)",
        ),
        ({"0.weight": (3, 1)}, SporaxValueError, "dimension 0 has size 32 and got 3"),
        ({"0.weight": (0, 1)}, SporaxValueError, "dimension 0 has size 32 and got 0"),
        ({"0.weight": GRID("rows")}, SporaxValueError, "must have 2 numbers"),
        ({"0.weight": [8, 1]}, SporaxTypeError, "tuples or Layouts by name, but got str and list"),
        ({3: (8, 1)}, SporaxTypeError, "but got int and tuple"),
    ],
)
def test_plans_that_do_not_fit_are_refused_where_they_are_given(plan, error, words):
    block = nn.SequentialCell(nn.Dense(16, 32))
    with pytest.raises(error, match=f"For 'SequentialCell.shard'.*{words}"):
        shard(block, in_strategy=((8, 1),), parameter_plan=plan)
    assert "shard" not in block.marks


def test_unknown_parameters_are_left_out():
    with pytest.warns(UserWarning, match=r"'nowhere', which is not a Parameter of Dense: ignored.*'bias', 'weight'"):
        nn.Dense(16, 32).shard(((8, 1),), parameter_plan={"nowhere": (8, 1)})


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (((3, 1),), "the number of slices of dimension 0 of tensor 0 must be a power of 2 on 8 devices, but got 3"),
        (((8,),), r"tensor 0 must have 2 numbers for its shape \(8, 16\), but got \(8,\)"),
        (((1, 1), (1, 1)), "one entry for each of the 1 Tensors, but got 2"),
        (((8, 2),), r"must divide the 8 devices, but \(8, 2\) makes 16"),
    ],
)
def test_strategies_that_do_not_fit_name_the_function(strategy, words):
    def doubled(x):
        return x * 2

    context.set_auto_parallel_context(**SEMI_AUTO)
    with pytest.raises(SporaxRuntimeError, match=f"For 'doubled'.*{words}"):
        shard(doubled, in_strategy=strategy)(Tensor(X))
