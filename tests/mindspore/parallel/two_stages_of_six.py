"""Two stages of six devices each: strategies of 3 beside 2 have their runs of axes in one order only.

Run by `test_pipeline_axes.py` in a process with twelve devices.
"""

import numpy as np

from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.nn import PipelineCell


class Layer(nn.Cell):
    def __init__(self, values, stage, strategy):
        super().__init__()
        self.weight = Parameter(Tensor(values.normal(size=(12, 12)).astype(np.float32) / 4), name="weight")
        self.matmul = ops.MatMul().shard(strategy) if strategy else ops.MatMul()
        self.pipeline_stage = stage

    def construct(self, x):
        return ops.tanh(self.matmul(x, self.weight))


class Net(nn.Cell):
    def __init__(self, strategies):
        super().__init__()
        values = np.random.default_rng(0)
        self.first = Layer(values, 0, strategies and strategies[0])
        self.second = Layer(values, 1, strategies and strategies[1])

    def construct(self, x, y):
        out = self.second(self.first(x))
        return ((out - y) ** 2).mean()


def train(strategies):
    context.reset_auto_parallel_context()
    if strategies:
        context.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel", device_num=12, pipeline_stages=2, dataset_strategy="full_batch"
        )
    net = Net(strategies)
    cell = PipelineCell(net, 2)
    step = nn.TrainOneStepCell(cell, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    values = np.random.default_rng(1)
    x, y = (Tensor(values.normal(size=(24, 12)).astype(np.float32)) for _ in range(2))
    losses = [float(step(x, y).asnumpy()) for _ in range(2)]
    return losses, net.first.weight.asnumpy(), net.second.weight.asnumpy()


context.set_context(mode=context.GRAPH_MODE)
alone = train(None)
for strategies in ((((3, 1), (1, 2)), ((3, 1), (1, 2))), (((6, 1), (1, 1)), ((3, 2), (2, 1)))):
    for expected, got in zip(alone, train(strategies), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
print("all is well")
