"""Wide & deep: a linear model of crossed features beside a deep one of embeddings, each with an optimizer of its own.

The network contains its loss. `training_step` is the step as such scripts write it: one Cell, the gradients of both halves
by `GradOperation`, FTRL for the wide half and Adam for the deep one.

Shapes: B batch, F fields, E width of an embedding. Ids and weights (B, F), labels (B, 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

VOCAB, FIELDS, WIDTH = 60, 6, 8


def net(ms: Any) -> Any:
    """The network: (ids, weights, labels) to the loss, with an L2 term on the embeddings."""
    nn, ops = ms.nn, ms.ops

    class DenseLayer(nn.Cell):
        """A dense layer made of operators."""

        def __init__(self, in_features, out_features, activate):
            super().__init__()
            self.weight = ms.Parameter(ms.Tensor(np.zeros((in_features, out_features)), ms.float32), name="weight")
            self.bias = ms.Parameter(ms.Tensor(np.zeros(out_features), ms.float32), name="bias")
            self.matmul = ops.MatMul()
            self.add = ops.BiasAdd()
            self.relu = ops.ReLU()
            self.activate = activate

        def construct(self, x):
            x = self.add(self.matmul(x, self.weight), self.bias)
            return self.relu(x) if self.activate else x

    class WideDeep(nn.Cell):
        """Both halves: logits (B, 1), and the embeddings that are regularised."""

        def __init__(self):
            super().__init__()
            self.wide_w = ms.Parameter(ms.Tensor(np.zeros((VOCAB, 1)), ms.float32), name="wide_w")
            self.wide_b = ms.Parameter(ms.Tensor(np.zeros(1), ms.float32), name="wide_b")
            self.deep_embedding = nn.EmbeddingLookup(VOCAB, WIDTH, target="DEVICE", sparse=False)
            self.deep_1 = DenseLayer(FIELDS * WIDTH, 24, True)
            self.deep_2 = DenseLayer(24, 1, False)
            self.gather = ops.Gather()
            self.reduce_sum = ops.ReduceSum()
            self.reshape = ops.Reshape()
            self.expand_dims = ops.ExpandDims()

        def construct(self, ids_BF, weights_BF):
            weights_BF1 = self.expand_dims(weights_BF, 2)
            wide = self.reduce_sum(self.gather(self.wide_w, ids_BF, 0) * weights_BF1, 1) + self.wide_b
            embeddings_BFE = self.deep_embedding(ids_BF) * weights_BF1
            deep = self.deep_2(self.deep_1(self.reshape(embeddings_BFE, (-1, FIELDS * WIDTH))))
            return wide + deep, self.deep_embedding.embedding_table

    class NetWithLoss(nn.Cell):
        """The network with its loss."""

        def __init__(self):
            super().__init__()
            self.network = WideDeep()
            self.loss = ops.SigmoidCrossEntropyWithLogits()
            self.square = ops.Square()
            self.mean = ops.ReduceMean()

        def construct(self, ids_BF, weights_BF, labels_B1):
            logits, table = self.network(ids_BF, weights_BF)
            return self.mean(self.loss(logits, labels_B1)) + 8e-3 * self.mean(self.square(table)) / 2

    return NetWithLoss()


def training_step(ms: Any, network: Any) -> Any:
    """A Cell that does one step with two optimizers."""
    nn, ops = ms.nn, ms.ops

    class TrainStep(nn.Cell):
        """Both updates after both gradients."""

        def __init__(self):
            super().__init__()
            self.network = network
            params = network.trainable_params()
            self.wide = ms.ParameterTuple([p for p in params if "wide" in p.name])
            self.deep = ms.ParameterTuple([p for p in params if "wide" not in p.name])
            self.wide_optimizer = nn.FTRL(self.wide, learning_rate=5e-2, l1=1e-4, l2=1e-4, initial_accum=1.0)
            self.deep_optimizer = nn.Adam(self.deep, learning_rate=3e-3, eps=1e-8)
            self.grad = ops.GradOperation(get_by_list=True, sens_param=True)
            self.fill = ops.OnesLike()

        def construct(self, *batch):
            loss = self.network(*batch)
            sens = self.fill(loss)
            wide_grads = self.grad(self.network, self.wide)(*batch, sens)
            deep_grads = self.grad(self.network, self.deep)(*batch, sens)
            loss = ops.depend(loss, self.wide_optimizer(wide_grads))
            return ops.depend(loss, self.deep_optimizer(deep_grads))

    step = TrainStep()
    step.set_train()
    return step


def batches() -> Iterator[tuple[np.ndarray, ...]]:
    """Ten batches of 32 rows, of which every field has ten ids; some ids mean a click."""
    rng = np.random.default_rng(35)
    teacher = rng.normal(size=VOCAB)
    for _ in range(10):
        ids = (rng.integers(0, 10, (32, FIELDS)) + 10 * np.arange(FIELDS)).astype(np.int32)
        weights = rng.uniform(0.5, 1.5, (32, FIELDS)).astype(np.float32)
        labels = ((teacher[ids] * weights).sum(1, keepdims=True) > 0).astype(np.float32)
        yield ids, weights, labels
