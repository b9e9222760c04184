"""Messages, tensors of different sizes, handles, Python objects, and what is refused."""

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.communication import (
    comm_func,
    create_group,
    destroy_group,
    get_group_rank_from_world_rank,
    get_group_size,
    get_process_group_ranks,
    get_rank,
    get_world_rank_from_group_rank,
    init,
)
from sporax.mindspore.ops import communication as dist

early = Tensor([1.0, 2.0])  # made before the ranks know of each other
init()
RANK, SIZE = get_rank(), get_group_size()
OTHER = 1 - RANK
assert SIZE == 2
np.testing.assert_array_equal(early.asnumpy(), [1, 2])


def mine(*shape, rank=RANK):
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) + 100 * rank


def same(tensor, expected):
    np.testing.assert_array_equal(tensor.asnumpy(), expected)


def check_primitives():
    x = Tensor(mine(3))
    lengths = [3, 4]
    same(ops.AllGatherV()(Tensor(mine(lengths[RANK])), lengths), np.concatenate([mine(3, rank=0), mine(4, rank=1)]))
    total = mine(7, rank=0) + mine(7, rank=1)
    same(ops.ReduceScatterV()(Tensor(mine(7)), lengths), total[:3] if RANK == 0 else total[3:])
    sent, received = ([1, 2], [1, 2]) if RANK == 0 else ([2, 1], [2, 1])
    same(ops.AlltoAllV()(x, sent, received), [0, 100, 101] if RANK == 0 else [1, 2, 102])
    same(ops.AlltoAllVC()(x, Tensor([[0, 3], [3, 0]])), mine(3, rank=OTHER))
    same(
        ops.NeighborExchange([OTHER], [OTHER], ([2 + OTHER],), ([2 + RANK],), ms.float32)((Tensor(mine(2 + RANK)),))[0],
        mine(2 + OTHER, rank=OTHER),
    )
    batch = ops.BatchISendIRecv(("isend", "irecv"), [OTHER, OTHER], [[3]], (ms.float32,))
    same(batch((x,))[1], mine(3, rank=OTHER))


def check_halo():
    """An image cut into an upper and a lower half: each gets a row of the other."""
    tile = mine(1, 1, 2, 3)
    side, lens = ([-1] * 4 + [1] + [-1] * 3, [0, 1, 0, 0]) if RANK == 0 else ([0] + [-1] * 7, [1, 0, 0, 0])
    actual = ops.NeighborExchangeV2(side, lens, side, lens, "NCHW")(Tensor(tile)).asnumpy()
    other = mine(1, 1, 2, 3, rank=OTHER)
    expected = [tile, other[:, :, :1]] if RANK == 0 else [other[:, :, 1:], tile]
    np.testing.assert_array_equal(actual, np.concatenate(expected, 2))


class PingPong(nn.Cell):
    """Rank 0 sends and waits for the answer, in one program; the answer depends on what was sent."""

    def __init__(self):
        super().__init__()
        self.send, self.receive = ops.Send(0, OTHER), ops.Receive(0, OTHER, [3], ms.float32)

    def construct(self, x):
        if RANK == 0:
            self.send(x)
            return self.receive(x)
        answer = self.receive(x) * 2
        self.send(answer)
        return answer


