"""A small network with everything that crosses pipeline stages, and a way to train it."""

from functools import cache

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.parallel.nn import PipelineCell

VOCABULARY, WIDTH = 32, 16
IDS = np.random.default_rng(0).integers(0, VOCABULARY, (32, 4)).astype(np.int32)
LABELS = np.random.default_rng(1).integers(0, VOCABULARY, (32, 4)).astype(np.int32)


class Block(nn.Cell):
    """A residual block with dropout; its product is sharded over 2 x 2 devices where that is requested."""

    def __init__(self, sharded=False, norm=False):
        super().__init__()
        self.fc = nn.Dense(WIDTH, WIDTH)
        self.drop = nn.Dropout(p=0.1)
        self.norm = nn.BatchNorm1d(WIDTH) if norm else None
        if sharded:
            self.fc.matmul.shard(((2, 1), (2, 1)))

    def construct(self, x):
        y = ops.relu(self.fc(x))
        if self.norm is not None:
            y = self.norm(y.reshape(-1, WIDTH)).reshape(x.shape)
        return x + self.drop(y)


class Net(nn.Cell):
    """Embedding, blocks, and a head that uses the embedding's table again; `frozen`: numbers of cells that are not trained."""

    def __init__(self, places, sharded=False, norm=False, recompute=False, frozen=()):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.CellList([Block(sharded, norm) for _ in places])
        self.head = nn.Dense(WIDTH, VOCABULARY)
        cells = (self.embed, *self.blocks, self.head)
        for number in frozen:
            for parameter in cells[number].get_parameters():
                parameter.requires_grad = False
        for cell, (stage, segment) in zip(cells, (places[0], *places, places[-1]), strict=True):
            cell.pipeline_stage = stage
            if segment:
                cell.pipeline_segment = segment
        if recompute:
            for block in self.blocks:
                block.recompute()

    def construct(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x) + ops.matmul(x, self.embed.embedding_table.T)


class Loss(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.criterion = nn.CrossEntropyLoss()

    def construct(self, ids, labels):
        return self.criterion(self.net(ids).reshape(-1, VOCABULARY), labels.reshape(-1))


def straight(stages, per=1):
    """One place after another, `per` blocks each."""
    return [(stage, 0) for stage in range(stages) for _ in range(per)]


def interleaved(stages, segments):
    return [(stage, segment) for segment in range(segments) for stage in range(stages)]


def folded(stages):
    return [*((stage, 0) for stage in range(stages)), *((stage, 1) for stage in reversed(range(stages)))]


class ClippedStep(nn.TrainOneStepCell):
    """Clips by the global norm of all gradients before the update."""

    def construct(self, *inputs):
        loss, grads = ms.value_and_grad(self.network, None, self.weights)(*inputs)
        grads = ops.clip_by_global_norm(tuple(grad * self.sens for grad in grads), 0.5)
        self.optimizer(grads)
        return loss


class SummingStep(nn.TrainOneStepCell):
    """Takes the gradients from the Parameters in which a pipeline sums them, as public training cells do."""

    def __init__(self, network, optimizer, sens):
        super().__init__(network, optimizer, sens)
        self.sums = self.weights.clone(prefix="accu_grads", init="zeros")

    def construct(self, *inputs):
        loss, grads = ms.value_and_grad(self.network, None, self.weights)(*inputs)
        scaled = []
        for grad, total in zip(grads, self.sums, strict=True):
            scaled.append(ops.depend(total, grad) * self.sens)
            ops.assign(total, ops.zeros_like(total))
        self.optimizer(tuple(scaled))
        return loss


class ScaledClippedStep(nn.TrainOneStepWithLossScaleCell):
    """Scales the loss dynamically, and clips by the global norm before the update."""

    def _update(self, overflow, grads):
        super()._update(overflow, ops.clip_by_global_norm(tuple(grads), 0.5))


def scaled_and_clipped(cell, optimizer):
    manager = nn.DynamicLossScaleUpdateCell(2.0**10, 2, 2)
    return ScaledClippedStep(cell, optimizer, manager)


def settings(stages, schedule="1f1b", devices=8, mode="semi_auto_parallel", interleave=False, **more):
    context.reset_auto_parallel_context()
    if stages > 1:
        context.set_auto_parallel_context(
            parallel_mode=mode,
            device_num=devices,
            pipeline_stages=stages,
            pipeline_config={"pipeline_interleave": interleave or schedule != "1f1b", "pipeline_scheduler": schedule},
            **more,
        )


class RowLoss(Loss):
    """The loss as a vector with one element."""

    def construct(self, ids, labels):
        return super().construct(ids, labels).reshape(1)


def losses(places, micro, step_class=nn.TrainOneStepCell, optimizer=nn.Adam, steps=3, make=None, loss=Loss, **network):
    """Losses of a few steps under the present settings."""
    ms.set_seed(1)
    net = Net(places, **network)
    net.set_train()
    cell = PipelineCell(loss(net), micro)
    update = optimizer(net.trainable_params(), 1e-2)
    step = make(cell, update) if make else step_class(cell, update, sens=1 / micro)
    results = [step(Tensor(IDS), Tensor(LABELS)) for _ in range(steps)]
    return [float(result[0] if isinstance(result, tuple) else result) for result in results], net, step


@cache
def on_one_device(blocks, micro, **options):
    """What `losses` gives for so many blocks on one device, and the Parameters after training, by name.

    Operator by operator: a compiled step holds every micro batch by itself and costs more than that of the pipeline.
    """
    mode = context.get_context("mode")
    settings(1)
    context.set_context(mode=context.PYNATIVE_MODE)
    results, net, _ = losses(straight(1, blocks), micro, **options)
    context.set_context(mode=mode)
    return results, values(net)


def values(net):
    return {parameter.name: parameter.asnumpy() for parameter in net.get_parameters()}


def assert_same_training(got, expected):
    """Losses and Parameters, as of `on_one_device`."""
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    assert got[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        np.testing.assert_allclose(got[1][name], value, rtol=2e-4, atol=2e-6, err_msg=name)
