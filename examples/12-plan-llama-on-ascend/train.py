"""Plan the training of Llama models as published for Ascend 910B, from the settings of their scripts; no Ascend is needed.

    sporax plan --devices 32 --hardware ascend910b-800ta2 examples/12-plan-llama-on-ascend/train.py llama2-70b

The degrees, micro batches and lists of recomputed layers are those of the configurations in MindFormers 1.3.2, under their names
there; tokens per second of all devices, as its model cards have them, stand beside. `--layers` plans fewer of them.
"""

import argparse
from dataclasses import dataclass, replace

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.common.initializer import initializer
from sporax.mindspore.communication import init
from sporax.mindspore.parallel.nn import PipelineCell


@dataclass(frozen=True)
class Config:
    """A configuration: shape, `parallel_config`, `recompute_config`, types, and what was published in tokens per second."""

    hidden_size: int
    num_layers: int
    num_heads: int
    n_kv_heads: int
    intermediate_size: int
    vocab_size: int
    seq_length: int
    published: float
    batch_size: int = 1
    data_parallel: int = 1
    model_parallel: int = 1
    pipeline_stage: int = 1
    micro_batch_num: int = 1
    offset: tuple[int, ...] = ()
    recompute: bool = False
    select_recompute: tuple[int, ...] = ()
    enable_parallel_optimizer: bool = True
    compute_dtype: str = "bfloat16"
    param_init_type: str = "float32"


CONFIGS = {
    "llama2-7b": Config(4096, 32, 32, 32, 11008, 32000, 4096, 4160 * 8, data_parallel=8, param_init_type="float16"),
    "llama2-13b": Config(5120, 40, 40, 40, 13824, 32000, 4096, 1691 * 8, 4, 8, recompute=True, param_init_type="float16"),
    "llama2-70b": Config(
        8192, 80, 64, 8, 28672, 32000, 4096, 337 * 32, model_parallel=4, pipeline_stage=8, micro_batch_num=256,
        select_recompute=(8, 4, 4, 1, 1, 1, 1, 1), param_init_type="bfloat16",
    ),
    "codellama-34b-16": Config(
        8192, 48, 64, 8, 22016, 32000, 4096, 669 * 16, 1, 1, 8, 2, 128, compute_dtype="float16", param_init_type="float16"
    ),
    "codellama-34b-32": Config(
        8192, 48, 64, 8, 22016, 32000, 4096, 667 * 32, 1, 2, 4, 4, 128, compute_dtype="float16", param_init_type="float16"
    ),
    "llama3-8b": Config(4096, 32, 32, 8, 14336, 128256, 8192, 2703 * 8, 1, 8, recompute=True, param_init_type="float16"),
    "qwen1.5-7b": Config(4096, 32, 32, 32, 11008, 151936, 4096, 2684 * 8, data_parallel=8, recompute=True),
    "qwen1.5-14b": Config(5120, 40, 40, 40, 13696, 152064, 32768, 787 * 16, 1, 4, 4, recompute=True),
    "qwen1.5-32b": Config(5120, 64, 40, 8, 27392, 152064, 8192, 671 * 32, 1, 1, 8, 4, 512),
    "yi-34b": Config(7168, 60, 56, 8, 20480, 64000, 4096, 660 * 16, 1, 1, 4, 4, 56, (-1, 1, 1, -1)),
    "deepseek-33b": Config(7168, 62, 56, 8, 19200, 32256, 4096, 572 * 16, 1, 1, 8, 2, 128, enable_parallel_optimizer=False),
}  # fmt: skip


class Linear(nn.Cell):
    """A product with a weight (out, in), sharded as its strategy says."""

    def __init__(self, config, rows, columns, strategy, out_strategy=None):
        super().__init__()
        self.weight = Parameter(initializer("normal", (rows, columns), getattr(ms, config.param_init_type)))
        self.matmul = ops.MatMul(transpose_b=True).shard(strategy, out_strategy)
        self.dtype = getattr(ms, config.compute_dtype)

    def construct(self, x):
        return self.matmul(x, self.weight.astype(self.dtype))


class Norm(nn.Cell):
    """Root mean square norm in float32."""

    def __init__(self, config, strategy):
        super().__init__()
        self.weight = Parameter(initializer("ones", (config.hidden_size,), ms.float32))
        self.norm = ops.RmsNorm(1e-5).shard((strategy, (1,)))

    def construct(self, x):
        return self.norm(x.astype(ms.float32), self.weight)[0].astype(x.dtype)


