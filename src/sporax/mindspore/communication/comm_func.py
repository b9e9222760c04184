"""Communication as functions that return their results: `mindspore.communication.comm_func`.

They are differentiable and work in compiled steps too. With ``async_op=True`` a handle comes along whose `wait` returns
when the result is there; results are computed in the background anyway, and whoever looks at one waits by himself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.ops._collectives import messages, primitives
from sporax.mindspore.ops._collectives.primitives import check_int, check_tensor
from sporax.mindspore.ops._collectives.requests import (
    CommHandle as CommHandle,
    P2POp as P2POp,
    check_operations,
    exchange as _exchange,
)
from sporax.runtime.ranks import collectives, groups

WORLD = groups.WORLD_GROUPS[0]
Handled = tuple[Tensor, CommHandle | None]
"""A result, and its handle if one was requested."""

__all__ = """
    CommHandle P2POp all_gather_into_tensor all_reduce all_to_all_single_with_output_shape all_to_all_v_c
    all_to_all_with_output_shape barrier batch_isend_irecv broadcast gather_into_tensor irecv isend recv reduce
    reduce_scatter_tensor scatter_tensor send
""".split()


def all_reduce(tensor: Tensor, op: str = "sum", group: str = WORLD, async_op: bool = False) -> Handled:
    """All members' tensors combined element by element, and the handle; see `ops.AllReduce`.

    Raises:
        SporaxTypeError: wrong types, or a reduction that does not exist.
    """
    result = primitives.AllReduce(_reduction("all_reduce", op), group)(check_tensor("all_reduce", tensor, "tensor"))
    return result, _handle("all_reduce", result, async_op)


def all_gather_into_tensor(tensor: Tensor, group: str = WORLD, async_op: bool = False) -> Handled:
    """All members' tensors one after another along dim 0, and the handle; see `ops.AllGather`."""
    result = primitives.AllGather(group)(check_tensor("all_gather_into_tensor", tensor, "tensor"))
    return result, _handle("all_gather_into_tensor", result, async_op)


def reduce_scatter_tensor(tensor: Tensor, op: str = "sum", group: str = WORLD, async_op: bool = False) -> Handled:
    """This rank's piece of all members' tensors combined, and the handle; see `ops.ReduceScatter`."""
    check_tensor("reduce_scatter_tensor", tensor, "tensor")
    result = primitives.ReduceScatter(_reduction("reduce_scatter_tensor", op), group)(tensor)
    return result, _handle("reduce_scatter_tensor", result, async_op)


def reduce(tensor: Tensor, dst: int, op: str = "sum", group: str = WORLD) -> Tensor:
    """All members' tensors combined, at world rank `dst`; elsewhere shape (1,) without meaning."""
    check_tensor("reduce", tensor, "tensor")
    # The operator counts members, the function world ranks.
    members = groups.find(group, "reduce")
    position = members.ranks.index(primitives.check_member("reduce", members, check_int("reduce", "dst", dst)))
    return primitives.Reduce(position, _reduction("reduce", op), group)(tensor)


def broadcast(tensor: Tensor, src: int = 0, group: str = WORLD) -> Tensor:
    """The tensor of world rank `src`, everywhere."""
    # The operator takes and returns tuples.
    return primitives.Broadcast(src, group)((check_tensor("broadcast", tensor, "tensor"),))[0]


def scatter_tensor(tensor: Tensor, src: int = 0, group: str = WORLD) -> Tensor:
    """This rank's piece of dim 0 of the tensor of world rank `src`."""
    return primitives.CollectiveScatter(src, group)(check_tensor("scatter_tensor", tensor, "tensor"))


def gather_into_tensor(tensor: Tensor, dst: int = 0, group: str = WORLD) -> Tensor:
    """All members' tensors along dim 0, at world rank `dst`; elsewhere shape (1,) without meaning."""
    return primitives.CollectiveGather(dst, group)(check_tensor("gather_into_tensor", tensor, "tensor"))


def barrier(group: str = WORLD) -> None:
    """Wait until all members have come here."""
    primitives.Barrier(group)()


def send(tensor: Tensor, dst: int = 0, group: str = WORLD, tag: int = 0) -> None:
    """Send a tensor to world rank `dst`, which must call `recv`.

    Args:
        tensor: any shape.
        dst: world rank.
        group: a group both belong to.
        tag: accepted for compatibility; messages between two ranks arrive in the order they are sent.
    """
    # One request: the same path as several at once.
    _exchange([P2POp("isend", tensor, dst, group, tag)])


