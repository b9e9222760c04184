"""`DatasetHelper`: the batches of each epoch; sink mode is refused."""

import numpy as np
import pytest

import sporax as ms
from sporax import dataset as ds


def test_each_iteration_is_an_epoch():
    data = ds.NumpySlicesDataset(np.arange(6, dtype=np.int32), "x", shuffle=False).batch(2)
    helper = ms.DatasetHelper(data, dataset_sink_mode=False)
    for _ in range(2):
        assert [batch[0].asnumpy().tolist() for batch in helper] == [[0, 1], [2, 3], [4, 5]]
    assert helper.sink_size() == 1
    assert helper.types_shapes() == (data.output_types(), data.output_shapes())
    network = object()
    assert ms.connect_network_with_dataset(network, helper) is network
    helper.release()


def test_what_is_refused():
    data = ds.NumpySlicesDataset(np.arange(6), "x")
    with pytest.raises(NotImplementedError, match="dataset_sink_mode"):
        ms.DatasetHelper(data)
    with pytest.raises(NotImplementedError, match="sink_size"):
        ms.DatasetHelper(data, False, sink_size=2)
    with pytest.raises(TypeError, match="Dataset"):
        ms.DatasetHelper([1], False)
    with pytest.raises(TypeError, match="DatasetHelper"):
        ms.connect_network_with_dataset(None, data)
