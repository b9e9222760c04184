"""Every rule about strategies, broken in a whole training step: the error says where, which dimension, and both values.

| rule (MindSpore's documentation of operator-level parallelism)            | checked on its own in                       |
|---------------------------------------------------------------------------|---------------------------------------------|
| one tuple per input, one number per dimension, numbers above 0, powers of | tests/ir/test_strategy.py                   |
| 2 where devices are, sizes divisible, slices divide the devices           |                                             |
| operators' own rules                                                      | tests/planner/test_operator_cuts.py         |
| `manual_split`                                                            | tests/mindspore/parallel/test_lookups.py              |
| Layouts, and what `shard` takes                                           | test_layout.py, tests/mindspore/ops/test_operator.py  |
| `dataset_strategy`                                                        | tests/mindspore/context/test_input_shardings.py              |
| `parallel_optimizer_config`                                               | tests/mindspore/context/test_parallel.py              |
"""

from contextlib import nullcontext

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.mindspore import Tensor, context, jit, nn, ops
from sporax.mindspore.context._strategy_files.layouts import parameter_layouts
from sporax.mindspore.ops import auto_generate
from sporax.mindspore.parallel import Layout
from sporax.mindspore.parallel.auto_parallel import AutoParallel

X, Y = np.ones((16, 24), np.float32), np.zeros(16, np.int32)
GRID, SMALL, TURNED = Layout((2, 4), ("a", "b")), Layout((2, 2), ("a", "b")), Layout((4, 2), ("a", "b"))
PRODUCT = r"For 'TrainOneStepCell\.network\._backbone\.block\.product \(MatMul\)'"


class Block(nn.Cell):
    """A product with the weight, a second one if it has a strategy, and what comes between."""

    def __init__(self, product=None, out=None, softmax=None, relu=None, again=None):
        super().__init__()
        self.product, self.softmax, self.relu, self.again = ops.MatMul(), ops.Softmax(), ops.ReLU(), ops.MatMul()
        if product is not None:
            self.product.shard(product, out)
        if softmax is not None:
            self.softmax.shard(softmax)
        if relu is not None:
            self.relu.shard(*relu)
        self.twice = again is not None
        if self.twice:
            self.again.shard(again)
        self.weight = ms.Parameter(Tensor(np.ones((24, 24), np.float32)), name="weight")

    def construct(self, x):
        x = self.relu(self.softmax(self.product(x, self.weight)))
        return self.again(x, self.weight) if self.twice else x


class Net(nn.Cell):
    def __init__(self, **strategies):
        super().__init__()
        self.block = Block(**strategies)

    def construct(self, x):
        return self.block(x)


def plan(strategies=None, **settings):
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(
        **{"parallel_mode": "semi_auto_parallel", "device_num": 8, "dataset_strategy": "full_batch", **settings}
    )
    net = nn.WithLossCell(Net(**strategies or {}), nn.CrossEntropyLoss())
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    step.program.plan(Tensor(X), Tensor(Y))


