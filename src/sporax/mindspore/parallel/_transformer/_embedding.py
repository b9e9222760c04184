"""The table of a language model's vocabulary."""

from __future__ import annotations

from typing import Any

from sporax.mindspore import ops
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.parallel._transformer._configs import (
    EmbeddingOpParallelConfig,
    check_division,
    default_embedding_parallel_config,
)


class VocabEmbedding(Cell):
    """Rows of a table, and the table, which the head of a language model uses again.

    Args:
        vocab_size: rows.
        embedding_size: length of a row.
        parallel_config: with `vocab_emb_dp` every device has the whole table, else its rows are sharded `model_parallel` ways.
        param_init: initial values.

    Raises:
        SporaxValueError: the rows cannot be sharded evenly.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        parallel_config: EmbeddingOpParallelConfig = default_embedding_parallel_config,
        param_init: Any = "normal",
    ) -> None:
        super().__init__()
        self.vocab_size, self.embedding_size = vocab_size, embedding_size
        table = initializer(param_init, (vocab_size, embedding_size), dtypes.float32)
        self.embedding_table = Parameter(table, name="embedding_table")
        data, model = parallel_config.data_parallel, parallel_config.model_parallel
        if parallel_config.vocab_emb_dp:
            self.gather = ops.Gather().shard(((1, 1), (data, 1)))
        else:
            check_division("VocabEmbedding", "vocab_size", vocab_size, "model_parallel", model)
            # Each device looks up the ids of its rows; the results are partial sums.
            self.gather = ops.Gather().shard(((model, 1), (data, 1)))

    def construct(self, input_ids: Tensor) -> tuple[Tensor, Parameter]:
        """Rows (batch, length, size) of `input_ids` (batch, length), and the table."""
        return self.gather(self.embedding_table, input_ids, 0), self.embedding_table
