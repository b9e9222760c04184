"""Communication in the manner of `torch.distributed`: `mindspore.ops.communication`.

Functions fill the tensors they are given, and return a handle with ``async_op=True``, else None. ``group=None`` is the
group of all ranks; `new_group` gives groups names by itself. Differences from `communication.comm_func`: results are not
returned but put in place, and there is the reduction ``"avg"``.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, named
from sporax.mindspore import context
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.ops._collectives import messages, own_ranks, primitives
from sporax.mindspore.ops._collectives.primitives import check_int, check_member, check_tensor
from sporax.mindspore.ops._collectives.requests import CommHandle, P2POp, check_operations, exchange
from sporax.runtime import world as distributed
from sporax.runtime.ranks import collectives, groups


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: object = None,
    world_size: int = -1,
    rank: int = -1,
    store: object = None,
    group_name: str = "",
    pg_options: object = None,
    device_id: int | None = None,
) -> None:
    """Join the job, as `communication.init`. Ranks are distinguished by the launcher's variables.

    Raises:
        SporaxValueError: an argument that would say otherwise, or settings of another transport.
    """
    for name, value in (("init_method", init_method), ("store", store), ("pg_options", pg_options)):
        if value is not None:
            raise For("init_process_group").error(
                f"{named(name)} must be None: the launcher (sporax run) says how ranks meet", repr(value)
            )
    # Only the launcher knows the world, so it is read and the arguments are compared.
    world = collectives.meet()
    for name, value, actual in (("world_size", world_size, world.size), ("rank", rank, world.rank)):
        For("init_process_group").refuse(value not in (-1, actual), f"'{name}' must be {actual} in this job", value)
    context.set_world(world.size, world.rank)


def destroy_process_group(group: str | None = None) -> None:
    """Forget a group; None, or the group of all ranks: leave the job."""
    # The group of all stands for the job itself.
    if group is not None and group not in groups.WORLD_GROUPS:
        groups.destroy(group)
        return
    distributed.stop()
    groups.forget_all()
    context.set_world(1, 0)


def is_available() -> bool:
    """Whether ranks can communicate: always."""
    return True


def is_initialized() -> bool:
    """Whether the job has been joined."""
    return distributed.world() is not None


def get_rank(group: str | None = None) -> int:
    """Rank of this process in a group; -1 if it is not a member."""
    members = groups.find(group, "get_rank")
    # -1, as in torch.distributed, where MindSpore's other interface raises.
    return own_ranks.rank_in(members) if groups.this_rank() in members.ranks else -1


def get_world_size(group: str | None = None) -> int:
    """Number of members; -1 if this process is not one of them."""
    members = groups.find(group, "get_world_size")
    return own_ranks.size_of(members) if groups.this_rank() in members.ranks else -1


def new_group(
    ranks: list[int] | None = None,
    timeout: object = None,
    backend: str | None = None,
    pg_options: object = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
) -> str:
    """A group of ranks, in ascending order; returns its name, which says the backend, the number of ranks and their hash.

    Raises:
        SporaxTypeError: `ranks` is not a list of ints, or `backend` not ``"hccl"`` (the default) or ``"mccl"``.
    """
    if pg_options is not None:
        raise For("new_group").error("'pg_options' must be None: HCCL is not used here", repr(pg_options))
    if ranks is None:
        return groups.WORLD_GROUPS[0]
    members = sorted(For("new_group").typed("ranks", ranks, "a list", list))
    For("new_group").one_of("backend", backend or "hccl", ("hccl", "mccl"), kind=SporaxTypeError)
    digest = hashlib.sha1("_".join(map(str, members)).encode()).hexdigest()
    return groups.create(f"{backend or 'hccl'}_{len(members)}_{digest}", members).name


def get_backend(group: str | None = None) -> str:
    """MindSpore's name for the transport of a group: ``"nccl"`` on GPUs, ``"mccl"`` on CPUs."""
    groups.find(group, "get_backend")
    return "nccl" if context.get_context("device_target") == "GPU" else "mccl"