@pytest.mark.parametrize(
    ("strategies", "words"),
    [
        ({"product": ((2, 4),)}, rf"{PRODUCT}.*each of the 2 tensors, but got 1"),
        ({"product": ((2, 4, 1), (4, 1))}, rf"{PRODUCT}.*tensor 0 must have 2 numbers.*but got \(2, 4, 1\)"),
        ({"product": ((0, 1), (1, 1))}, rf"{PRODUCT}.*must be >= 1, but got 0"),
        ({"product": ((3, 1), (1, 1))}, rf"{PRODUCT}.*power of 2 on 8 devices, but got 3"),
        ({"product": ((1, 1), (1, 16))}, rf"{PRODUCT}.*dimension 1 of tensor 1 has size 24.*but got 16"),
        ({"product": ((2, 4), (4, 2))}, rf"{PRODUCT}.*divide the 8 devices.*2 x 4 x 2 = 16"),
        ({"product": ((2, 4), (2, 1))}, rf"{PRODUCT}.*dimension 0 of tensor 1 is sharded into 2 and another into 4"),
        ({"softmax": ((1, 8),)}, r"block\.softmax \(Softmax\)'.*dimension 1 of tensor 0 must stay whole.*got 8"),
        ({"relu": (((8, 1),), ((8, 1),))}, r"block\.relu \(ReLU\)'.*'out_strategy' must be left out.*\(\(8, 1\),\)"),
        (
            {"product": ((2, 4), (4, 1)), "out": ((4, 1),)},
            rf"{PRODUCT}.*'out_strategy' must be one of \[\(2, 1\), \(8, 1\)\], but got \(4, 1\)",
        ),
        (
            {"product": ((1, 8), (8, 1)), "again": ((1, 1), (1, 8))},
            r"block\.again \(MatMul\)'.*'.*block\.weight' has multiple users.*block\.product \(MatMul\)' shards it",
        ),
        (
            {"product": (SMALL("a", "None"), SMALL("None", "b"))},
            rf"{PRODUCT}.*tensor 0 must have 8 devices, but got \[a=2, b=2\]",
        ),
        (
            {"product": (GRID("a", "None"), TURNED("None", "b"))},
            rf"{PRODUCT}.*one device matrix, but got \(2, 4\) and \(4, 2\)",
        ),
        ({"product": (GRID("a", "b"), (4, 1))}, rf"{PRODUCT}.*Layouts alone or of tuples alone"),
        (
            {"product": (GRID("a", "b"), GRID("None", "None"))},
            rf"{PRODUCT}.*dimension 0 of tensor 1 is sharded into 1 .*4",
        ),
    ],
)
def test_strategies_that_do_not_fit_are_refused(strategies, words):
    with pytest.raises(SporaxRuntimeError, match=f"(?s){words}"):
        plan(strategies)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (((8, 1),), r"each of the 2 inputs, but got 1"),
        (((8,), (8,)), r"tensor 0 must have 2 numbers for its shape \(16, 24\), but got \(8,\)"),
        (
            (GRID(("b", "a"), "None"), Layout((8,), ("a",), list(range(8, 16)))("a")),
            "tensor 1 does not fit: .*ranks of the mesh",
        ),
        (((1, 16), (16,)), "dimension 1 of tensor 0 has size 24.*but got 16"),
        (((3, 1), (1,)), "power of 2 on 8 devices, but got 3"),
        (((8, 1), (4,)), "one number of slices, but got 4 and 8"),
        (((1, 1), (8,)), r"most dimensions \(2\) must be sharded if any is, but only inputs \[1\]"),
        ((SMALL("a", "None"), SMALL("a")), r"8 devices, but got \[a=2, b=2\]"),
        ((GRID("a", "None"),), "each of the 2 inputs, but got 1"),
        ((GRID("a"), GRID("a")), r"a number for each dimension of its shape \(16, 24\)"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_dataset_strategies(strategy, words, wrapped, monkeypatch):
    def run():
        if not wrapped:
            plan(dataset_strategy=strategy)
            return
        monkeypatch.setattr(context, "num_devices", lambda: 8)
        step = AutoParallel(lambda x, y: (Net()(x), y))
        step.dataset_strategy(strategy)
        step.program.plan(Tensor(X), Tensor(Y))

    with pytest.raises(SporaxRuntimeError, match=f"For 'dataset_strategy'.*{words}"):
        run()


def test_interleaved_layouts_of_data():
    interleaved = Layout((4, 2, 2), ("a", "b", "interleaved_parallel"))
    with pytest.raises(SporaxValueError, match="must not use 'interleaved_parallel'"):
        plan(dataset_strategy=(interleaved("a", "None"), interleaved("a")))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([(8, 1)],), TypeError, "must be a tuple, but got list"),
        ((((8, 1), 3),), TypeError, "3"),
        ((((8, 1.5),),), TypeError, "1.5"),
        ((((8, True),),), TypeError, "True"),
        (((GRID("a"),), ((8,),)), ValueError, "Layout"),
        ((((8,),), (GRID("a"),)), ValueError, "Layout"),
        ((None, ((8,),)), ValueError, "'out_strategy' needs an 'in_strategy'"),
    ],
)
def test_what_shard_takes(arguments, error, words):
    with pytest.raises(error, match=words):
        ops.ReLU().shard(*arguments)


@pytest.mark.parametrize(("size", "cut"), [(4, True), (3, False), (16, False)])
def test_groups_of_optimizer_parallelism_that_do_not_divide_leave_weights_whole(size, cut):
    context.set_context(mode=context.GRAPH_MODE)
    config = {"parallel_optimizer_threshold": 0, "optimizer_weight_shard_size": size}
    context.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=8,
        enable_parallel_optimizer=True,
        parallel_optimizer_config=config,
    )
    net = nn.WithLossCell(Net(), nn.CrossEntropyLoss())
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    context.forget_reported()
    message = f"'optimizer_weight_shard_size' must divide the 8 devices of a stage to have an effect, but got {size}"
    with nullcontext() if cut else pytest.warns(UserWarning, match=message):
        layout = parameter_layouts(step.program.plan(Tensor(X), Tensor(Y)))["block.weight"]
    assert layout.shard_shape == ([24 // size, 24] if cut else [24, 24])


@pytest.mark.parametrize(
    ("name", "attributes", "arguments", "strategies", "refused"),
    [
        ("PadV3", (), ([0, 0, 2, 2], 1.0), (((1, 8), (1,), ()), ((1, 4), (1,)), ((1, 2),)), ((2, 1), (1,), ())),
        ("RepeatInterleaveTensor", (), (Tensor([1, 2, 3, 4] * 2), 1), (((8, 1), (1,)), ((4, 1),)), ((1, 8), (1,))),
        ("RepeatInterleaveInt", (), (2, 1), (((8, 1),),), ((8, 1), (1,))),
        ("UniformCandidateSampler", (8, 4, True, 30), (), (((4, 1),), ((1, 8),)), ((8, 2),)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_entries_of_constants(name, attributes, arguments, strategies, refused):
    def result(strategy, **settings):
        context.reset_auto_parallel_context()
        context.set_auto_parallel_context(**settings)
        primitive = getattr(auto_generate, name)(*attributes)
        operator = primitive.shard(strategy) if strategy else primitive
        values = np.arange(64, dtype=np.int32).reshape(8, 8) % 30
        return jit(lambda x: operator(x, *arguments))(Tensor(values))

    context.set_context(mode=context.GRAPH_MODE)
    alone = result(None)
    settings = {"parallel_mode": "semi_auto_parallel", "device_num": 8, "dataset_strategy": "full_batch"}
    for strategy in strategies:
        one, other = (
            value[1] if isinstance(value, tuple) else value for value in (alone, result(strategy, **settings))
        )
        assert one.shape == other.shape and (name == "UniformCandidateSampler" or (one == other).all())
    with pytest.raises(
        SporaxRuntimeError, match=name if name in ("PadV3", "UniformCandidateSampler") else "strategy|must"
    ):
        result(refused, **settings)