def check_functions():
    x = Tensor(mine(4))
    total = mine(4, rank=0) + mine(4, rank=1)
    result, handle = comm_func.all_reduce(x)
    same(result, total)
    assert handle is None
    result, handle = comm_func.all_reduce(x, "max", async_op=True)
    handle.wait()
    same(result, mine(4, rank=1))
    same(comm_func.all_gather_into_tensor(x)[0], np.concatenate([mine(4, rank=0), mine(4, rank=1)]))
    same(comm_func.reduce_scatter_tensor(x)[0], total[2 * RANK : 2 * RANK + 2])
    same(comm_func.reduce(x, 1), total if RANK == 1 else [0])
    same(comm_func.broadcast(x, 1), mine(4, rank=1))
    same(comm_func.scatter_tensor(x, 1), mine(4, rank=1)[2 * RANK : 2 * RANK + 2])
    same(comm_func.gather_into_tensor(x, 1), np.concatenate([mine(4, rank=0), mine(4, rank=1)]) if RANK else [0])
    comm_func.barrier()
    if RANK == 0:
        comm_func.send(x, 1)
    else:
        same(comm_func.recv(Tensor(np.zeros(4, np.float32)), 0), mine(4, rank=0))
    sent = comm_func.isend(x, OTHER)  # both send first: requests must not wait for each other
    received, arrival = comm_func.irecv(Tensor(np.zeros(4, np.float32)), OTHER)
    arrival.wait()
    sent.wait()
    same(received, mine(4, rank=OTHER))
    operations = [
        comm_func.P2POp("irecv", (4,), OTHER, recv_dtype=ms.float32),
        comm_func.P2POp(comm_func.isend, x, OTHER),
    ]
    same(comm_func.batch_isend_irecv(operations)[0], mine(4, rank=OTHER))
    shapes = [(1 + RANK,), (1 + RANK,)]
    parts = [Tensor(mine(1)), Tensor(mine(2))]
    same(comm_func.all_to_all_with_output_shape(shapes, parts)[0][OTHER], mine(1 + RANK, rank=OTHER))
    same(
        comm_func.all_to_all_single_with_output_shape((4,), x)[0],
        np.concatenate([mine(4, rank=r)[2 * RANK : 2 * RANK + 2] for r in range(2)]),
    )


def check_in_place():
    total = mine(4, rank=0) + mine(4, rank=1)
    both = np.concatenate([mine(4, rank=0), mine(4, rank=1)])
    x, out = Tensor(mine(4)), Tensor(np.zeros(8, np.float32))
    dist.all_reduce(x)
    same(x, total)
    x = Tensor(mine(4))
    assert dist.all_reduce(x, "avg", async_op=True).wait() is None
    same(x, total / 2)
    dist.all_gather_into_tensor(out, Tensor(mine(4)))
    same(out, both)
    pieces = [Tensor(np.zeros(4, np.float32)) for _ in range(2)]
    dist.all_gather(pieces, Tensor(mine(4)))
    same(pieces[1], mine(4, rank=1))
    half = Tensor(np.zeros(2, np.float32))
    dist.reduce_scatter_tensor(half, Tensor(mine(4)), "avg")
    same(half, total[2 * RANK : 2 * RANK + 2] / 2)
    one = Tensor(np.zeros(4, np.float32))
    dist.reduce_scatter(one, [Tensor(mine(4)), Tensor(mine(4))])
    same(one, total)
    dist.scatter(one, [Tensor(mine(4)), Tensor(mine(4) + 1)] if RANK == 0 else None, 0)
    same(one, mine(4, rank=0) + RANK)
    dist.gather(Tensor(mine(4)), pieces if RANK == 1 else None, 1)
    if RANK == 1:
        same(pieces[0], mine(4, rank=0))
    uneven = Tensor(np.zeros((3, 2), np.float32))
    dist.all_gather_into_tensor_uneven(uneven, Tensor(mine(1 + RANK, 2)), [1, 2])
    same(uneven, np.concatenate([mine(1, 2, rank=0), mine(2, 2, rank=1)]))
    dist.all_to_all_single(one, Tensor(mine(4)))
    same(one, np.concatenate([mine(4, rank=r)[2 * RANK : 2 * RANK + 2] for r in range(2)]))
    handles = dist.batch_isend_irecv([dist.P2POp("isend", Tensor(mine(4)), OTHER), dist.P2POp("irecv", one, OTHER)])
    handles[0].wait()
    same(one, mine(4, rank=OTHER))
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": RANK, "text": "x" * (5 + RANK)})
    assert [item["rank"] for item in objects] == [0, 1]
    shared = [RANK, "a"]
    dist.broadcast_object_list(shared, 1)
    assert shared == [1, "a"]
    parts = [None]
    dist.scatter_object_list(parts, [{"for": 0}, {"for": 1}] if RANK == 0 else None, 0)
    assert parts == [{"for": RANK}]
    # The kinds of MindSpore's errors, before anything is sent.
    for share in (
        lambda: dist.broadcast_object_list(shared, src="1"),
        lambda: dist.broadcast_object_list({}),
        lambda: dist.gather_object(1, objects, dst="1"),
        lambda: dist.gather_object(1, {}, dst=RANK),
        lambda: dist.scatter_object_list(None, shared),
        lambda: dist.scatter_object_list(parts, {None}, RANK),
        lambda: dist.scatter_object_list(parts, {}, RANK),
    ):
        with pytest.raises(TypeError):
            share()


