"""Steps for Ascend read overflows from a register; here from what `depend` says was computed before."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.ops import functional as F


def read_once(init, grads):
    """The statements of step classes before MindSpore 2.0."""
    init = F.depend(init, grads)
    read = ops.NPUGetFloatStatus()(init)
    init = F.depend(init, read)
    return F.reduce_sum(init, (0,))


@pytest.mark.parametrize(("value", "expected"), [(2.0, 0), (np.inf, 1), (np.nan, 1)])
def test_an_overflow_among_gradients_is_read(mode, value, expected):
    @ms.jit
    def step(x):
        init = ops.NPUAllocFloatStatus()()
        ops.NPUClearFloatStatus()(init)
        return read_once(init, {"grads": (x, [x * 2])})

    assert step(Tensor([1.0, value])).asnumpy() == expected


def test_clearing_forgets_what_was_computed_before():
    bad = Tensor([np.inf])
    status = F.depend(ops.NPUAllocFloatStatus()(), bad)
    ops.NPUClearFloatStatus()(status)
    assert ops.NPUGetFloatStatus()(status).asnumpy().tolist() == [0] * 8
    assert ops.NPUGetFloatStatus()(F.depend(status, bad)).asnumpy().tolist() == [1, *[0] * 7]


def test_the_second_version_with_integers():
    status = F.depend(Tensor([0] * 8, ms.int32), (Tensor([np.inf]),))
    read = ops.NPUGetFloatStatusV2()(status)
    assert (read.dtype, read.asnumpy()[0]) == (ms.int32, 1)


def test_float_status_of_one_tensor():
    assert ops.FloatStatus()(Tensor([1.0, np.inf])).asnumpy().tolist() == [1.0]
    assert ops.FloatStatus()(Tensor([1.0, 2.0])).asnumpy().tolist() == [0.0]


class Step(nn.Cell):
    def __init__(self, network, optimizer):
        super().__init__()
        self.network, self.optimizer = network, optimizer
        self.grad = ops.GradOperation(get_by_list=True)
        self.alloc, self.get, self.clear = ops.NPUAllocFloatStatus(), ops.NPUGetFloatStatus(), ops.NPUClearFloatStatus()

    def construct(self, x):
        loss = self.network(x)
        init = F.depend(self.alloc(), loss)
        x = F.depend(x, self.clear(init))
        grads = self.grad(self.network, self.optimizer.parameters)(x)
        overflow = read_once(init, grads) > 0
        if not overflow:
            self.optimizer(grads)
        return loss, overflow


def test_a_step_skips_the_update_after_an_overflow(mode):
    network = nn.SequentialCell(nn.Dense(2, 1, weight_init="ones"), nn.ReLU())
    step = Step(network, nn.SGD(network.trainable_params(), 0.1))
    before = network[0].weight.asnumpy()
    assert step(Tensor([[np.inf, 1.0]]))[1].asnumpy()
    np.testing.assert_array_equal(network[0].weight.asnumpy(), before)
    assert not step(Tensor([[1.0, 1.0]]))[1].asnumpy()
    assert not np.array_equal(network[0].weight.asnumpy(), before)


@pytest.mark.parametrize("bad", [3, Tensor([0.0])])
def test_what_is_no_register_is_refused(bad):
    with pytest.raises((TypeError, ValueError), match="For 'NPUGetFloatStatus', the input"):
        ops.NPUGetFloatStatus()(bad)
