"""Arguments of operators that send messages: what is wrong is refused by name, of `NeighborExchange` as MindSpore does."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.mindspore import Tensor, ops

WORLD = ms.communication.GlobalComm.WORLD_COMM_GROUP
X = Tensor(np.ones(2, np.float32))
NONE = [-1] * 8


def exchange(send=[0], recv=[0], recv_shapes=([2],), send_shapes=([2],), dtype=ms.float32, group=WORLD):  # noqa: B006
    return ops.NeighborExchange(send, recv, recv_shapes, send_shapes, dtype, group)


def borders(send=NONE, send_lens=[0] * 4, recv=NONE, recv_lens=[0] * 4, data_format="NCHW"):
    """Called with a tile of 3 by 3."""
    return ops.NeighborExchangeV2(send, send_lens, recv, recv_lens, data_format)(
        Tensor(np.ones((1, 1, 3, 3), np.float32))
    )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: exchange(send="0")((X,)), SporaxTypeError, r"attr 'send_rank_ids' must be a list\[int, int, ...\]"),
        (lambda: exchange(send=0)((X,)), SporaxTypeError, r"attr 'send_rank_ids' must be a list\[int, int, ...\]"),
        (lambda: exchange(send=(0,))((X,)), SporaxTypeError, r"attr 'send_rank_ids' must be a list\[int, int, ...\]"),
        (lambda: exchange(send=[0.5])((X,)), SporaxTypeError, r"attr 'send_rank_ids' must be a list\[int, int, ...\]"),
        (lambda: exchange(recv=[None])((X,)), SporaxTypeError, r"attr 'recv_rank_ids' must be a list\[int, int, ...\]"),
        (lambda: exchange(recv_shapes=None)((X,)), SporaxTypeError, r"'recv_shapes' must be a tuple\(list, list, ...\)"),
        (lambda: exchange(recv_shapes=[[2]])((X,)), SporaxTypeError, r"'recv_shapes' must be a tuple\(list, list, ...\)"),
        (lambda: exchange(send_shapes=(2,))((X,)), SporaxTypeError, r"'send_shapes' must be a tuple\(list, list, ...\)"),
        (lambda: exchange(recv_shapes=((-2,),))((X,)), SporaxValueError, "'recv_shapes' must be >= 0"),
        (lambda: exchange(recv=[0, 0])((X,)), SporaxValueError, "'recv_shapes' size must be equal to attr 'recv_rank_ids' size"),
        (lambda: exchange(dtype=None)((X,)), SporaxTypeError, "attr 'recv_type' must be a mindspore data type, but got None"),
        (lambda: exchange(dtype=np.float32)((X,)), SporaxTypeError, "attr 'recv_type' must be a mindspore data type"),
        (lambda: exchange(group=("a",))((X,)), SporaxTypeError, "attr 'group' must be a str"),
        (lambda: exchange()((X, X)), SporaxRuntimeError, "the inputs must have the shapes of attr 'send_shapes'"),
        (lambda: exchange(send_shapes=([3],))((X,)), SporaxRuntimeError, "the inputs must have the shapes of attr 'send_shapes'"),
        (lambda: exchange()(3), SporaxTypeError, "'tensor' must be a tuple or list, but got int"),
        (lambda: exchange()(X), SporaxTypeError, "'tensor' must be a tuple or list, but got Tensor"),
        (lambda: ops.NeighborExchangeV2(["a", *NONE[1:]], [0] * 4, NONE, [0] * 4, "NCHW"), SporaxTypeError, "must be an int"),
        (lambda: ops.NeighborExchangeV2([-3, *NONE[1:]], [0] * 4, NONE, [0] * 4, "NCHW"), SporaxValueError, "must be -1 or a rank"),
        (lambda: borders(send=(*NONE,)), SporaxTypeError, r"attr 'send_rank_ids' must be a list\[int, int, ...\]"),
        (lambda: borders(send=[-1, 0]), SporaxValueError, "attr 'send_rank_ids' size must be 8, but got 2"),
        (lambda: borders(recv=[0, 0, *NONE[2:]]), SporaxValueError, "'recv_rank_ids' can not be repeated"),
        (lambda: borders(send_lens=[0.5] * 4), SporaxTypeError, r"attr 'send_lens' must be a list\[int, int, ...\]"),
        (lambda: borders(recv_lens=[0, 1, 0]), SporaxValueError, "attr 'recv_lens' size must be 4, but got 3"),
        (lambda: borders(recv_lens=[0, -1, 0, 0]), SporaxValueError, "'recv_lens' must be >=0, but got invalid len: -1"),
        (lambda: borders(send_lens=[0, 0, 4, 0]), SporaxValueError, r"send_lens\[2\] must be less than or equal to input size in W"),
        (lambda: borders(data_format="NHWC"), SporaxValueError, "attr 'data_format' only support NCHW now, but got 'NHWC'"),
        (lambda: ops.BatchISendIRecv(("isend",), ("0",)), SporaxTypeError, r"'remote_ranks\[0\]' must be an int"),
        (lambda: ops.BatchISendIRecv(("isend",), (0,))((None,)), SporaxValueError, "one tensor for each 'isend'"),
        (lambda: ops.BatchISendIRecv(("irecv",), (0,), (3,), (ms.float32,)), SporaxTypeError, r"'receive_shapes\[0\]'"),
        (lambda: ops.BatchISendIRecv(("irecv",), (0,), ((3,),), (None,)), SporaxTypeError, "'receive_dtypes' must hold dtypes"),
        (lambda: ops.Receive(0, 0, 3, ms.float32), SporaxTypeError, "'shape' must be a tuple or list, but got int"),
        (lambda: ops.Receive(0, 0, [3], None), SporaxTypeError, "'dtype' must be a dtype, but got None"),
        (lambda: exchange(dtype="float")((X,)), SporaxTypeError, "attr 'recv_type' must be a mindspore data type, but got 'float'"),
        (lambda: ops.ReduceScatterV()(X, [None]), SporaxTypeError, "'input_split_sizes' must be ints"),
        (lambda: ops.AlltoAllV()(X, ["2"], [2]), SporaxTypeError, "'send_numel_list' must be ints"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_rank_that_exchanges_nothing_needs_no_input():
    assert exchange([], [], (), ())() == ()


def test_a_rank_may_send_to_itself():
    (received,) = exchange()((X,))
    np.testing.assert_array_equal(received.asnumpy(), X.asnumpy())
