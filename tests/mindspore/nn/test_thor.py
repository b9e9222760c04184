"""The optimizer THOR, against its formulas in numpy. The wheel has no CPU kernels for it."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.nn.optim.thor import _block_inverses, _by_blocks

RATES, DAMPING = [0.1, 0.05, 0.02], [0.3, 0.2, 0.1]


class _Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(6, 3, embedding_table="uniform")
        self.dense = nn.Dense(3, 4, activation="tanh")
        self.norm = nn.LayerNorm((4,))
        self.last = nn.Dense(4, 2, has_bias=False)

    def construct(self, ids):
        return self.last(self.norm(self.dense(self.embedding(ids)))).sum(-1).mean()


def _optimizer(net, **settings):
    return nn.thor(net, Tensor(RATES), Tensor(DAMPING), 0.9, batch_size=5, frequency=3, **settings)


def _inverse(matrix, root):
    return np.linalg.inv(matrix + root * np.eye(len(matrix)))


@pytest.mark.parametrize(
    "settings",
    [{}, {"use_nesterov": True}, {"weight_decay": 0.1, "loss_scale": 2.0}, {"enable_clip_grad": True}],
    ids=str,
)
def test_two_steps_follow_the_formulas(mode, settings):
    net = _Net()
    optimizer = _optimizer(net, **settings, decay_filter=lambda parameter: "norm" not in parameter.name)
    scale = settings.get("loss_scale", 1.0)
    differentiate = ms.grad(lambda ids: net(ids) * scale, None, optimizer.parameters)
    values = {p.name: p.asnumpy().astype(np.float64) for p in optimizer.parameters}
    velocity = dict.fromkeys(values, 0.0)
    for step, ids in enumerate(([0, 1, 1, 2, 5], [3, 3, 3, 4, 0])):
        grads = differentiate(Tensor(ids, ms.int32))
        root = np.sqrt(DAMPING[step])
        for parameter, gradient in zip(optimizer.parameters, grads, strict=True):
            name, g = parameter.name, gradient.asnumpy().astype(np.float64) / scale
            layer = {"embedding": net.embedding, "dense": net.dense, "last": net.last}.get(name.split(".")[0])
            if "weight" in name or "table" in name:
                matrix_a, matrix_g = layer.matrix_a.asnumpy(), layer.matrix_g.asnumpy() * 25 / scale**2
                left = _inverse(matrix_g, root)
                g = (
                    g / (matrix_a[:, None] / 5 + root) @ left
                    if "table" in name
                    else left @ g @ _inverse(matrix_a, root)
                )
            elif "norm" in name:
                g = g / (g**2 / 5 + root)
            if "norm" not in name:
                g = g + settings.get("weight_decay", 0.0) * values[name]
            if settings.get("enable_clip_grad"):
                g = g / max(np.linalg.norm(g), 1.0)
            velocity[name] = 0.9 * velocity[name] + g
            move = g + 0.9 * velocity[name] if settings.get("use_nesterov") else velocity[name]
            values[name] = values[name] - RATES[step] * move
        assert optimizer(grads) == (True,) * 6
        for parameter in optimizer.parameters:
            np.testing.assert_allclose(parameter.asnumpy(), values[parameter.name], rtol=2e-4, atol=2e-5)


def test_convolutions_divide_the_damping_by_their_positions(mode):
    net = nn.SequentialCell(nn.Conv2d(2, 3, 3, stride=2))
    optimizer = nn.thor(net, Tensor([1.0]), Tensor([0.3]), 0.0, batch_size=2)
    x = Tensor(np.random.RandomState(1).randn(2, 2, 8, 8).astype(np.float32))
    before = net[0].weight.asnumpy()
    (gradient,) = ms.grad(lambda x: (net(x) ** 2).mean(), None, optimizer.parameters)(x)
    optimizer((gradient,))
    root, layer = np.sqrt(0.3 / 16), net[0]
    inverse_a, inverse_g = _inverse(layer.matrix_a.asnumpy(), root), _inverse(layer.matrix_g.asnumpy() * 4, root)
    # Both inverses are divided by the square root of the 16 positions.
    move = inverse_g @ gradient.asnumpy().reshape(3, -1) @ inverse_a / 16
    np.testing.assert_allclose(layer.weight.asnumpy(), before - move.reshape(before.shape), rtol=1e-3, atol=1e-5)


def test_inverses_are_of_diagonal_blocks():
    draw = np.random.RandomState(2)
    root = draw.randn(5, 5)
    matrix, gradient = root @ root.T + np.eye(5), draw.randn(4, 5)
    blocks = _block_inverses(ms.Tensor(matrix).array, 2)
    expected = np.zeros((5, 5))
    for part in (slice(0, 2), slice(2, 4), slice(4, 5)):
        expected[part, part] = np.linalg.inv(matrix[part, part])
    assert blocks.shape == (3, 2, 2)
    left = _block_inverses(ms.Tensor(np.eye(4) * 2).array, 4)
    np.testing.assert_allclose(_by_blocks(left, ms.Tensor(gradient).array, blocks), gradient / 2 @ expected, rtol=1e-6)


def test_steps_without_the_flag_use_the_inverses_of_an_earlier_one(mode):
    net = nn.SequentialCell(nn.Dense(2, 2, has_bias=False))
    optimizer = nn.thor(net, Tensor([1.0]), Tensor([0.5]), 0.0, batch_size=1)
    differentiate = ms.grad(lambda x: (net(x) ** 2).sum(), None, optimizer.parameters)
    optimizer(differentiate(Tensor([[1.0, 2.0]])))
    kept = [matrix.asnumpy() for matrix in (*optimizer.matrix_a, *optimizer.matrix_g)]
    for cell in (net, optimizer):
        cell.add_flags_recursive(thor=False)
    grads = differentiate(Tensor([[3.0, -1.0]]))
    before = net[0].weight.asnumpy()
    optimizer(grads)
    move = kept[1][0] @ grads[0].asnumpy() @ kept[0][0]
    np.testing.assert_allclose(net[0].weight.asnumpy(), before - move, rtol=1e-5, atol=1e-6)
    assert all((a.asnumpy() == b).all() for a, b in zip((*optimizer.matrix_a, *optimizer.matrix_g), kept, strict=True))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"learning_rate": 0.1}, TypeError, "'learning_rate' must be a Tensor"),
        ({"damping": 0.1}, TypeError, "'damping' must be a Tensor"),
        ({"momentum": 1}, TypeError, "'momentum' must be a float"),
        ({"momentum": -0.5}, ValueError, "'momentum' must be at least 0.0"),
        ({"frequency": 1}, ValueError, "'frequency' must be at least 2"),
        ({"frequency": 2.0}, TypeError, "'frequency' must be an int"),
        ({"split_indices": [1]}, ValueError, "below 1"),
        ({"split_indices": (0,)}, TypeError, "'split_indices' must be a list"),
        ({"batch_size": 0}, ValueError, "'batch_size'"),
    ],
)
def test_settings_are_checked(change, error, message):
    settings = {"learning_rate": Tensor([0.1]), "damping": Tensor([0.1]), "momentum": 0.9, **change}
    with pytest.raises(error, match=message):
        nn.thor(nn.SequentialCell(nn.Dense(2, 2)), **settings)
