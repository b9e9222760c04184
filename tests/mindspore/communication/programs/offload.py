"""Memory offload with several ranks: in a compiled step that exchanges gradients, values are equal and variables on the host."""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn
from sporax.mindspore.communication import get_rank, init
from sporax.mindspore.context import reset_offload_context

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
init()


class Network(nn.Cell):
    """Three blocks."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.CellList([nn.SequentialCell(nn.Dense(8, 8), nn.Tanh()) for _ in range(3)])

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x).mean()


def trained(activations=False, recompute=False, **config):
    """Losses of four steps, and in which memory Parameters and state are."""
    ms.set_seed(3)
    ms.set_context(memory_offload="ON" if config else "OFF")
    reset_offload_context()
    if config:
        ms.set_offload_context(config)
    net = Network()
    for block in net.blocks:
        if activations:
            block.offload()
        if recompute:
            block.recompute()
    step = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 0.1)).set_train()
    x = Tensor(np.random.default_rng(get_rank()).normal(size=(4, 8)).astype(np.float32))
    losses = [step(x).asnumpy().item() for _ in range(4)]
    kinds = {
        getattr(parameter, "joint", None).sharding.memory_kind for parameter in step.get_parameters() if parameter.ndim
    }
    return losses, kinds


losses, kinds = trained()
assert kinds == {"device"}, kinds
for settings in (
    {"offload_param": "cpu", "auto_offload": False},
    {"activations": True},
    {"offload_checkpoint": "cpu", "recompute": True},
    {"offload_param": "cpu", "auto_offload": False, "activations": True},
):
    other, there = trained(**settings)
    np.testing.assert_allclose(other, losses, rtol=1e-6, err_msg=str(settings))
    if "offload_param" in settings:
        assert there == {"pinned_host"}, (settings, there)
refusal = ""
try:
    trained(offload_param="disk", auto_offload=False, offload_path="offload")
except NotImplementedError as error:
    refusal = str(error)
assert "'disk' is offered in 'set_offload_context' for steps of one device" in refusal, refusal
print("all is well")
