"""`AllReduce` in a step that a plan shards: what the ranks have of their slices, over all of them and over groups."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.communication import create_group, get_group_size, init

RNG = np.random.default_rng(3)
W, V, X = (RNG.normal(size=shape).astype(np.float32) for shape in ((8, 8), (8,), (8, 8)))
EIGHT, ROW, COLUMN = list(range(8)), [0, 1, 2, 3], [0, 4]


class Net(nn.Cell):
    """A weight and a bias in four slices of columns, each on two ranks."""

    def __init__(self):
        super().__init__()
        self.w, self.v = Parameter(Tensor(W), name="w"), Parameter(Tensor(V), name="v")
        self.product, self.add = ops.MatMul().shard(((2, 1), (1, 4))), ops.Add().shard(((2, 4), (4,)))

    def construct(self, x):
        return (self.add(self.product(x, self.w), self.v) ** 2).mean()


class Step(nn.TrainOneStepCell):
    """A step that also gives what `combine` makes of loss and gradients."""

    def __init__(self, network, combine, *groups):
        super().__init__(network, nn.SGD(network.trainable_params(), 0.0))
        self.combine, self.sums = combine, [ops.AllReduce(group=group) for group in groups]

    def construct(self, x):
        loss = self.network(x)
        grads = self.grad(self.network, self.weights)(x, ops.fill(loss.dtype, loss.shape, 1.0))
        return self.combine(loss, grads, *self.sums)


def gradients():
    """Loss, and gradients of weight and bias."""
    rows = 2 * (X @ W + V) / X.size
    return ((X @ W + V) ** 2).mean(), X.T @ rows, rows.sum(0)


def of_ranks(combine, combine_ranks, *groups, **settings):
    """What a step on eight devices gives."""
    init()
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=get_group_size(),
        parallel_optimizer_config=settings,
        **combine_ranks,
    )
    for name, ranks in groups:
        create_group(name, ranks)
    step = Step(Net(), combine, *([name for name, _ in groups] or [None]))
    return step(Tensor(X))


def square(gradient):
    return ops.reduce_sum(ops.square(gradient))


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        (lambda loss, g, total: total(square(g[0]) + square(g[1]) / 4), lambda k, loss, w, v: k * (w + v / 4)),
        (lambda loss, g, total: total(ops.addn([square(g[0] * 3).expand_dims(0), loss.reshape(1)])),
         lambda k, loss, w, v: k * 9 * w + 8 * loss),
        (lambda loss, g, total: total(ops.stack([square(x) for x in g]).sum()), lambda k, loss, w, v: k * (w + v)),
        (lambda loss, g, total: total(ops.depend(square(g[0]), loss) - 2.0), lambda k, loss, w, v: k * w - 16),
        (lambda loss, g, total: total((g[0] != 0).astype(ms.float32).sum()), lambda k, loss, w, v: k * W.size),
        (lambda loss, g, total: total(ops.isnan(g[0]).any().astype(ms.float32) + 1), lambda k, loss, w, v: 8),
        (lambda loss, g, total: total(loss) / 8, lambda k, loss, w, v: loss),
        (lambda loss, g, total: total(ops.sqrt(total(square(g[0])))), lambda k, loss, w, v: 8 * np.sqrt(k * w)),
        (lambda loss, g, total: ops.AllReduce("max")(loss) + ops.AllReduce("prod")(loss), lambda k, loss, w, v: loss + loss**8),
        (lambda loss, g, total: ops.grad(lambda x: total(x * x))(loss), lambda k, loss, w, v: 16 * loss),
    ],
)  # fmt: skip
def test_a_sum_over_all_ranks_counts_slices(combine, expected, sharded):
    """Two ranks have each slice; with optimizer parallelism, one."""
    parallel = {"enable_parallel_optimizer": sharded}
    result = of_ranks(combine, parallel, **({"parallel_optimizer_threshold": 0} if sharded else {}))
    loss, w, v = gradients()
    np.testing.assert_allclose(
        float(result.asnumpy().item()), expected(1 if sharded else 2, loss, (w**2).sum(), (v**2).sum()), rtol=1e-5
    )


def test_sums_of_groups_come_one_after_the_other():
    """A row of ranks has all slices once; each of a column adds a row."""
    _, w, _ = gradients()
    row = of_ranks(lambda loss, g, row: row(square(g[0])), {}, ("row", ROW))
    np.testing.assert_allclose(float(row), (w**2).sum(), rtol=1e-5)
    both = of_ranks(lambda loss, g, column, row: row(column(square(g[0]))), {}, ("column", COLUMN), ("row", ROW))
    np.testing.assert_allclose(float(both), 2 * (w**2).sum(), rtol=1e-5)


@pytest.mark.parametrize(
    ("combine", "words"),
    [
        (lambda loss, g, total: total(ops.sqrt(square(g[0]))), "'sqrt' has made it"),
        (lambda loss, g, total: total(g[1]), r"it has the shape \(8,\)"),
        (lambda loss, g, total: ops.AllReduce("max")(g[0].max()), "'op' is 'max'"),
        (lambda loss, g, total: total(ops.cumsum(g[0], 0).sum()), "'cumsum' has made it"),
        (lambda loss, g, total: ops.AllGather()(loss.reshape(1)), "make each device a rank"),
    ],
)
def test_what_whole_tensors_do_not_have_is_refused(combine, words):
    with pytest.raises(RuntimeError, match=words):
        of_ranks(combine, {})


def test_a_group_without_all_slices_is_refused():
    with pytest.raises(ValueError, match="hold 1 of the 4 slices"):
        of_ranks(lambda loss, g, column: column(square(g[0])), {}, ("column", COLUMN))
