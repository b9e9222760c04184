"""Small trainings, defined once and run under two frameworks: MindSpore (to record) and Sporax (to compare).

A recipe fixes a net, its weights, the batches and their order, the loss, the optimizer and the way a step is written.
Everything numeric comes from numpy, so the only thing that differs between two runs is the framework `ms` handed in:
both must give the same losses. Weights are drawn per parameter name, so they also pin down the naming.

Shapes: B batch, T tokens, D width, H heads, V vocabulary.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from models import bert, gpt, lstm, resnet18, wide_deep

STEPS = 20
Batches = Iterator[tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Recipe:
    """One training: every field that takes `ms` builds its part with that framework's names.

    A batch is the inputs of the net, and then what the loss takes; a net with no loss beside it gives the loss itself.
    """

    net: Callable[[Any], Any]
    batches: Callable[[], Batches]
    loss: Callable[[Any], Any]
    optimizer: Callable[[Any, Any], Any]
    step: Callable[[Any, Any, Any, Any], Callable[..., Any]]


def run(ms: Any, name: str) -> list[float]:
    """Train recipe `name` on its batches, in the mode that is set, and return the loss of every step."""
    recipe = RECIPES[name]
    net = recipe.net(ms)
    set_weights(ms, net)
    net.set_train()
    step = recipe.step(ms, net, recipe.loss(ms), recipe.optimizer(ms, net))
    losses = [step(*map(ms.Tensor, batch)) for batch in recipe.batches()]
    return [float(loss.asnumpy()) for loss in losses]


def set_weights(ms: Any, net: Any) -> None:
    """Give every trainable parameter values that depend on its name and shape alone."""
    for parameter in net.trainable_params():
        rng = np.random.default_rng(zlib.crc32(parameter.name.encode()))
        values = rng.normal(0, 1, parameter.shape).astype(np.float32)
        if parameter.name.endswith("gamma"):
            values = 1 + 0.1 * values
        elif values.ndim == 1:
            values = 0.1 * values
        else:
            values = values / np.float32(np.sqrt(values[0].size))
        parameter.set_data(ms.Tensor(values.astype(np.float32)))


# --- nets -------------------------------------------------------------------------------------------------------------


def mlp(ms: Any) -> Any:
    """20 → 32 → 32 → 5 with ReLU and Tanh."""
    nn = ms.nn

    class Mlp(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Dense(20, 32)
            self.relu = nn.ReLU()
            self.hidden = nn.SequentialCell(nn.Dense(32, 32), nn.Tanh())
            self.head = nn.Dense(32, 5, has_bias=False)

        def construct(self, x):
            return self.head(self.hidden(self.relu(self.fc1(x))))

    return Mlp()


def lenet(ms: Any) -> Any:
    """The classic shape on 1x16x16 images: two convolutions with pooling, three dense layers, 10 classes."""
    nn = ms.nn

    class LeNet(nn.Cell):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 6, 5)
            self.conv2 = nn.Conv2d(6, 16, 3, pad_mode="valid", has_bias=True)
            self.pool = nn.MaxPool2d(kernel_size=2, stride=2)
            self.relu = nn.ReLU()
            self.flatten = nn.Flatten()
            self.fc1 = nn.Dense(16 * 3 * 3, 60)
            self.fc2 = nn.Dense(60, 42)
            self.fc3 = nn.Dense(42, 10)

        def construct(self, x):
            x = self.pool(self.relu(self.conv1(x)))
            x = self.pool(self.relu(self.conv2(x)))
            x = self.flatten(x)
            x = self.relu(self.fc1(x))
            x = self.relu(self.fc2(x))
            return self.fc3(x)

    return LeNet()


def transformer(ms: Any) -> Any:
    """Two pre-norm blocks of causal attention written out from primitives; next-token logits (B*T, V)."""
    nn, ops = ms.nn, ms.ops
    vocab, length, width, heads = 17, 12, 32, 4

    class Attention(nn.Cell):
        def __init__(self):
            super().__init__()
            self.query = nn.Dense(width, width)
            self.key = nn.Dense(width, width)
            self.value = nn.Dense(width, width)
            self.project = nn.Dense(width, width)
            self.reshape = ops.Reshape()
            self.transpose = ops.Transpose()
            self.scores = ops.BatchMatMul(transpose_b=True)
            self.mix = ops.BatchMatMul()
            self.softmax = ops.Softmax(axis=-1)
            self.scale = float(width // heads) ** -0.5
            self.mask = ms.Tensor(np.triu(np.full((1, 1, length, length), -1e4, np.float32), k=1))

        def split_heads(self, x_BTD):
            return self.transpose(self.reshape(x_BTD, (-1, length, heads, width // heads)), (0, 2, 1, 3))

        def construct(self, x_BTD):
            query = self.split_heads(self.query(x_BTD))
            key = self.split_heads(self.key(x_BTD))
            value = self.split_heads(self.value(x_BTD))
            weights = self.softmax(self.scores(query, key) * self.scale + self.mask)
            mixed = self.transpose(self.mix(weights, value), (0, 2, 1, 3))
            return self.project(self.reshape(mixed, (-1, length, width)))

    class Block(nn.Cell):
        def __init__(self):
            super().__init__()
            self.norm1 = nn.LayerNorm((width,))
            self.attention = Attention()
            self.norm2 = nn.LayerNorm((width,))
            self.up = nn.Dense(width, 4 * width)
            self.gelu = nn.GELU()
            self.down = nn.Dense(4 * width, width)

        def construct(self, x_BTD):
            x_BTD = x_BTD + self.attention(self.norm1(x_BTD))
            return x_BTD + self.down(self.gelu(self.up(self.norm2(x_BTD))))

    class Transformer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocab, width)
            self.positions = ms.Parameter(ms.Tensor(np.zeros((length, width), np.float32)), name="positions")
            self.gather = ops.Gather()
            self.index = ms.Tensor(np.arange(length, dtype=np.int32))
            self.blocks = nn.CellList([Block(), Block()])
            self.norm = nn.LayerNorm((width,))
            self.head = nn.Dense(width, vocab, has_bias=False)
            self.reshape = ops.Reshape()

        def construct(self, tokens_BT):
            x_BTD = self.tokens(tokens_BT) + self.gather(self.positions, self.index, 0)
            for block in self.blocks:
                x_BTD = block(x_BTD)
            return self.reshape(self.head(self.norm(x_BTD)), (-1, vocab))

    return Transformer()


# --- data -------------------------------------------------------------------------------------------------------------


def vectors() -> Batches:
    """(16, 20) vectors; the class is the largest of five fixed projections."""
    rng = np.random.default_rng(20)
    teacher = rng.normal(size=(20, 5))
    for _ in range(STEPS):
        x = rng.normal(size=(16, 20)).astype(np.float32)
        yield x, (x @ teacher).argmax(1).astype(np.int32)


def regression() -> Batches:
    """(16, 20) vectors with (16, 5) targets."""
    rng = np.random.default_rng(21)
    teacher = rng.normal(size=(20, 5)) / 4
    for _ in range(STEPS):
        x = rng.normal(size=(16, 20)).astype(np.float32)
        yield x, np.sin(x @ teacher).astype(np.float32)


def images() -> Batches:
    """(8, 1, 16, 16) images: a class is a bar at its own place, under noise."""
    rng = np.random.default_rng(22)
    for _ in range(STEPS):
        labels = rng.integers(0, 10, 8).astype(np.int32)
        x = 0.3 * rng.normal(size=(8, 1, 16, 16))
        for image, label in zip(x, labels, strict=True):
            image[0, :, 3 + label] += 1.0
        yield x.astype(np.float32), labels


def sequences() -> Batches:
    """(6, 12) tokens of t → 3t + 1 mod 17 from random starts, and the (72,) tokens that follow."""
    rng = np.random.default_rng(23)
    for _ in range(STEPS):
        tokens = np.empty((6, 13), np.int32)
        tokens[:, 0] = rng.integers(0, 17, 6)
        for t in range(12):
            tokens[:, t + 1] = (3 * tokens[:, t] + 1) % 17
        yield tokens[:, :-1].copy(), tokens[:, 1:].reshape(-1).copy()


# --- the ways a step is written ---------------------------------------------------------------------------------------


def step_cell(ms: Any, net: Any, loss_fn: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """`TrainOneStepCell` around `WithLossCell`."""
    cell = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, loss_fn), optimizer)
    cell.set_train()
    return cell


def step_whole(ms: Any, net: Any, loss_fn: None, optimizer: Any) -> Callable[..., Any]:
    """`TrainOneStepCell` around a net that gives its loss."""
    cell = ms.nn.TrainOneStepCell(net, optimizer)
    cell.set_train()
    return cell


def step_wide_deep(ms: Any, net: Any, loss_fn: None, optimizer: None) -> Callable[..., Any]:
    """The Cell of that model, which has two optimizers."""
    return wide_deep.training_step(ms, net)


def step_functional(ms: Any, net: Any, loss_fn: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """`value_and_grad` over a forward function that also returns the logits, then the optimizer, uncompiled outside."""

    def forward(x, y):
        logits = net(x)
        return loss_fn(logits, y), logits

    grad_fn = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)

    def step(x, y):
        (loss, _), grads = grad_fn(x, y)
        optimizer(grads)
        return loss

    return step


def step_jit(ms: Any, net: Any, loss_fn: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """The whole step, optimizer included, under one `jit`."""

    def forward(x, y):
        return loss_fn(net(x), y)

    grad_fn = ms.value_and_grad(forward, None, net.trainable_params())

    @ms.jit
    def step(x, y):
        loss, grads = grad_fn(x, y)
        optimizer(grads)
        return loss

    return step


# --- recipes ----------------------------------------------------------------------------------------------------------


def cross_entropy(ms: Any) -> Any:
    return ms.nn.CrossEntropyLoss()


def softmax_cross_entropy(ms: Any) -> Any:
    return ms.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def mean_squares(ms: Any) -> Any:
    return ms.nn.MSELoss()


def nothing(ms: Any, net: Any = None) -> None:
    """The net or the step brings its own."""


def sgd(ms: Any, net: Any) -> Any:
    return ms.nn.SGD(net.trainable_params(), 0.05, momentum=0.9, weight_decay=1e-3)


def sgd_nesterov(ms: Any, net: Any) -> Any:
    return ms.nn.SGD(net.trainable_params(), 0.05, momentum=0.9, nesterov=True)


def momentum(ms: Any, net: Any) -> Any:
    return ms.nn.Momentum(net.trainable_params(), 0.05, 0.9)


def momentum_groups(ms: Any, net: Any) -> Any:
    """Two groups with their own rate and decay."""
    biases = [p for p in net.trainable_params() if p.name.endswith("bias")]
    weights = [p for p in net.trainable_params() if not p.name.endswith("bias")]
    groups = [{"params": weights, "weight_decay": 0.01}, {"params": biases, "lr": 0.1}]
    return ms.nn.Momentum(groups, 0.02, 0.9)


def momentum_rising(ms: Any, net: Any) -> Any:
    """ResNet's: a list of rates that rise and then follow a cosine.

    They are small because eighteen layers of ReLU and batch norm amplify rounding: at 20 times these rates, weights
    changed by 1e-7 change the tenth loss by 1e-2.
    """
    rates = ms.nn.cosine_decay_lr(3e-4, 4e-4, STEPS, 5, 4)
    return ms.nn.Momentum(net.trainable_params(), [1e-4, 2e-4, 3e-4, *rates], 0.9, weight_decay=1e-4)


def adam(ms: Any, net: Any) -> Any:
    return ms.nn.Adam(net.trainable_params(), 3e-3)


def adam_weight_decay(ms: Any, net: Any) -> Any:
    return ms.nn.AdamWeightDecay(net.trainable_params(), 3e-3, weight_decay=0.1)


def adam_decaying_rate(ms: Any, net: Any) -> Any:
    """A list of rates, one a step."""
    return ms.nn.Adam(net.trainable_params(), [3e-3 * 0.9**i for i in range(STEPS)], weight_decay=0.01)


def adam_weight_decay_groups(ms: Any, net: Any) -> Any:
    """BERT's: a falling rate, and no decay of norms and biases."""
    no_decay = [p for p in net.trainable_params() if p.name.endswith(("bias", "gamma", "beta"))]
    decay = [p for p in net.trainable_params() if not p.name.endswith(("bias", "gamma", "beta"))]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}]
    rates = ms.nn.PolynomialDecayLR(3e-3, 0.0, STEPS, 1.0)
    return ms.nn.AdamWeightDecay([*groups, {"order_params": net.trainable_params()}], rates)


