"""What nobody writes, inside of a stage: default strategies are for the devices of the stage and not for all."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError, SporaxTypeError
from sporax.mindspore import Parameter, Tensor, context, nn, ops
from sporax.mindspore.parallel.nn import PipelineCell

IDS = np.random.default_rng(0).integers(0, 32, (32, 4)).astype(np.int32)


class Net(nn.Cell):
    """A lookup in the first stage."""

    def __init__(self, slice_mode):
        super().__init__()
        self.embed = nn.EmbeddingLookup(32, 8, target="DEVICE", slice_mode=slice_mode)
        self.first, self.last = nn.Dense(8, 8), nn.Dense(8, 1)
        self.embed.pipeline_stage = self.first.pipeline_stage = 0
        self.last.pipeline_stage = 1

    def construct(self, ids):
        return (self.last(self.first(self.embed(ids))) ** 2).mean()


def trained(slice_mode, stages):
    context.reset_auto_parallel_context()
    context.set_context(mode=context.GRAPH_MODE if stages > 1 else context.PYNATIVE_MODE)
    if stages > 1:
        context.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel", device_num=8, pipeline_stages=stages, dataset_strategy="full_batch"
        )
    ms.set_seed(1)
    net = Net(slice_mode)
    step = nn.TrainOneStepCell(PipelineCell(net, 4), nn.SGD(net.trainable_params(), 0.1))
    losses = [float(step(Tensor(IDS))) for _ in range(2)]
    context.reset_auto_parallel_context()
    return losses, net


@pytest.mark.parametrize("slice_mode", ["batch_slice", "table_row_slice", "table_column_slice"])
@pytest.mark.sampled(1)
def test_a_lookup_is_sharded_over_the_devices_of_its_stage(slice_mode):
    losses, net = trained(slice_mode, 2)
    np.testing.assert_allclose(losses, trained(slice_mode, 1)[0], rtol=1e-5)
    shards = net.embed.embedding_table.array.sharding
    assert len(shards.device_set) == 4
    pieces = {"batch_slice": (32, 8), "table_row_slice": (8, 8), "table_column_slice": (32, 2)}[slice_mode]
    assert shards.shard_shape((32, 8)) == pieces


def lookup_in_fields(parts):
    """One step of a lookup that is split by hand, in two stages; gives where the table is."""
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel", device_num=8, pipeline_stages=2, dataset_strategy="full_batch"
    )
    net = Net("table_row_slice")
    net.embed = nn.EmbeddingLookup(32, 8, target="DEVICE", slice_mode="field_slice", manual_shapes=parts)
    net.embed.pipeline_stage = 0
    step = nn.TrainOneStepCell(PipelineCell(net, 4), nn.SGD(net.trainable_params(), 0.1))
    starts = np.cumsum((0, *parts[:-1]))
    step(Tensor((IDS % np.array((*parts, *parts))[:4] + starts[:4]).astype(np.int32)))
    context.reset_auto_parallel_context()
    return net.embed.embedding_table.array.sharding.shard_shape((32, 8))


def test_parts_of_a_table_are_checked_for_the_stage_and_kept_evenly():
    assert lookup_in_fields((8, 8, 8, 8)) == (8, 8)
    with pytest.warns(UserWarning, match=r"parts of \(4, 12, 10, 6\) rows are not offered inside of a pipeline stage"):
        assert lookup_in_fields((4, 12, 10, 6)) == (8, 8)
    with pytest.raises(SporaxRuntimeError, match="For '.*embeddinglookup"):
        lookup_in_fields((4,) * 8)


def test_a_stage_that_is_added_to_a_parameter_is_no_news():
    parameter = Parameter(Tensor(np.zeros(2, np.float32)), name="w")
    with pytest.warns(UserWarning, match="stage 1 of 'w' has no effect"):
        parameter.add_pipeline_stage(1)
    for wrong in (-1, True, "1"):
        with pytest.raises(SporaxTypeError, match="'stage' must be an int of at least 0"):
            parameter.add_pipeline_stage(wrong)


@pytest.mark.parametrize("make", [lambda: nn.Dense(8, 8), ops.ReLU, lambda: lambda x: ops.relu(x) * 2])
def test_an_output_strategy_of_none_is_the_planners_choice(make):
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy="full_batch")
    rows = Tensor(np.ones((8, 8), np.float32))
    results = []
    for out_strategy in ((None,), None):
        ms.set_seed(1)
        cell = make()
        sharded = ms.shard(cell, in_strategy=((4, 1),), out_strategy=out_strategy)
        results.append(ms.jit(lambda x, sharded=sharded: sharded(x).sum())(rows).asnumpy())
    context.reset_auto_parallel_context()
    assert results[0] == results[1]
    with pytest.raises(SporaxTypeError, match="'out_strategy' must be tuples or Layouts, but got 3"):
        ms.shard(make(), in_strategy=((4, 1),), out_strategy=(3,))
