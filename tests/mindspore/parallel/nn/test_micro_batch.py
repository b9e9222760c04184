import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxKeyError, SporaxTypeError, SporaxValueError
from sporax.mindspore import nn
from sporax.mindspore.parallel.nn import (
    GradAccumulation,
    MicroBatchInterleaved,
    Pipeline,
    PipelineCell,
    PipelineGradReducer,
)

X = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.fixture
def net():
    return nn.Dense(2, 2, weight_init="ones", bias_init="ones")


@pytest.fixture
def two():
    return nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("cell", [PipelineCell, Pipeline, GradAccumulation, MicroBatchInterleaved])
def test_outputs_of_the_parts_are_added(net, cell, mode):
    ms.set_context(mode=mode)
    np.testing.assert_array_equal(cell(net, 2)(ms.Tensor(X)).asnumpy(), [[12, 12], [20, 20]])
    np.testing.assert_array_equal(cell(net, 4)(ms.Tensor(X)).asnumpy(), [[32, 32]])
    np.testing.assert_array_equal(cell(net, 1)(ms.Tensor(X)).asnumpy(), net(ms.Tensor(X)).asnumpy())


def test_gradients_are_those_of_the_whole_batch_after_division(net):
    loss = nn.WithLossCell(net, nn.MSELoss())
    x, y = ms.Tensor(X), ms.Tensor(X[::-1].copy())
    weights = net.trainable_params()
    whole = ms.grad(loss, None, weights)(x, y)
    summed = ms.grad(PipelineCell(loss, 4), None, weights)(x, y)
    for one, other in zip(whole, PipelineGradReducer(weights, 4)(summed), strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5)


def test_interleaved_batches_inside_micro_batches_add_up(net):
    cell = PipelineCell(MicroBatchInterleaved(net, 2), 2)
    np.testing.assert_array_equal(cell(ms.Tensor(X)).asnumpy(), [[32, 32]])


def test_names_of_parameters_do_not_change(two):
    before = [parameter.name for parameter in two.get_parameters()]
    assert [parameter.name for parameter in PipelineCell(two, 2).get_parameters()] == before


@pytest.mark.parametrize("cell", [PipelineCell, GradAccumulation, MicroBatchInterleaved])
def test_inputs_that_do_not_fit(net, cell):
    with pytest.raises(SporaxValueError, match=r"divisible by the 3 micro batches, but got shape \(4, 2\)"):
        cell(net, 3)(ms.Tensor(X))
    with pytest.raises(SporaxTypeError, match="input 0 must be a Tensor with a batch dimension, but got a scalar"):
        cell(net, 2)(ms.Tensor(1.0))
    with pytest.raises(SporaxTypeError, match="but got NoneType"):
        cell(net, 2)(None)


def test_several_outputs_cannot_be_added():
    class Twice(nn.Cell):
        def construct(self, x):
            return x, x

    with pytest.raises(SporaxTypeError, match="must be one Tensor, but got tuple"):
        MicroBatchInterleaved(Twice(), 2)(ms.Tensor(X))


@pytest.mark.parametrize("cell", [PipelineCell, GradAccumulation, MicroBatchInterleaved])
@pytest.mark.parametrize(("count", "error"), [("a", TypeError), (1.5, TypeError), (True, TypeError), (0, ValueError)])
def test_refused_counts(net, cell, count, error):
    with pytest.raises(error, match=f"For '{cell.__name__}'"):
        cell(net, count)


@pytest.mark.parametrize("cell", [PipelineCell, GradAccumulation, MicroBatchInterleaved])
def test_refused_networks(cell):
    with pytest.raises(SporaxTypeError, match="'network' must be"):
        cell(3, 2)


def test_stages_and_segments_by_name(two):
    PipelineCell(two, 2, {"0": 0, "1": 1}, {"0": 1, "1": 0})
    assert [(cell.pipeline_stage, cell.pipeline_segment) for cell in two] == [(0, 1), (1, 0)]
    PipelineCell(two, 2, {str(two): 1})
    assert two.pipeline_stage == 1


def test_refused_tables(two):
    with pytest.raises(SporaxKeyError, match=r"'stage_config' must be among \['0', '1'\], but got \['foo'\]"):
        PipelineCell(two, 2, {"0": 1, "foo": 1})
    assert two[0].pipeline_stage is None
    with pytest.raises(SporaxKeyError, match="'segment_config'"):
        PipelineCell(two, 2, None, {"zz": 1})
    with pytest.raises(SporaxTypeError, match="'stage_config' must be a dict"):
        PipelineCell(two, 2, 3)
    with pytest.raises(SporaxTypeError):
        PipelineCell(two, 2, {"0": "a"})


def test_a_pipeline_cell_cannot_be_sharded(net):
    with pytest.raises(SporaxValueError, match="on the network it wraps"):
        PipelineCell(net, 2).shard(((1, 1),))
