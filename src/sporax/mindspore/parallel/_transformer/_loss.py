"""The loss of a language model whose vocabulary may be sharded."""

from __future__ import annotations

from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.parallel._transformer._configs import OpParallelConfig, default_dpmp_config

_EPSILON = 1e-5
"""Keeps a batch whose mask is all zero from a division by zero, as in MindSpore."""


class CrossEntropyLoss(Cell):
    """Mean cross entropy of the tokens that a mask keeps.

    Args:
        parallel_config: tokens are sharded `data_parallel` ways, the vocabulary `model_parallel` ways.
    """

    def __init__(self, parallel_config: OpParallelConfig = default_dpmp_config) -> None:
        super().__init__()
        data, model = parallel_config.data_parallel, parallel_config.model_parallel
        self.maximum = ops.ReduceMax(keep_dims=True).shard(((data, model),))
        self.difference = ops.Sub().shard(((data, model), (data, 1)))
        self.exponential = ops.Exp().shard(((data, model),))
        self.total = ops.ReduceSum(keep_dims=False).shard(((data, model),))
        self.logarithm = ops.Log().shard(((data,),))
        self.one_hot = ops.OneHot().shard(((data, model), (), ()))
        self.product = ops.Mul().shard(((data, model), (data, model)))
        self.chosen = ops.ReduceSum(keep_dims=False).shard(((data, model),))

    def construct(self, logits: Tensor, label: Tensor, input_mask: Tensor) -> Tensor:
        """The loss, a scalar.

        Args:
            logits: (tokens, vocabulary).
            label: (tokens,) ids.
            input_mask: (tokens,), 1 for tokens that count.
        """
        logits = logits.astype(dtypes.float32)
        # The maximum only prevents overflow; its gradient cancels out.
        shifted = self.difference(logits, ops.stop_gradient(self.maximum(logits, -1)))
        normalizer = self.logarithm(self.total(self.exponential(shifted), -1))
        on, off = Tensor(1.0, dtypes.float32), Tensor(0.0, dtypes.float32)
        # A product with a one-hot matrix, since a sharded vocabulary cannot be indexed without communication.
        one_hot = self.one_hot(label.reshape(-1).astype(dtypes.int32), logits.shape[-1], on, off)
        losses = normalizer - self.chosen(self.product(shifted, one_hot), -1)
        mask = input_mask.reshape(-1).astype(dtypes.float32)
        loss: Tensor = (losses * mask).sum() / (mask.sum() + _EPSILON)
        return loss
