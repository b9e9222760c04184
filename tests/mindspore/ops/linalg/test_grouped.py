import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, context, nn
from sporax.mindspore.communication import init, release
from sporax.mindspore.ops.auto_generate import GroupedMatmul, GroupedMatmulV4

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(5, 3).astype(np.float32)
WEIGHT = RANDOM.randn(3, 3, 2).astype(np.float32)
BIAS = RANDOM.randn(3, 2).astype(np.float32)
# Two rows, none, two; the last row is in no group.
BY_HAND = np.concatenate([X[:2] @ WEIGHT[0] + BIAS[0], X[2:4] @ WEIGHT[2] + BIAS[2], np.zeros((1, 2), np.float32)])


def tensors(*arrays):
    return [Tensor(array) for array in arrays]


def test_rows_in_groups(mode):
    ends, sizes = Tensor([2, 2, 4]), Tensor([2, 0, 2])
    together = GroupedMatmul(3, 0)(tensors(X), tensors(WEIGHT), tensors(BIAS), group_list=ends)
    apart = GroupedMatmulV4()(
        *(tensors(X), tensors(*WEIGHT), tensors(*BIAS)), group_list=sizes, split_item=3, group_type=0, group_list_type=1
    )
    transposed = GroupedMatmul(3, 0, transpose_b=True)(
        tensors(X), tensors(WEIGHT.swapaxes(1, 2).copy()), tensors(BIAS), group_list=[2, 2, 4]
    )
    for (result,) in (together, apart, transposed):
        np.testing.assert_allclose(result.asnumpy(), BY_HAND, atol=1e-5)


def test_gradients_of_rows_in_groups():
    def loss(x, weight):
        return GroupedMatmul(3, 0)([x], [weight], group_list=Tensor([2, 2, 4]))[0].sum()

    of_x, of_weight = ms.grad(loss, (0, 1))(Tensor(X), Tensor(WEIGHT))
    np.testing.assert_allclose(of_x.asnumpy()[2], WEIGHT[2].sum(1), atol=1e-5)
    assert not of_x.asnumpy()[4].any() and not of_weight.asnumpy()[1].any()
    np.testing.assert_allclose(of_weight.asnumpy()[0], np.repeat(X[:2].sum(0)[:, None], 2, 1), atol=1e-5)


