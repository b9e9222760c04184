"""Arguments of operators that send messages: what is wrong is refused when they are made, in our words."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, ops

X = Tensor(np.ones(2, np.float32))
NONE = [-1] * 8


def exchange(send=(0,), recv=(0,), recv_shapes=((2,),), send_shapes=((2,),), dtype=ms.float32):
    return ops.NeighborExchange(send, recv, recv_shapes, send_shapes, dtype)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: exchange(send="0"), SporaxTypeError, "'send_rank_ids' must be a tuple or list, but got str"),
        (lambda: exchange(send=0), SporaxTypeError, "'send_rank_ids' must be a tuple or list, but got int"),
        (lambda: exchange(send=[0.5]), SporaxTypeError, r"'send_rank_ids\[0\]' must be an int, but got float"),
        (lambda: exchange(recv=[None]), SporaxTypeError, r"'recv_rank_ids\[0\]' must be an int, but got NoneType"),
        (lambda: exchange(recv_shapes=None), SporaxTypeError, "'recv_shapes' must be a tuple or list, but got NoneType"),
        (lambda: exchange(send_shapes=(2,)), SporaxTypeError, r"'send_shapes\[0\]' must be a tuple or list, but got int"),
        (lambda: exchange(recv_shapes=((-2,),)), SporaxValueError, "'recv_shapes' must be >= 0"),
        (lambda: exchange(recv=(0, 0)), SporaxValueError, "'recv_shapes' must have one shape for each of the ranks"),
        (lambda: exchange(dtype=None), SporaxTypeError, "'recv_type' must be a dtype, but got None"),
        (lambda: exchange()(3), SporaxTypeError, "'tensor' must be a tuple or list, but got int"),
        (lambda: exchange()(X), SporaxTypeError, "'tensor' must be a tuple or list, but got Tensor"),
        (lambda: ops.NeighborExchangeV2(["a", *NONE[1:]], [0] * 4, NONE, [0] * 4, "NCHW"), SporaxTypeError, "must be an int"),
        (lambda: ops.NeighborExchangeV2(NONE, [0.5] * 4, NONE, [0] * 4, "NCHW"), SporaxTypeError, "must be an int"),
        (lambda: ops.BatchISendIRecv(("isend",), ("0",)), SporaxTypeError, r"'remote_ranks\[0\]' must be an int"),
        (lambda: ops.BatchISendIRecv(("isend",), (0,))((None,)), SporaxValueError, "one tensor for each 'isend'"),
        (lambda: ops.BatchISendIRecv(("irecv",), (0,), (3,), (ms.float32,)), SporaxTypeError, r"'receive_shapes\[0\]'"),
        (lambda: ops.BatchISendIRecv(("irecv",), (0,), ((3,),), (None,)), SporaxTypeError, "'receive_dtypes' must hold dtypes"),
        (lambda: ops.Receive(0, 0, 3, ms.float32), SporaxTypeError, "'shape' must be a tuple or list, but got int"),
        (lambda: ops.Receive(0, 0, [3], None), SporaxTypeError, "'dtype' must be a dtype, but got None"),
        (lambda: exchange(dtype="float"), SporaxTypeError, "'recv_type' must be a dtype, but got 'float'"),
        (lambda: ops.ReduceScatterV()(X, [None]), SporaxTypeError, "'input_split_sizes' must be ints"),
        (lambda: ops.AlltoAllV()(X, ["2"], [2]), SporaxTypeError, "'send_numel_list' must be ints"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_rank_that_exchanges_nothing_needs_no_input():
    assert exchange((), (), (), ())() == ()


def test_a_rank_may_send_to_itself():
    (received,) = exchange()((X,))
    np.testing.assert_array_equal(received.asnumpy(), X.asnumpy())
