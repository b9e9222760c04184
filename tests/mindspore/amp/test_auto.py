"""Level "auto": every operator chooses its precision."""

import copy

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, amp, mint, nn, ops

HALF, FULL = Tensor(np.ones((2, 3), np.float16)), Tensor(np.ones((2, 3), np.float32))


def under_auto(function, dtype=ms.float16):
    return amp.auto_mixed_precision(function, "auto", dtype)


@pytest.mark.parametrize(
    ("call", "expected"),
    [  # as observed on MindSpore 2.10
        (lambda: ops.dense(FULL, FULL), "half"),
        (lambda: ops.matmul(FULL, FULL.T), "half"),
        (lambda: ops.BatchMatMul()(FULL[None], FULL.T[None]), "half"),
        (lambda: ops.einsum("ij,kj->ik", FULL, FULL), "half"),
        (lambda: ops.Exp()(HALF), "full"),
        (lambda: ops.softmax(HALF, -1), "full"),
        (lambda: ops.log(HALF), "full"),
        (lambda: ops.pow(HALF, 2.0), "full"),
        (lambda: ops.sum(HALF), "full"),
        (lambda: ops.cumsum(HALF, 0), "full"),
        (lambda: ops.LayerNorm(1, 1)(HALF, FULL[0], FULL[0])[0], "full"),
        (lambda: ops.cross_entropy(HALF, Tensor([0, 1])), "full"),
        (lambda: ops.concat((HALF, FULL)), "full"),
        (lambda: ops.bias_add(HALF, FULL[0]), "full"),
        (lambda: ops.concat((HALF, HALF)), "as given"),
        (lambda: ops.add(HALF, HALF), "as given"),
        (lambda: ops.add(HALF, FULL), "full"),
        (lambda: ops.relu(HALF), "as given"),
        (lambda: ops.mean(HALF), "as given"),
        (lambda: ops.mse_loss(HALF, HALF), "as given"),
        (lambda: nn.L1Loss()(HALF, HALF), "as given"),
        (lambda: ops.norm(HALF), "as given"),
        (lambda: ops.std(HALF), "as given"),
        (lambda: ops.var(HALF), "full"),
        (lambda: ops.logsumexp(HALF, 0), "full"),
        (lambda: ops.cosine_similarity(HALF, HALF), "full"),
        (lambda: ops.exp2(HALF), "full"),
        (lambda: ops.gaussian_nll_loss(HALF, HALF, HALF), "full"),
        (lambda: ops.dot(FULL, FULL.T), "half"),
        (lambda: mint.nn.functional.mse_loss(HALF, HALF), "full"),  # by its lists; the CPU has no kernel
    ],
)
@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16])
def test_operators_choose(call, expected, dtype):
    kinds = {"half": dtype, "full": ms.float32, "as given": ms.float16}
    assert under_auto(call, dtype)().dtype == kinds[expected]


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.exact = nn.Dense(4, 2).to_float(ms.float32)
        self.last = nn.Dense(2, 2)

    def construct(self, x):
        return self.last(self.exact(self.norm(self.first(x))))


def dtypes_inside(net):
    seen = {}
    for name, cell in net.name_cells().items():
        cell.register_forward_hook(lambda cell, inputs, output, name=name: seen.update({name: str(output.dtype)}))
    result = net(FULL)
    return seen, str(result.dtype)


def test_cells_of_a_network(mode):
    net = under_auto(Net())
    seen, result = dtypes_inside(net)
    assert seen == {"first": "Float16", "norm": "Float32", "exact": "Float32", "last": "Float16"}
    assert result == "Float16"
    assert all(parameter.dtype in (ms.float32, ms.int64) for parameter in net.get_parameters())


def test_nothing_changes_outside():
    under_auto(Net())(FULL)
    assert ops.dense(FULL, FULL).dtype == ms.float32
    assert ops.exp(HALF).dtype == ms.float16
    with pytest.raises(TypeError):
        under_auto(lambda: ops.relu("a"))()
    assert ops.exp(HALF).dtype == ms.float16