def get_global_rank(group: str | None, group_rank: int) -> int:
    """World rank of a member."""
    members = groups.find(group, "get_global_rank")
    if not 0 <= check_int("get_global_rank", "group_rank", group_rank) < members.size:
        raise For("get_global_rank").state_error(f"'group_rank' must be in [0, {members.size})", group_rank)
    return members.ranks[group_rank]


def get_group_rank(group: str | None, global_rank: int) -> int:
    """Group rank of a rank.

    Raises:
        SporaxRuntimeError: it is not a member.
    """
    members = groups.find(group, "get_group_rank")
    if check_int("get_group_rank", "global_rank", global_rank) not in members.ranks:
        raise For("get_group_rank").state_error(f"'global_rank' must be one of {list(members.ranks)}", global_rank)
    return members.ranks.index(global_rank)


def get_process_group_ranks(group: str | None = None) -> list[int]:
    """World ranks of the members."""
    return list(groups.find(group, "get_process_group_ranks").ranks)


def all_reduce(tensor: Tensor, op: str = "sum", group: str | None = None, async_op: bool = False) -> CommHandle | None:
    """Combine the members' tensors element by element, in place."""
    return _fill(tensor, _reduced("all_reduce", check_tensor("all_reduce", tensor), op, group), async_op)


def reduce(
    tensor: Tensor, dst: int, op: str = "sum", group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """Combine the members' tensors element by element, in place at world rank `dst`; others keep theirs."""
    members = groups.find(group, "reduce")
    check_member("reduce", members, check_int("reduce", "dst", dst))
    # All ranks run the same collective; only the receiver looks at the result.
    result = _reduced("reduce", check_tensor("reduce", tensor), op, group)
    return _fill(tensor, result if groups.this_rank() == dst else tensor, async_op)


def broadcast(tensor: Tensor, src: int, group: str | None = None, async_op: bool = False) -> CommHandle | None:
    """Give the tensor of world rank `src` to all, in place."""
    return _fill(tensor, primitives.Broadcast(src, group)((check_tensor("broadcast", tensor),))[0], async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """The members' tensors one after another along dim 0."""
    result = primitives.AllGather(group)(check_tensor("all_gather_into_tensor", input_tensor, "input_tensor"))
    return _fill(output_tensor, result, async_op)


def all_gather_into_tensor_uneven(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    group: str | None = None,
    async_op: bool = False,
) -> CommHandle | None:
    """The members' tensors, of different sizes, one after another along dim 0."""
    if output_split_sizes is None:
        return all_gather_into_tensor(output, input, group, async_op)
    row = tuple(check_tensor("all_gather_into_tensor_uneven", input).shape[1:])
    # Lengths count elements, since the collective works on flat tensors.
    width = int(np.prod(row, dtype=np.int64))
    flat = messages.AllGatherV(group)(wrap(input.array.ravel()), [size * width for size in output_split_sizes])
    return _fill(output, wrap(flat.array.reshape(-1, *row)), async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """The members' tensors, each into its place of a list."""
    members = groups.find(group, "all_gather")
    _check_list("all_gather", tensor_list, members.size, tensor)
    # A new dim in front, so that results can be distinguished.
    stacked = primitives.AllGather(group)(wrap(tensor.array[None]))
    return _fill_all(tensor_list, list(stacked.array), async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str = "sum", group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """This rank's piece of dim 0 of the members' tensors combined."""
    check_tensor("reduce_scatter_tensor", input)
    result = primitives.ReduceScatter(_kernel_op("reduce_scatter_tensor", op), group)(input)
    # Divided after the scatter: fewer elements than before.
    return _fill(output, _averaged(result, op, group), async_op)


def reduce_scatter_tensor_uneven(
    output: Tensor,
    input: Tensor,
    input_split_sizes: Sequence[int] | None = None,
    op: str = "sum",
    group: str | None = None,
    async_op: bool = False,
) -> CommHandle | None:
    """This rank's piece, of a size of its own, of dim 0 of the members' tensors combined."""
    if input_split_sizes is None:
        return reduce_scatter_tensor(output, input, op, group, async_op)
    name = "reduce_scatter_tensor_uneven"
    row = tuple(check_tensor(name, input).shape[1:])
    width = int(np.prod(row, dtype=np.int64))
    flat = messages.ReduceScatterV(_kernel_op(name, op), group)(
        wrap(input.array.ravel()), [size * width for size in input_split_sizes]
    )
    return _fill(output, _averaged(wrap(flat.array.reshape(-1, *row)), op, group), async_op)


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: str = "sum", group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """This rank's entry of the members' lists, combined."""
    _check_list("reduce_scatter", input_list, groups.find(group, "reduce_scatter").size, output)
    stacked = wrap(jnp.stack([tensor.array for tensor in input_list]))
    piece = primitives.ReduceScatter(_kernel_op("reduce_scatter", op), group)(stacked)
    return _fill(output, _averaged(wrap(piece.array[0]), op, group), async_op)


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None, dst: int = 0, group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """The members' tensors, each into its place of the list at world rank `dst`."""
    members = groups.find(group, "gather")
    here = groups.this_rank() == dst
    if here:
        _check_list("gather", gather_list, members.size, tensor)
    result = primitives.CollectiveGather(dst, group)(wrap(check_tensor("gather", tensor).array[None]))
    return _fill_all(gather_list or [], list(result.array), async_op) if here else _done(result, async_op)


def gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, dst: int = 0, group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """The members' tensors one after another along dim 0, at world rank `dst`."""
    result = primitives.CollectiveGather(dst, group)(check_tensor("gather_into_tensor", input_tensor, "input_tensor"))
    return _fill(output_tensor, result, async_op) if groups.this_rank() == dst else _done(result, async_op)


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None, src: int = 0, group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """This rank's entry of the list of world rank `src`."""
    members = groups.find(group, "scatter")
    check_tensor("scatter", tensor)
    if groups.this_rank() == src:
        _check_list("scatter", scatter_list, members.size, tensor)
        stacked = jnp.stack([part.array for part in scatter_list or []])
    else:
        # The others bring zeros of the same shape, since all run one program.
        stacked = jnp.zeros((members.size, *tensor.shape), tensor.dtype.np_dtype)
    return _fill(tensor, wrap(primitives.CollectiveScatter(src, group)(wrap(stacked)).array[0]), async_op)


def scatter_tensor(
    output_tensor: Tensor, input_tensor: Tensor, src: int = 0, group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """This rank's piece of dim 0 of the tensor of world rank `src`."""
    result = primitives.CollectiveScatter(src, group)(check_tensor("scatter_tensor", input_tensor, "input_tensor"))
    return _fill(output_tensor, result, async_op)


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """Send one tensor to each member, receive one from each."""
    members = groups.find(group, "all_to_all")
    for tensors in (output_tensor_list, input_tensor_list):
        _check_list("all_to_all", tensors, members.size, None)
    positions = list(range(members.size))
    exchanged = messages.NeighborExchange(
        positions,
        positions,
        [tensor.shape for tensor in output_tensor_list],
        [tensor.shape for tensor in input_tensor_list],
        output_tensor_list[0].dtype,
        group,
    )(tuple(input_tensor_list))
    return _fill_all(output_tensor_list, [tensor.array for tensor in exchanged], async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: str | None = None,
    async_op: bool = False,
) -> CommHandle | None:
    """Exchange pieces of dim 0; without sizes, pieces of one size."""
    shape = check_tensor("all_to_all_single", output, "output").shape
    check_tensor("all_to_all_single", input)
    result = messages.exchange_rows("all_to_all_single", input, shape, output_split_sizes, input_split_sizes, group)
    return _fill(output, result, async_op)


def all_to_all_v_c(
    output: Tensor, input: Tensor, send_count_matrix: Sequence[int], group: str | None = None, async_op: bool = False
) -> CommHandle | None:
    """Exchange pieces of dim 0 by a matrix that says for all ranks what goes where."""
    return _fill(output, messages.AlltoAllVC(group)(check_tensor("all_to_all_v_c", input), send_count_matrix), async_op)


def barrier(group: str | None = None, async_op: bool = False, device_ids: object = None) -> CommHandle | None:
    """Wait until all members have come here; with ``async_op=True`` the handle waits."""
    # Not waited for with `async_op`: the handle does.
    return _done(wrap(collectives.run(collectives.Barrier(groups.find(group, "barrier")))), async_op, wait=True)


def send(tensor: Tensor, dst: int = 0, group: str | None = None, tag: int = 0) -> None:
    """Send a tensor to world rank `dst`, which must call `recv`."""
    exchange([P2POp("isend", tensor, dst, group, tag)])


def recv(tensor: Tensor, src: int = 0, group: str | None = None, tag: int = 0) -> int:
    """Fill a tensor with what world rank `src` sends; returns 0."""
    received = exchange([P2POp("irecv", tensor, src, group, tag)])[0]
    assert received is not None
    tensor.assign_value(received)
    return 0


def isend(tensor: Tensor, dst: int = 0, group: str | None = None, tag: int = 0) -> CommHandle:
    """As `send`, carried out when the handle is waited for, together with all requests of this rank."""
    return CommHandle.of_request(P2POp("isend", tensor, dst, group, tag))


def irecv(tensor: Tensor, src: int = 0, group: str | None = None, tag: int = 0) -> CommHandle:
    """As `recv`, carried out when the handle is waited for."""
    return CommHandle.of_request(P2POp("irecv", tensor, src, group, tag))


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[CommHandle]:
    """Several sends and receives at once; one handle for all of them."""
    handles = [CommHandle.of_request(operation) for operation in check_operations("batch_isend_irecv", p2p_op_list)]
    # MindSpore returns one handle for all; waiting for it carries out all requests.
    return handles[:1]


def all_gather_object(object_list: list[Any], obj: object, group: str | None = None) -> None:
    """Every member's object into its place of the list. Objects are pickled: only take part with ranks you trust."""
    members = groups.find(group, "all_gather_object")
    For("all_gather_object").refuse_type(
        len(object_list) != members.size, f"'object_list' must have {members.size} places, but has {len(object_list)}"
    )
    data = np.frombuffer(pickle.dumps(obj), np.uint8)
    lengths = primitives.AllGather(group)(Tensor(np.array([data.size], np.int32))).asnumpy().tolist()
    flat = messages.AllGatherV(group)(Tensor(data), lengths).asnumpy()
    for index, length in enumerate(lengths):
        # Pickle runs code of the sender: all ranks belong to one job.
        object_list[index] = pickle.loads(flat[:length].tobytes())
        flat = flat[length:]


def gather_object(
    obj: object, object_gather_list: list[Any] | None = None, dst: int = 0, group: str | None = None
) -> None:
    """Every member's object into its place of the list at world rank `dst`."""
    members = groups.find(group, "gather_object")
    is_receiver = groups.this_rank() == check_member("gather_object", members, dst)
    # Before anything is sent, as in MindSpore: what failed here would meet the next exchange of the others.
    if is_receiver and (not isinstance(object_gather_list, list) or len(object_gather_list) != members.size):
        raise For("gather_object").type_error(f"'object_gather_list' must have {members.size} places at rank {dst}")
    objects = [None] * members.size
    all_gather_object(objects, obj, group)
    if is_receiver and object_gather_list is not None:
        object_gather_list[:] = objects


def broadcast_object_list(
    object_list: list[Any], src: int = 0, group: str | None = None, device: object = None
) -> None:
    """The objects of world rank `src`, everywhere."""
    members = groups.find(group, "broadcast_object_list")
    _check_filled("broadcast_object_list", "object_list", object_list)
    objects: list[Any] = [None] * members.size
    root = members.ranks.index(check_member("broadcast_object_list", members, src))
    # By gathering, since other ranks do not know the length of the pickled objects.
    all_gather_object(objects, object_list if groups.this_rank() == src else None, group)
    object_list[:] = objects[root]


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None,
    src: int = 0,
    group: str | None = None,
) -> None:
    """This rank's entry of the list of world rank `src`, into the first place of the output list."""
    members = groups.find(group, "scatter_object_list")
    _check_filled("scatter_object_list", "scatter_object_output_list", scatter_object_output_list)
    objects: list[Any] = [None] * members.size
    if groups.this_rank() == check_member("scatter_object_list", members, src):
        objects = _check_filled("scatter_object_list", "scatter_object_input_list", scatter_object_input_list)
        For("scatter_object_list").refuse_type(
            len(objects) != members.size, f"the input list must have {members.size} entries, but has {len(objects)}"
        )
    broadcast_object_list(objects, src, group)
    scatter_object_output_list[0] = objects[collectives.own_position(members, "scatter_object_list")]


def _check_filled(function: str, name: str, value: Any) -> list[Any]:
    """`value`, a list with at least one entry, else SporaxTypeError."""
    For(function).refuse_type(
        not isinstance(value, list) or not value, f"{named(name)} must be a list of objects", value
    )
    return list(value)


def send_object_list(object_list: list[Any], dst: int, group: str | None = None, device: object = None) -> None:
    """Send Python objects to world rank `dst`."""
    data = np.frombuffer(pickle.dumps(list(object_list)), np.uint8)
    # The length as a message of its own, so that the receiver can make room.
    send(Tensor(np.array([data.size], np.int32)), dst, group)
    send(Tensor(data), dst, group)


def recv_object_list(object_list: list[Any], src: int = 0, group: str | None = None, device: object = None) -> int:
    """Fill a list with Python objects that world rank `src` sends; returns the sender."""
    length = Tensor(np.zeros(1, np.int32))
    recv(length, src, group)
    data = Tensor(np.zeros(int(length.asnumpy()[0]), np.uint8))
    recv(data, src, group)
    object_list[:] = pickle.loads(data.asnumpy().tobytes())
    return src


def _kernel_op(function: str, op: object) -> str:
    """The reduction that is carried out: an average is a sum that is divided afterwards."""
    if op == "avg":
        return "sum"
    if op not in collectives.REDUCTIONS:
        raise For(function).type_error(f"'op' must be one of {(*collectives.REDUCTIONS, 'avg')}", repr(op))
    return str(op)


def _reduced(function: str, tensor: Tensor, op: str, group: str | None) -> Tensor:
    return _averaged(primitives.AllReduce(_kernel_op(function, op), group)(tensor), op, group)


def _averaged(tensor: Tensor, op: str, group: str | None) -> Tensor:
    if op != "avg":
        return tensor
    # Back to the dtype: an average of integers is truncated, as in MindSpore.
    return wrap((tensor.array / groups.find(group).size).astype(tensor.array.dtype))


def _fill(target: Tensor, result: Tensor, async_op: bool) -> CommHandle | None:
    # Shapes are checked before the tensor is replaced.
    if check_tensor("communication", target, "output").shape != result.shape:
        raise SporaxValueError(
            f"For 'communication', the output must have the shape of the result, {result.shape}, but has {target.shape}."
        )
    target.assign_value(result)
    return _done(target, async_op)


def _fill_all(targets: list[Tensor], arrays: list[Any], async_op: bool) -> CommHandle | None:
    for target, array in zip(targets, arrays, strict=True):
        target.assign_value(wrap(array))
    # One handle for all: they come from one program.
    return _done(targets[-1], async_op)


def _done(result: Tensor, async_op: bool, wait: bool = False) -> CommHandle | None:
    For("communication").typed("async_op", async_op, "a bool", bool)
    handle = CommHandle.of_result(result)
    if wait and not async_op:
        handle.wait()
    return handle if async_op else None


def _check_list(function: str, tensors: object, count: int, like: Tensor | None) -> None:
    if not isinstance(tensors, list | tuple) or any(not isinstance(tensor, Tensor) for tensor in tensors):
        raise SporaxTypeError(f"For '{function}', the list must hold Tensors, but got {type(tensors).__name__}.")
    For(function).refuse_type(len(tensors) != count, f"the list must have {count} Tensors, but has {len(tensors)}")
    if like is not None and any((t.shape, t.dtype) != (like.shape, like.dtype) for t in tensors):
        raise SporaxTypeError(
            f"For '{function}', the Tensors of the list must have shape {like.shape} and dtype {like.dtype}, but got "
            f"{[(t.shape, str(t.dtype)) for t in tensors]}."
        )