def recv(tensor: Tensor, src: int = 0, group: str = WORLD, tag: int = 0) -> Tensor:
    """What world rank `src` sends; `tensor` says its shape and dtype. Arguments as `send`."""
    received = _exchange([P2POp("irecv", tensor, src, group, tag)])[0]
    assert received is not None
    return received


def isend(tensor: Tensor, dst: int = 0, group: str = WORLD, tag: int = 0) -> CommHandle:
    """As `send`, carried out when the handle is waited for; all requests of a rank are carried out together."""
    return CommHandle.of_request(P2POp("isend", tensor, dst, group, tag))


def irecv(tensor: Tensor, src: int = 0, group: str = WORLD, tag: int = 0) -> tuple[Tensor, CommHandle]:
    """As `recv`, carried out when the handle is waited for; the tensor has its values after that."""
    # A copy, so that the argument keeps its values until the handle is waited for.
    target = Tensor(check_tensor("irecv", tensor, "tensor"))
    return target, CommHandle.of_request(P2POp("irecv", target, src, group, tag))


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> tuple[Tensor, ...]:
    """Several sends and receives at once; for each a received tensor, or a 0 without meaning.

    Raises:
        SporaxTypeError: not a list of `P2POp`, or of several groups.
    """
    operations = check_operations("batch_isend_irecv", p2p_op_list)
    # A send has no result; a 0 keeps the places of the others.
    return tuple(Tensor(0.0) if tensor is None else tensor for tensor in _exchange(operations))


def all_to_all_with_output_shape(
    output_shape_list: Sequence[Any],
    input_tensor_list: Sequence[Tensor],
    group: str | None = None,
    async_op: bool = False,
) -> tuple[tuple[Tensor, ...], CommHandle | None]:
    """Send one tensor to each member and receive one from each; shapes of what comes are given.

    Raises:
        SporaxTypeError: not lists of tensors (and shapes), or tensors of different dtypes.
    """
    name = "all_to_all_with_output_shape"
    tensors = [check_tensor(name, tensor) for tensor in input_tensor_list]
    # The exchange has one dtype for all pieces.
    if len({tensor.dtype for tensor in tensors}) != 1:
        raise SporaxTypeError(f"For '{name}', the tensors must have one dtype, but got {[t.dtype for t in tensors]}.")
    members = groups.find(group, name)
    shapes = [tuple(like.shape) if isinstance(like, Tensor) else tuple(like) for like in output_shape_list]
    if len(tensors) != members.size or len(shapes) != members.size:
        raise For(name).error(
            f"there must be one tensor and one shape for each of the {members.size} members", len(tensors), len(shapes)
        )
    # Every member exchanges with every other, in the order of the group.
    positions = list(range(members.size))
    exchanged = messages.NeighborExchange(
        positions, positions, shapes, [tensor.shape for tensor in tensors], tensors[0].dtype, members.name
    )(tuple(tensors))
    return exchanged, _handle(name, exchanged[0], async_op)


def all_to_all_single_with_output_shape(
    output_shape: Any,
    tensor: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: str | None = None,
    async_op: bool = False,
) -> Handled:
    """Exchange pieces of dim 0; without sizes, pieces of one size.

    Raises:
        SporaxTypeError: wrong types.
        SporaxValueError: sizes that do not add up to the shapes.
    """
    name = "all_to_all_single_with_output_shape"
    check_tensor(name, tensor, "tensor")
    shape = tuple(output_shape.shape) if isinstance(output_shape, Tensor) else tuple(output_shape)
    result = messages.exchange_rows(name, tensor, shape, output_split_sizes, input_split_sizes, group)
    return result, _handle(name, result, async_op)


def all_to_all_v_c(
    output: Tensor, input: Tensor, send_count_matrix: Sequence[int], group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """Exchange pieces of dim 0 by a matrix that says for all ranks what goes where; fills `output`."""
    check_tensor("all_to_all_v_c", output, "output")
    result = messages.AlltoAllVC(group)(check_tensor("all_to_all_v_c", input), send_count_matrix)
    # In place, as in MindSpore.
    output.assign_value(result)
    return _handle("all_to_all_v_c", output, async_op)


def _reduction(function: str, op: Any) -> str:
    For(function).one_of("op", op, collectives.REDUCTIONS, kind=SporaxTypeError)
    return str(op)


def _handle(function: str, result: Tensor, async_op: bool) -> CommHandle | None:
    For(function).typed("async_op", async_op, "a bool", bool)
    # Without `async_op` the result is as good as there: JAX waits for it when it is looked at.
    return CommHandle.of_result(result) if async_op else None