def test_functions_compiled_on_their_own_follow():
    compiled = ms.jit(lambda x: ops.exp(x))
    assert under_auto(lambda: 0)() == 0
    assert compiled(HALF).dtype == ms.float16
    assert under_auto(lambda: compiled(HALF))().dtype == ms.float32
    assert compiled(HALF).dtype == ms.float16


def test_a_copy_chooses_too():
    assert copy.deepcopy(under_auto(nn.Dense(3, 3)))(FULL).dtype == ms.float16


def test_running_statistics_move(mode):
    net = under_auto(Net()).set_train()
    net(FULL)
    assert net.norm.moving_mean.asnumpy().any()


def test_it_trains(mode):
    ms.set_seed(3)
    net = nn.SequentialCell(nn.Dense(4, 16), nn.ReLU(), nn.Dense(16, 3))
    step = amp.build_train_network(
        net, nn.Momentum(net.trainable_params(), 0.1, 0.9), nn.CrossEntropyLoss(), level="auto"
    )
    inputs = Tensor(np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32))
    labels = Tensor(np.arange(12) % 3, ms.int32)
    losses = [step(inputs, labels) for _ in range(30)]
    assert losses[-1].dtype == ms.float32
    assert losses[-1].item() < 0.5 * losses[0].item()
    assert all(parameter.dtype == ms.float32 for parameter in net.trainable_params())


class Sharded(nn.Cell):
    """A product, an exponential and a composed operator, as primitives."""

    def __init__(self, strategies):
        super().__init__()
        self.matmul, self.exp, self.add = ops.MatMul(), ops.Exp(), ops.Add()
        for operator, strategy in zip((self.matmul, self.exp, self.add), strategies, strict=True):
            if strategy:
                operator.shard(strategy)

    def construct(self, x, y):
        product = self.matmul(x, y)
        exponential = self.exp(product)
        return product, exponential, self.add(product, product)


@pytest.fixture
def semi_auto():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    yield
    ms.reset_auto_parallel_context()


@pytest.mark.parametrize(
    "strategies",
    [(None, None, None), (((2, 2), (2, 2)), None, None), (((4, 1), (1, 2)), ((2, 2),), ((4, 2), (4, 2)))],
    ids=["none", "product", "all"],
)
def test_strategies_change_no_dtype(semi_auto, strategies):
    values = np.random.default_rng(0)
    x, y = (Tensor(values.normal(size=(8, 8)).astype(np.float32)) for _ in range(2))
    results = amp.auto_mixed_precision(Sharded(strategies), "auto", ms.bfloat16)(x, y)
    assert [result.dtype for result in results] == [ms.bfloat16, ms.float32, ms.bfloat16]


def test_what_takes_no_part_in_gradients_takes_none_with_a_strategy(semi_auto):
    matmul = ops.MatMul().shard(((2, 1), (1, 2)))

    def loss(x, y):
        with ms._no_grad():
            constant = matmul(x, y)
        return (constant * x).sum()

    x, y = Tensor(np.eye(4, dtype=np.float32) + 1), Tensor(np.ones((4, 4), np.float32))
    gradient = ms.jit(ms.grad(loss))(x, y)
    np.testing.assert_array_equal(gradient.asnumpy(), np.full((4, 4), 5.0))


def test_a_sharded_dense_computes_as_one_that_is_not():
    x = ms.Tensor(np.ones((4, 8), np.float32))
    plain, sharded = nn.Dense(8, 6, bias_init="ones"), nn.Dense(8, 6, bias_init="ones")
    sharded.weight.set_data(plain.weight)
    sharded.matmul.shard(((2, 1), (1, 1)))
    first, second = (amp.auto_mixed_precision(net, "auto")(x) for net in (plain, sharded))
    assert first.dtype == second.dtype == ms.float16
    np.testing.assert_allclose(first.asnumpy(), second.asnumpy(), rtol=2e-3)