class Layer(nn.Cell):
    """Attention and a gated network, on rows (batch times length, hidden); sequence parallel where the model is sharded."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        dp, mp = config.data_parallel, config.model_parallel
        wide, dtype = config.hidden_size, getattr(ms, config.compute_dtype)
        self.size = wide // config.num_heads
        rows, columns, down = (dp * mp, 1), ((dp, 1), (mp, 1)), ((dp, mp), (1, mp))
        keys = config.n_kv_heads * self.size
        self.norm1, self.norm2 = Norm(config, rows), Norm(config, rows)
        self.q = Linear(config, wide, wide, columns)
        self.k, self.v = Linear(config, keys, wide, columns), Linear(config, keys, wide, columns)
        self.o = Linear(config, wide, wide, down, (rows,))
        self.gate, self.up = (Linear(config, config.intermediate_size, wide, columns) for _ in range(2))
        self.down = Linear(config, wide, config.intermediate_size, down, (rows,))
        self.attention = ops.FlashAttentionScore(
            config.num_heads, scale_value=self.size**-0.5, input_layout="BSH", sparse_mode=2
        ).shard(((dp, 1, mp),) * 3)
        self.silu = ops.SiLU().shard(((dp, mp),))
        self.mul = ops.Mul().shard(((dp, mp), (dp, mp)))
        angles = np.arange(config.seq_length)[:, None] / 500000 ** (np.arange(self.size // 2) / (self.size // 2))
        self.cos, self.sin = Tensor(np.cos(angles), dtype), Tensor(np.sin(angles), dtype)

    def turned(self, x):
        """Rotary embedding of (batch times length, heads times size)."""
        length = self.config.seq_length
        x = x.reshape(-1, length, x.shape[-1] // self.size, 2, self.size // 2)
        one, other = x[..., 0, :], x[..., 1, :]
        cos, sin = self.cos.reshape(length, 1, -1), self.sin.reshape(length, 1, -1)
        return ops.stack((one * cos - other * sin, one * sin + other * cos), -2).reshape(x.shape[0], length, -1)

    def construct(self, x):
        y = self.norm1(x)
        q, k, v = self.turned(self.q(y)), self.turned(self.k(y)), self.v(y)
        attended = self.attention(q, k, v.reshape(k.shape))[3]
        x = x + self.o(attended.reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(self.mul(self.silu(self.gate(y)), self.up(y)))


class Loss(nn.Cell):
    """Cross entropy of logits in float32, which stay sharded along the vocabulary."""

    def __init__(self, config):
        super().__init__()
        rows, columns = config.data_parallel, config.model_parallel
        whole, one = ((rows, columns),), ((rows, columns), (rows, 1))
        self.max, self.sum = (reduction(keep_dims=True).shard(whole) for reduction in (ops.ReduceMax, ops.ReduceSum))
        self.sub, self.exp, self.one_hot = (
            ops.Sub().shard(one),
            ops.Exp().shard(whole),
            ops.OneHot().shard((*whole, (), ())),
        )
        self.mul = ops.Mul().shard((*whole, *whole))
        self.vocabulary, self.numbers = config.vocab_size, (Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))

    def construct(self, logits, labels):
        logits = logits.astype(ms.float32)
        logits = self.sub(logits, ops.stop_gradient(self.max(logits, 1)))
        right = self.sum(self.mul(logits, self.one_hot(labels, self.vocabulary, *self.numbers)), 1)
        return (ops.log(self.sum(self.exp(logits), 1)) - right).mean()


class Llama(nn.Cell):
    """Embedding, layers, norm and head with its loss."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        dp, mp = config.data_parallel, config.model_parallel
        vocabulary, wide = config.vocab_size, config.hidden_size
        self.dtype = getattr(ms, config.compute_dtype)
        self.table = Parameter(
            initializer("normal", (vocabulary, wide), getattr(ms, config.param_init_type)), name="table"
        )
        self.gather = ops.Gather().shard(((mp, 1), (dp, 1)))
        self.layers = nn.CellList([Layer(config) for _ in range(config.num_layers)])
        self.norm = Norm(config, (dp * mp, 1))
        self.head = Linear(config, vocabulary, wide, ((dp, 1), (mp, 1)))
        self.loss = Loss(config)
        self.place()

    def place(self):
        """Stages, and the layers of each whose memory-bound part, or all, is computed again."""
        config, number = self.config, 0
        for stage in range(config.pipeline_stage):
            count = config.num_layers // config.pipeline_stage + (config.offset[stage] if config.offset else 0)
            for place in range(count):
                layer = self.layers[number]
                layer.pipeline_stage = stage
                if config.recompute:
                    layer.recompute()
                elif config.select_recompute and place < config.select_recompute[stage]:
                    for cell in (layer.norm1, layer.norm2):
                        cell.recompute()
                    for primitive in (layer.silu, layer.mul):
                        primitive.recompute()
                number += 1
        self.norm.pipeline_stage = self.head.pipeline_stage = config.pipeline_stage - 1

    def construct(self, ids):
        words, labels = ids[:, :-1], ids[:, 1:]
        x = self.gather(self.table, words, 0).astype(self.dtype).reshape(-1, self.config.hidden_size)
        for layer in self.layers:
            x = layer(x)
        return self.loss(self.head(self.norm(x)), labels.reshape(-1))


def main():
    parser = argparse.ArgumentParser(description="Plan Llama models on Ascend 910B.")
    parser.add_argument("name", choices=CONFIGS, nargs="?", default="llama2-7b")
    parser.add_argument("--layers", type=int, help="of all stages together")
    options = parser.parse_args()
    config = CONFIGS[options.name]
    if options.layers:
        config = replace(config, num_layers=options.layers)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel", enable_parallel_optimizer=config.enable_parallel_optimizer, full_batch=True,
        pipeline_stages=config.pipeline_stage,
    )  # fmt: skip
    init()
    net = Llama(config).set_train()
    print(f"published: {config.published:,.0f} tokens/s")
    cell = PipelineCell(net, config.micro_batch_num) if config.micro_batch_num > 1 else net
    step = nn.TrainOneStepCell(cell, nn.AdamWeightDecay(net.trainable_params(), 1e-5)).set_train()
    batch = config.batch_size * config.data_parallel * config.micro_batch_num
    step(Tensor(np.zeros((batch, config.seq_length + 1)), ms.int32))


if __name__ == "__main__":
    main()
