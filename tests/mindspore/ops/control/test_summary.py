"""Values that programs put aside while they run."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.ops.control import debug


class Watched(nn.Cell):
    def __init__(self):
        super().__init__()
        self.scalar, self.histogram = ops.ScalarSummary(), ops.HistogramSummary()

    def construct(self, x):
        self.scalar("total", x.sum())
        self.histogram("inputs", x)
        return (x * x).sum()


@pytest.fixture
def semi_auto():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, full_batch=True)
    yield
    ms.reset_auto_parallel_context()


@pytest.mark.usefixtures("mode")
def test_values_are_put_aside_forwards_and_in_gradients():
    debug.take()
    gradient = ms.grad(Watched())(Tensor([1.0, 2.0]))
    kept = debug.take()
    np.testing.assert_array_equal(gradient.asnumpy(), [2.0, 4.0])
    assert sorted(kept) == [("histogram", "inputs"), ("scalar", "total")]
    assert kept["scalar", "total"] == 3.0
    np.testing.assert_array_equal(kept["histogram", "inputs"], [1.0, 2.0])


def test_the_last_value_of_a_name_counts_and_is_taken_once():
    debug.take()
    assert ops.ScalarSummary()("loss", Tensor(1.0)) is None
    ops.ScalarSummary()("loss", Tensor([2.0]))
    assert {key: value.item() for key, value in debug.take().items()} == {("scalar", "loss"): 2.0}
    assert debug.take() == {}


@pytest.mark.usefixtures("semi_auto")
def test_a_sharded_step_gives_the_whole_values():
    debug.take()
    Watched()(Tensor(np.arange(8, dtype=np.float32)))
    kept = debug.take()
    assert kept["scalar", "total"] == 28.0
    assert kept["histogram", "inputs"].shape == (8,)


@pytest.mark.parametrize(
    ("make", "value", "message"),
    [
        (ops.ScalarSummary, Tensor([1.0, 2.0]), "For 'ScalarSummary', 'value' must have one element, but got shape"),
        (ops.ImageSummary, Tensor([1.0]), "For 'ImageSummary', 'value' must have 4 dimensions, but got shape"),
        (ops.HistogramSummary, Tensor(1.0), "For 'HistogramSummary', 'value' must have at least 1 dimension"),
        (ops.TensorSummary, Tensor(1.0), "For 'TensorSummary', 'value' must have at least 1 dimension"),
    ],
)
def test_dimensions_must_fit(make, value, message):
    with pytest.raises(SporaxValueError, match=message):
        make()("x", value)


@pytest.mark.parametrize("value", [3, True, "three", np.ones(1)])
def test_values_must_be_tensors(value):
    with pytest.raises(SporaxTypeError, match="For 'ScalarSummary', 'value' must be a Tensor, but got"):
        ops.ScalarSummary()("x", value)


def test_names_must_be_strings_that_say_something():
    with pytest.raises(SporaxTypeError, match="For 'ScalarSummary', 'name' must be a string, but got int"):
        ops.ScalarSummary()(3, Tensor(1.0))
    with pytest.raises(SporaxValueError, match="For 'ScalarSummary', 'name' must not be empty"):
        ops.ScalarSummary()("", Tensor(1.0))
