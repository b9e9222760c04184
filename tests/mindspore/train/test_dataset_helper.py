"""`DatasetHelper`: the batches of each epoch, and networks that fetch their own."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import dataset as ds, nn, ops

ROWS = np.random.RandomState(0).uniform(-1, 1, (8, 3)).astype(np.float32)
TARGETS = ROWS @ np.array([[1.0], [2.0], [3.0]], np.float32)


@pytest.fixture(params=[ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def mode(request):
    ms.set_context(mode=request.param)
    yield request.param
    ms.set_context(mode=ms.PYNATIVE_MODE)


def batches():
    return ds.NumpySlicesDataset((ROWS, TARGETS), ["x", "y"], shuffle=False).batch(2)


def training_network():
    network = nn.Dense(3, 1, weight_init="zeros", bias_init="zeros")
    step = nn.TrainOneStepCell(
        nn.WithLossCell(network, nn.MSELoss()), nn.Momentum(network.trainable_params(), 0.1, 0.9)
    )
    return step.set_train(), network


def test_each_iteration_is_an_epoch():
    data = ds.NumpySlicesDataset(np.arange(6, dtype=np.int32), "x", shuffle=False).batch(2)
    helper = ms.DatasetHelper(data, dataset_sink_mode=False)
    for _ in range(2):
        assert [batch[0].asnumpy().tolist() for batch in helper] == [[0, 1], [2, 3], [4, 5]]
    assert helper.sink_size() == 1
    assert helper.types_shapes() == (data.output_types(), data.output_shapes())
    helper.release()


@pytest.mark.parametrize(("sink_size", "epochs"), [(-1, 3), (3, 4)])
def test_sink_mode_takes_the_steps_of_a_loop(mode, sink_size, epochs):
    step, network = training_network()
    helper = ms.DatasetHelper(batches(), sink_size=sink_size, epoch_num=epochs)
    fed = ms.connect_network_with_dataset(step, helper)
    assert ms.connect_network_with_dataset(step, helper) is fed
    assert helper.sink_size() == (4 if sink_size == -1 else sink_size)
    calls = 0
    for _ in range(epochs):
        for inputs in helper:
            loss = fed(*inputs)
            calls += 1
    assert calls == epochs * (1 if mode == ms.GRAPH_MODE else helper.sink_size())
    helper.release()

    plain, expected = training_network()
    rows = [batch for _ in range(epochs) for batch in batches()]
    for batch in rows[: epochs * helper.sink_size()]:
        expected_loss = plain(*batch)
    np.testing.assert_allclose(loss.asnumpy(), expected_loss.asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(network.weight.asnumpy(), expected.weight.asnumpy(), rtol=1e-5)


def test_functions_can_be_fed(mode):
    seen = []
    helper = ms.DatasetHelper(batches(), sink_size=2)
    fed = ms.connect_network_with_dataset(lambda x, y: seen.append(np.asarray(x)) or ops.mean(ms.Tensor(y)), helper)
    for inputs in helper:
        fed(*inputs)
    np.testing.assert_array_equal(np.concatenate(seen), ROWS[:4])
    helper.release()


def test_what_is_refused():
    data = ds.NumpySlicesDataset(np.arange(6), "x")
    with pytest.raises(ValueError, match="sink_size"):
        ms.DatasetHelper(data, sink_size=0)
    with pytest.raises(TypeError, match="Dataset"):
        ms.DatasetHelper([1], False)
    with pytest.raises(TypeError, match="DatasetHelper"):
        ms.connect_network_with_dataset(None, data)
    with pytest.raises(RuntimeError, match="must be in sink mode"):
        ms.connect_network_with_dataset(None, ms.DatasetHelper(data, False))
    helper = ms.DatasetHelper(data)
    ms.connect_network_with_dataset(print, helper)
    with pytest.raises(ValueError, match="another network already"):
        ms.connect_network_with_dataset(repr, helper)
    helper.release()


def test_an_empty_epoch_ends_with_an_error():
    data = ds.NumpySlicesDataset(ROWS, "x").filter(lambda x: False)
    helper = ms.DatasetHelper(data, sink_size=1)
    with pytest.raises(RuntimeError, match="at least one batch"):
        ms.connect_network_with_dataset(lambda x: x, helper)()