def check_groups_without_names():
    # As the wheel's: the backend, the number of ranks and their SHA-1; ranks are put in order.
    name = "2_30879612a0f2eb969a8b57e5bc857347e88fdf07"
    assert dist.new_group([1, 0]) == dist.new_group([0, 1], group_desc="unused") == "hccl_" + name
    assert dist.new_group([0, 1], backend="mccl") == "mccl_" + name
    assert get_process_group_ranks("hccl_" + name) == [0, 1]
    for wrong in ({"ranks": (0, 1)}, {"ranks": [0, 1], "backend": "nccl"}):
        with pytest.raises(TypeError):
            dist.new_group(**wrong)


def check_groups():
    create_group("back", [1, 0])
    create_group("back", [1, 0])
    assert get_rank("back") == OTHER
    assert get_process_group_ranks("back") == [1, 0]
    assert get_world_rank_from_group_rank("back", 0) == 1
    assert get_group_rank_from_world_rank(1, "back") == 0
    same(ops.AllGather("back")(Tensor(mine(1))), [100, 0])
    with pytest.raises(ValueError, match="exists with ranks"):
        create_group("back", [0, 1])
    destroy_group("back")
    for bad, kind in (([], ValueError), ([0, 0], ValueError), ((0,), TypeError), ([5], RuntimeError)):
        with pytest.raises(kind):
            create_group("bad", bad)
    create_group("alone", [OTHER])
    with pytest.raises(RuntimeError, match="must be a member"):
        ops.AllReduce(group="alone")(Tensor(mine(2)))
    with pytest.raises(ValueError, match="cannot be destroyed"):
        destroy_group("hccl_world_group")


def check_refusals():
    x = Tensor(mine(3))
    cases = [
        (lambda: ops.AllReduce(3), TypeError),
        (lambda: ops.AllReduce(group=3), TypeError),
        (lambda: ops.AllReduce(group="nobody"), RuntimeError),
        (lambda: ops.AllReduce("average")(x), RuntimeError),
        (lambda: ops.AllReduce()(mine(3)), TypeError),
        (lambda: ops.ReduceScatter()(x), ValueError),
        (lambda: ops.AllGather()(Tensor(1.0)), ValueError),
        (lambda: ops.Broadcast("0"), TypeError),
        (lambda: ops.Broadcast(0)(x), TypeError),
        (lambda: ops.Broadcast(7)((x,)), ValueError),
        (lambda: ops.AlltoAll(3, 0, 0), ValueError),
        (lambda: ops.AlltoAll(2, 0, 0)(x), ValueError),
        (lambda: ops.AlltoAll(2, 4, 0)(x), ValueError),
        (lambda: ops.Reduce(9)(x), ValueError),
        (lambda: comm_func.all_reduce(x, "average"), TypeError),
        (lambda: comm_func.all_reduce(3), TypeError),
        (lambda: comm_func.P2POp("bcast", x, OTHER), TypeError),
        (lambda: comm_func.send(x, RANK), ValueError),
        (lambda: get_rank(3), TypeError),
        (lambda: get_group_size("nobody"), RuntimeError),
    ]
    for run, kind in cases:
        with pytest.raises(kind, match="For '"):
            run()


for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
    ms.set_context(mode=mode)
    check_halo()
    same(PingPong()(Tensor(mine(3))), 2 * mine(3, rank=0))
check_primitives()
check_functions()
check_in_place()
check_groups_without_names()
check_groups()
check_refusals()
print("all is well")
