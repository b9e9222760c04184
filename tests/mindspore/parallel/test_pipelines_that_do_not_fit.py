"""What a pipeline does not allow is refused when the step is compiled, with the Cell's path and both stages."""

from contextlib import contextmanager

import numpy as np
import pytest
from pipeline_cases import IDS, LABELS, Loss, Net, interleaved, losses, settings, straight

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore import Tensor, context, nn
from sporax.mindspore.parallel.nn import PipelineCell


@pytest.fixture(autouse=True)
def graph_mode():
    context.set_context(mode=context.GRAPH_MODE)


@contextmanager
def refusal(match):
    """One of MindSpore's type that says for what, with a message that matches."""
    with pytest.raises(SporaxRuntimeError, match=match) as caught:
        yield
    assert isinstance(caught.value, RuntimeError)
    assert str(caught.value).startswith("For '"), str(caught.value)


def refused(places, micro, match, stages=2, **more):
    settings(stages, **more)
    with refusal(match):
        losses(places, micro, steps=1)


def test_fewer_micro_batches_than_stages():
    refused(straight(4), 2, "'micro_size' must not be smaller than the 4 pipeline stages, but got 2", stages=4)


def test_a_stage_after_a_later_one():
    refused([(0, 0), (1, 0), (0, 0), (1, 0)], 4, r"blocks\.2.*stage 0.*reads from .*blocks\.1.*stage 1 .*is larger")


def test_a_stage_that_there_is_not():
    refused([(0, 0), (2, 0)], 4, r"blocks\.1.*must be smaller than the 2 pipeline stages, but got 2")


def test_stages_that_are_not_used():
    refused(straight(2), 4, r"'pipeline_stages' is 4, but .* in 2 stage\(s\), \[0, 1\]", stages=4)


def test_devices_that_cannot_be_divided():
    refused(straight(3), 4, "'device_num' must be divisible by 'pipeline_stages', but got 8 and 3", stages=3)


def test_an_update_apart_from_its_gradients():
    settings(2)
    net = Net(straight(2))
    cell = PipelineCell(Loss(net), 4)
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    _, gradients = ms.value_and_grad(cell, None, optimizer.parameters)(Tensor(IDS), Tensor(LABELS))
    with refusal(r"must be one step, but this step updates .* 'def step\(\*data\): .*ms\.jit\(step\)"):
        optimizer(gradients)


def test_training_without_micro_batches():
    settings(2)
    net = Net(straight(2))
    step = nn.TrainOneStepCell(Loss(net), nn.SGD(net.trainable_params(), 0.1))
    with refusal("pipeline_stages=2 must be trained with micro batches, but the step has no PipelineCell"):
        step(Tensor(IDS), Tensor(LABELS))


def test_more_devices_than_there_are():
    settings(2, devices=16)
    net = Net(straight(2))
    step = nn.TrainOneStepCell(PipelineCell(Loss(net), 4), nn.SGD(net.trainable_params(), 0.1))
    with refusal("'device_num' is 16, but there are 8 devices"):
        step(Tensor(IDS), Tensor(LABELS))


def test_zero_bubble_v_needs_two_micro_batches_per_stage():
    refused(interleaved(2, 2), 2, "at least 4 .*'zero_bubble_v'", schedule="zero_bubble_v")


@pytest.mark.parametrize("schedule", ["seqpipe", "seqvpp", "seqsmartvpp"])
def test_sequence_chunks_are_not_offered(schedule):
    refused(straight(2), 4, f"'{schedule}' splits micro batches along the sequence", schedule=schedule)


def test_prediction_needs_no_micro_batches():
    settings(1)
    np.random.seed(0)
    import sporax.mindspore as ms

    ms.set_seed(1)
    expected = Net(straight(2)).set_train(False)(Tensor(IDS)).asnumpy()
    settings(2, dataset_strategy="full_batch")
    ms.set_seed(1)
    got = Net(straight(2)).set_train(False)(Tensor(IDS)).asnumpy()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