def test_a_matrix_for_each_tensor():
    first, second = GroupedMatmul()(tensors(X, X[:2]), tensors(WEIGHT[0], WEIGHT[1]), tensors(BIAS[0], BIAS[1]))
    np.testing.assert_allclose(first.asnumpy(), X @ WEIGHT[0] + BIAS[0], atol=1e-5)
    np.testing.assert_allclose(second.asnumpy(), X[:2] @ WEIGHT[1] + BIAS[1], atol=1e-5)
    (half,) = GroupedMatmulV4()(tensors(X), tensors(WEIGHT[0]), output_dtype=ms.float16)
    assert half.dtype == ms.float16


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: GroupedMatmul()(Tensor(X), tensors(WEIGHT)), TypeError, "'x' must be a tuple or list of Tensors"),
        (lambda: GroupedMatmul(3, 0)(tensors(X), tensors(WEIGHT)), ValueError, "no 'group_list'"),
        (lambda: GroupedMatmul(3, 2)(tensors(X), tensors(WEIGHT)), NotImplementedError, "'group_type' must be 0"),
        (
            lambda: GroupedMatmul(3, 0)(tensors(X), tensors(WEIGHT), group_list=Tensor([5])),
            ValueError,
            "'group_list' have one number per group",
        ),
        (lambda: GroupedMatmul(9, -1)(tensors(X), tensors(WEIGHT[0])), ValueError, "'split_item' must be"),
        (
            lambda: GroupedMatmulV4()(tensors(X), tensors(WEIGHT), act_type=1),
            NotImplementedError,
            "'act_type' must be 0",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.fixture
def _semi_auto():
    mode = context.get_context("mode")
    context.set_context(mode=ms.GRAPH_MODE)
    init()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    yield
    release()
    context.set_context(mode=mode)
    context.reset_auto_parallel_context()


class Experts(nn.Cell):
    def __init__(self, strategy, transpose_b=False, bias=False):
        super().__init__()
        self.weight = Parameter(Tensor(np.arange(192).reshape(2, 12, 8) / 100, ms.float32), name="weight")
        self.bias = Parameter(Tensor(np.arange(16).reshape(2, 8), ms.float32), name="bias") if bias else None
        if transpose_b:
            self.weight = Parameter(Tensor(self.weight.asnumpy().swapaxes(1, 2).copy()), name="weight")
        self.grouped = GroupedMatmul(3, 0, transpose_b=transpose_b)
        if strategy is not None:
            self.grouped.shard(strategy)

    def construct(self, x, ends):
        return self.grouped([x], [self.weight], None if self.bias is None else [self.bias], group_list=ends)[0]


FLAT = ((1, 2), (1, 2, 4), (1,))
EMPTY = ((),)


@pytest.mark.usefixtures("_semi_auto")
@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (FLAT, {}),
        ((((1, 2),), ((1, 2, 4),), (1,)), {}),
        ((((1, 2),), ((1, 2, 4),), EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, (1,)), {}),
        ((((1, 2),), ((1, 2, 4),), ((1, 4),), EMPTY, EMPTY, EMPTY, EMPTY, (1,)), {"bias": True}),
        ((((1, 2),), ((1, 4, 2),), (1,)), {"transpose_b": True}),
    ],
)
def test_strategies_of_lists_shard_the_matrices(strategy, settings):
    x, ends = Tensor(RANDOM.randn(4, 12).astype(np.float32)), Tensor([1, 4])
    net = Experts(strategy, **settings)
    planned = ms.parallel.plan_of(net, x, ends)
    slices = {row.name: row.slice_shape for row in planned.summary().tensors}
    cut = (2, 2, 6) if "transpose_b" in settings else (2, 6, 2)
    assert slices["weight"] == cut
    weight, bias = net.weight.asnumpy(), 0 if net.bias is None else net.bias.asnumpy()[[0, 1, 1, 1]]
    weight = weight.swapaxes(1, 2) if "transpose_b" in settings else weight
    expected = np.einsum("rk,rkn->rn", x.asnumpy(), weight[[0, 1, 1, 1]]) + bias
    np.testing.assert_allclose(net(x, ends).asnumpy(), expected, rtol=1e-5)


@pytest.mark.usefixtures("_semi_auto")
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("strategy", [((1, 1), (1, 4)), ((1, 4), (4, 1)), ((2, 1), (1, 1))])
def test_products_of_their_own_have_a_strategy_each(strategy, transpose_b):
    rows, matrices = strategy
    x, weight = RANDOM.randn(2, 4, 8).astype(np.float32), RANDOM.randn(2, 8, 16).astype(np.float32)
    given = (rows,) * 2, ((matrices[::-1] if transpose_b else matrices),) * 2, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, ()
    grouped = GroupedMatmul(0, -1, transpose_b=transpose_b).shard(given)

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            values = weight.swapaxes(1, 2) if transpose_b else weight
            self.weights = [ms.Parameter(value, name=f"weight{at}") for at, value in enumerate(values)]

        def construct(self, first, second):
            return grouped([first, second], self.weights)

    net = Net()
    planned = ms.parallel.plan_of(net, *tensors(*x))
    slices = {row.name: row.slice_shape for row in planned.summary().tensors}
    cut = tuple(size // parts for size, parts in zip(weight.shape[1:], matrices, strict=True))
    assert slices["weight1"] == (cut[::-1] if transpose_b else cut)
    for actual, expected in zip(net(*tensors(*x)), x @ weight, strict=True):
        np.testing.assert_allclose(actual.asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_strategies_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="must be equal for all Tensors of a list"):
        GroupedMatmul(3, 0).shard((((1, 2),), ((2, 4), (4, 2))))
    with pytest.raises(ValueError, match="must have one nested entry behind 'x' and 'weight'"):
        GroupedMatmul(3, 0).shard((((1, 2),), ((1, 2, 4),), ((1, 4),), ((1, 4),)))
