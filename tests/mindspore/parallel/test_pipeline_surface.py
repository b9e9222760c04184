"""Every way that MindSpore has to request stages trains as one device does: functional, AutoParallel, nested cells, fusion."""

import re
from functools import cache

import numpy as np
import pytest
from pipeline_cases import (
    IDS,
    LABELS,
    Loss,
    Net,
    assert_same_training,
    losses,
    on_one_device,
    settings,
    straight,
    values,
)

import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn
from sporax.mindspore.parallel.auto_parallel import AutoParallel
from sporax.mindspore.parallel.nn import (
    GradAccumulation,
    MicroBatchInterleaved,
    Pipeline,
    PipelineCell,
    PipelineGradReducer,
)
from sporax.runtime.pipeline.stage_program import jitted_program

MICRO = 4
BATCH = (Tensor(IDS), Tensor(LABELS))


@pytest.fixture(autouse=True)
def graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


def functional(stages, level=None):
    """Losses and net of steps written with value_and_grad and `PipelineGradReducer`."""
    more = {}
    if level:
        more = {"enable_parallel_optimizer": True, "parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
    settings(stages, **(more if stages > 1 else {}))
    ms.set_seed(1)
    net = Net(straight(2)).set_train()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    gradients = ms.value_and_grad(PipelineCell(Loss(net), MICRO), None, optimizer.parameters)
    reducer = PipelineGradReducer(optimizer.parameters, scale_sense=MICRO)

    @ms.jit
    def step(ids, labels):
        loss, grads = gradients(ids, labels)
        optimizer(reducer(grads))
        return loss

    return [float(step(*BATCH)) for _ in range(3)], net


@cache
def functional_on_one_device():
    losses, net = functional(1)
    return losses, values(net)


@pytest.mark.parametrize("level", [None, "sharded"])
@pytest.mark.sampled(1)
def test_functional_training(level):
    got, net = functional(2, level)
    assert_same_training((got, values(net)), functional_on_one_device())
    assert {device.id for device in net.blocks[1].fc.weight.array.devices()} == {4, 5, 6, 7}


@pytest.mark.parametrize("scheduler", ["1f1b", "gpipe"])
@pytest.mark.sampled(1)
def test_auto_parallel_around_the_step(scheduler):
    def around(cell, optimizer):
        context.set_auto_parallel_context(device_num=8)
        wrapped = AutoParallel(nn.TrainOneStepCell(cell, optimizer, sens=1 / MICRO), parallel_mode="semi_auto")
        wrapped.pipeline(stages=2, output_broadcast=True, scheduler=scheduler, interleave=scheduler != "1f1b")
        return wrapped

    got, net, _ = losses(straight(2), MICRO, steps=2, make=around)
    np.testing.assert_allclose(got, on_one_device(2, MICRO)[0][:2], rtol=1e-5)
    assert {device.id for device in net.blocks[1].fc.weight.array.devices()} == {4, 5, 6, 7}


@pytest.mark.parametrize(
    "cell",
    [
        lambda net: Pipeline(net, MICRO),
        lambda net: PipelineCell(MicroBatchInterleaved(net, 2), MICRO // 2),
        lambda net: PipelineCell(GradAccumulation(net, 2), MICRO // 2),
    ],
    ids=["Pipeline", "MicroBatchInterleaved", "GradAccumulation"],
)
@pytest.mark.sampled(1)
def test_other_cells_of_micro_batches(cell):
    """Dropout draws other masks where a batch is divided otherwise, so it is left out."""

    def trained(stages):
        settings(stages)
        ms.set_seed(1)
        net = Net(straight(2))
        step = nn.TrainOneStepCell(cell(Loss(net)), nn.Adam(net.trainable_params(), 1e-2), sens=1 / MICRO)
        return [float(step(*BATCH)) for _ in range(2)]

    actual = trained(2)
    context.set_context(mode=context.PYNATIVE_MODE)  # as in `on_one_device`
    np.testing.assert_allclose(actual, trained(1), rtol=1e-5)


class MaskedMean(nn.Cell):
    """Two layers, a stage each, and the mean of the elements that a mask counts."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(4, 4), nn.Dense(4, 4)
        self.first.pipeline_stage, self.last.pipeline_stage = 0, 1

    def construct(self, x, mask):
        return (self.last(self.first(x)) * mask).sum() / mask.sum()


def test_a_masked_mean_divides_by_the_mask_of_its_micro_batch():
    """The sum of the parts' means, and its gradient; parts count other numbers of elements."""
    x = np.random.default_rng(2).normal(size=(8, 4)).astype(np.float32)
    mask = (np.arange(32).reshape(8, 4) < 19).astype(np.float32)
    mask[6:] = np.eye(4, dtype=np.float32)[:2]
    parts = [(Tensor(x[rows]), Tensor(mask[rows])) for rows in (slice(start, start + 2) for start in range(0, 8, 2))]

    def trained(stages):
        settings(stages, devices=4)
        ms.set_seed(1)
        net = MaskedMean()
        micro = PipelineCell(net, MICRO) if stages > 1 else lambda *_: sum(net(*part) for part in parts)
        gradients = ms.value_and_grad(micro, None, net.trainable_params())
        loss, grads = ms.jit(gradients)(Tensor(x), Tensor(mask))
        return float(loss), [grad.asnumpy() for grad in grads], net

    loss, grads, staged = trained(2)
    assert {device.id for device in staged.last.weight.array.devices()} == {2, 3}
    expected, wanted, net = trained(1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for grad, value in zip(grads, wanted, strict=True):
        np.testing.assert_allclose(grad, value, rtol=1e-5, atol=1e-6)
    assert abs(MICRO * float(net(Tensor(x), Tensor(mask))) - expected) > 1e-2


def test_gradients_of_a_stage_are_fused():
    """One all-reduce per stage and step where all gradients may be one buffer, and more where they may not."""
    counts = {}
    for mode in ("auto", "index"):
        fusion = {"allreduce": {"mode": mode, "config": None if mode == "auto" else [1, 2, 3]}}
        settings(2, devices=4, comm_fusion=fusion, gradients_mean=True)
        _, _, step = losses(straight(2, 2), MICRO, steps=0)
        planned = step.program.plan(*BATCH)
        texts = [
            jitted.lower(*shapes).compile().as_text()
            for chunk in planned.pipeline.chunks
            for jitted, shapes in (
                jitted_program(update, planned.pipeline.options)
                for update in chunk.programs.updates
                if not update.is_empty
            )
        ]
        counts[mode] = sum(len(re.findall(r" all-reduce(?:-start)?\(", text)) for text in texts)
    assert 0 < counts["auto"] < counts["index"]


def test_slices_of_stages_are_read_into_one_device(tmp_path):
    """``integrated_save=False``: a file per rank with the weights of its stage, which any plan can read."""
    settings(2, enable_parallel_optimizer=True, parallel_optimizer_config={"parallel_optimizer_threshold": 0})
    _, net, _ = losses(straight(2), MICRO, steps=1)
    values = {weight.name: weight.asnumpy() for weight in net.get_parameters()}
    name = tmp_path / "rank_0" / "net.ckpt"
    name.parent.mkdir()
    ms.save_checkpoint(net, str(name), integrated_save=False)
    settings(1)
    other = Loss(Net(straight(2)))
    assert not np.array_equal(other.net.head.weight.asnumpy(), values[net.head.weight.name])
    assert ms.load_param_into_net(other, ms.load_checkpoint(str(name))) == ([], [])
    for weight in other.get_parameters():
        np.testing.assert_array_equal(weight.asnumpy(), values[weight.name], err_msg=weight.name)