RECIPES: dict[str, Recipe] = {
    "mlp_sgd": Recipe(mlp, vectors, cross_entropy, sgd, step_cell),
    "mlp_sgd_nesterov": Recipe(mlp, vectors, softmax_cross_entropy, sgd_nesterov, step_functional),
    "mlp_momentum": Recipe(mlp, vectors, cross_entropy, momentum, step_functional),
    "mlp_momentum_groups": Recipe(mlp, vectors, cross_entropy, momentum_groups, step_cell),
    "mlp_adam": Recipe(mlp, regression, mean_squares, adam, step_jit),
    "mlp_adam_decaying_rate": Recipe(mlp, vectors, cross_entropy, adam_decaying_rate, step_functional),
    "mlp_adam_weight_decay": Recipe(mlp, vectors, cross_entropy, adam_weight_decay, step_jit),
    "lenet_momentum": Recipe(lenet, images, softmax_cross_entropy, momentum, step_cell),
    "transformer_adam": Recipe(transformer, sequences, cross_entropy, adam, step_functional),
    "resnet18": Recipe(resnet18.net, resnet18.batches, softmax_cross_entropy, momentum_rising, step_cell),
    "gpt": Recipe(gpt.net, gpt.batches, cross_entropy, adam, step_jit),
    "bert": Recipe(bert.net, bert.batches, nothing, adam_weight_decay_groups, step_whole),
    "lstm": Recipe(lstm.net, lstm.batches, softmax_cross_entropy, momentum, step_cell),
    "wide_deep": Recipe(wide_deep.net, wide_deep.batches, nothing, nothing, step_wide_deep),
}
