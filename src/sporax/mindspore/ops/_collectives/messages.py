"""Communication operators whose tensors differ in size from rank to rank, or go from one rank to another.

All are made of messages between two ranks (`point_to_point`), except the two that gain from one collective
over tensors padded to the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore.common import Tensor, dtypes, wrap
from sporax.mindspore.ops import _collectives
from sporax.mindspore.ops._collectives.primitives import (
    WORLD,
    CommunicationPrimitive,
    check_ints,
    check_list,
    check_reduction,
    check_tensor,
    register,
)
from sporax.runtime import ranks as between_ranks

if TYPE_CHECKING:
    from sporax.mindspore.ops._collectives.point_to_point import Message


def sizes(name: str, what: str, value: Any) -> tuple[int, ...]:
    """Sizes given as ints, nested lists of ints, or a Tensor.

    Raises:
        SporaxTypeError: they are something else.
    """
    # The values are needed now: they are shapes of the program.
    numbers = np.ravel(value.asnumpy() if isinstance(value, Tensor) else value)
    For(name).refuse_type(numbers.size and numbers.dtype.kind not in "iu", f"'{what}' must be ints", value, show=repr)
    return tuple(numbers.astype(int).tolist())


# `point_to_point` is looked up at the first message: most programs exchange none.
def _message(rank: int, shape: Sequence[int], dtype: object) -> Message:
    """A tensor for, or from, this world rank."""
    return _collectives.point_to_point.Message(rank, tuple(shape), dtype)


def _exchanged(
    sends: Sequence[Message], receives: Sequence[Message], arrays: Sequence[jax.Array]
) -> tuple[jax.Array, ...]:
    """What arrives, in the order of `receives`, when `arrays` are sent."""
    exchange = _collectives.point_to_point.Exchange(tuple(sends), tuple(receives))
    return _collectives.point_to_point.run(exchange, arrays)


class AllGatherV(CommunicationPrimitive):
    """`AllGather` of 1-D tensors of different lengths."""

    def __call__(self, x: Tensor, output_split_sizes: object) -> Tensor:
        """Lengths of all members' tensors are given, in group order; returns them one after another."""
        array, lengths = check_tensor(self.name, x).array, sizes(self.name, "output_split_sizes", output_split_sizes)
        own = lengths[between_ranks.collectives.own_position(self.members, self.name)]
        if array.shape != (own,):
            raise For(self.name).error(
                f"the input must have the shape ({own},) that 'output_split_sizes' gives for this rank", array.shape
            )
        longest = max(lengths)
        # One collective over padded tensors is faster than many messages of different lengths.
        padded = jnp.pad(array, (0, longest - own))
        rows = between_ranks.collectives.run(between_ranks.collectives.AllGather(self.members), padded).reshape(
            -1, longest
        )
        return wrap(jnp.concatenate([row[:length] for row, length in zip(rows, lengths, strict=True)]))


class ReduceScatterV(CommunicationPrimitive):
    """`ReduceScatter` of a 1-D tensor into pieces of different lengths.

    Args:
        op, group: as `AllReduce`.
    """

    attribute_names = ("op", "group")

    def __call__(self, x: Tensor, input_split_sizes: object) -> Tensor:
        """Lengths of all members' pieces are given, in group order."""
        lengths = sizes(self.name, "input_split_sizes", input_split_sizes)
        array = check_tensor(self.name, x).array
        longest, op = max(lengths), check_reduction(self.name, self.op)
        starts = [sum(lengths[:index]) for index in range(len(lengths))]
        # Each piece is padded to the longest, since reduce-scatter has equal pieces.
        pieces = [
            jnp.pad(array[start : start + length], (0, longest - length))
            for start, length in zip(starts, lengths, strict=True)
        ]
        piece = between_ranks.collectives.run(
            between_ranks.collectives.ReduceScatter(self.members, op), jnp.concatenate(pieces)
        )
        return wrap(piece[: lengths[between_ranks.collectives.own_position(self.members, self.name)]])


class AlltoAllV(CommunicationPrimitive):
    """Exchange pieces of a 1-D tensor, of any lengths.

    Args:
        group: name of the group.
        block_size: unit of the lengths.
    """

    attribute_names = ("group", "block_size")
    defaults = {**CommunicationPrimitive.defaults, "block_size": 1}
    ints = ("block_size",)

    def __call__(self, x: Tensor, send_numel_list: object, recv_numel_list: object) -> Tensor:
        """Lengths of the pieces for (and from) each member are given, in group order; returns what came, in that order."""
        outgoing = [length * self.block_size for length in sizes(self.name, "send_numel_list", send_numel_list)]
        incoming = [length * self.block_size for length in sizes(self.name, "recv_numel_list", recv_numel_list)]
        return wrap(exchange_pieces(self, check_tensor(self.name, x).array, outgoing, incoming))


class AlltoAllVC(CommunicationPrimitive):
    """`AlltoAllV` by a matrix that says for all ranks what goes where.

    Args:
        group, block_size: as `AlltoAllV`.
        transpose: take the matrix the other way round.
    """

    attribute_names = ("group", "block_size", "transpose")
    defaults = {**CommunicationPrimitive.defaults, "block_size": 1, "transpose": False}
    ints = ("block_size",)

    def __call__(self, x: Tensor, send_count_matrix: object) -> Tensor:
        # All ranks have the same matrix, so each reads its own row and column.
        """Entry i·n + j of the matrix is the length of the piece that i sends to j."""
        count, me = self.members.size, between_ranks.collectives.own_position(self.members, self.name)
        matrix = [length * self.block_size for length in sizes(self.name, "send_count_matrix", send_count_matrix)]
        if len(matrix) != count * count:
            raise For(self.name).error(f"'send_count_matrix' must have {count}·{count} entries", len(matrix))
        rows = [matrix[index * count : (index + 1) * count] for index in range(count)]
        if self.transpose:
            rows = [list(column) for column in zip(*rows, strict=True)]
        incoming = [row[me] for row in rows]
        return wrap(exchange_pieces(self, check_tensor(self.name, x).array, rows[me], incoming))


def exchange_pieces(
    primitive: CommunicationPrimitive, array: jax.Array, outgoing: Sequence[int], incoming: Sequence[int]
) -> jax.Array:
    """Exchange pieces of dim 0 of `array` between all members; lengths are given for each member, 0 for nothing.

    Raises:
        SporaxValueError: the lengths do not add up to the array, or are not one per member.
    """
    name, ranks = primitive.name, primitive.members.ranks
    if len(outgoing) != len(ranks) or len(incoming) != len(ranks) or sum(outgoing) != array.shape[0]:
        raise SporaxValueError(
            f"For '{name}', there must be one length for each of the {len(ranks)} members, and those of the pieces to send "
            f"must add up to {array.shape[0]}, but got {list(outgoing)} and {list(incoming)}."
        )
    row, dtype = tuple(array.shape[1:]), array.dtype
    starts = [sum(outgoing[:index]) for index in range(len(outgoing))]
    # Empty pieces are no messages: both sides leave them out by the same lengths.
    pieces = [array[start : start + length] for start, length in zip(starts, outgoing, strict=True) if length]
    sends, receives = (
        [_message(rank, (length, *row), dtype) for rank, length in zip(ranks, lengths, strict=True) if length]
        for lengths in (outgoing, incoming)
    )
    arrived = _exchanged(sends, receives, pieces)
    return jnp.concatenate(arrived) if arrived else jnp.zeros((0, *row), dtype)


def exchange_rows(
    name: str,
    tensor: Tensor,
    output_shape: tuple[int, ...],
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: str | None,
) -> Tensor:
    """Exchange pieces of dim 0 between all members; without sizes, pieces of one size.

    Raises:
        SporaxValueError: sizes that do not add up to the shapes, or rows of another shape.
    """
    primitive = AlltoAllV(group)
    primitive.name = name
    array, count = tensor.array, primitive.members.size
    for shape, split in ((array.shape, input_split_sizes), (output_shape, output_split_sizes)):
        if not shape or tuple(shape[1:]) != tuple(array.shape[1:]) or (not split and shape[0] % count):
            raise SporaxValueError(
                f"For '{name}', both shapes must agree behind dim 0, which without sizes must be divisible by {count}, "
                f"but got {tuple(array.shape)} and {output_shape}."
            )
    outgoing = list(input_split_sizes or [array.shape[0] // count] * count)
    incoming = list(output_split_sizes or [output_shape[0] // count] * count)
    if sum(incoming) != output_shape[0]:
        raise For(name).error(f"'output_split_sizes' must add up to {output_shape[0]}, the size of dim 0", incoming)
    return wrap(exchange_pieces(primitive, array, outgoing, incoming))


class Send(CommunicationPrimitive):
    """Send a tensor to one rank, which must run the `Receive` that belongs to it.

    In a compiled step, say by `ops.Depend` (or by using what a Receive gave) what is to happen after it.

    Args:
        sr_tag: accepted for compatibility; messages between two ranks arrive in the order they are sent.
        dest_rank: group rank of the receiver.
        group, group_back: name of the group, and of the one for the gradient, which must be the same.
    """

    attribute_names = ("sr_tag", "dest_rank", "group", "group_back")
    defaults = {**CommunicationPrimitive.defaults, "group_back": WORLD}
    ints = ("sr_tag", "dest_rank")

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the tensor, so that something can depend on it."""
        array = check_tensor(self.name, x).array
        # Kept out of the message: MindSpore's tag only distinguishes messages of one pair.
        message = _message(self.world_rank(self.dest_rank), array.shape, array.dtype)
        return wrap(_collectives.point_to_point.send(message, array))


class Receive(CommunicationPrimitive):
    """Receive a tensor that one rank sends.

    Args:
        sr_tag: as `Send`.
        src_rank: group rank of the sender.
        shape, dtype: of the tensor.
        group, group_back: as `Send`.
    """

    attribute_names = ("sr_tag", "src_rank", "shape", "dtype", "group", "group_back")
    defaults = {**CommunicationPrimitive.defaults, "group_back": WORLD}
    ints = ("sr_tag", "src_rank")
    int_lists = ("shape",)
    dtype_names = ("dtype",)

    def __call__(self, x: Tensor | None = None) -> Tensor:
        """The input, if there is one, says after what to receive; the derivative is sent back when it has one."""
        message = _message(self.world_rank(self.src_rank), self.shape, dtypes.to_dtype(self.dtype).np_dtype)
        # With an input the receive has a place in the order of the step, and a gradient.
        if x is not None:
            return wrap(_collectives.point_to_point.receive(message, check_tensor(self.name, x).array))
        return wrap(_exchanged((), (message,), [])[0])


class NeighborExchange(CommunicationPrimitive):
    """Send a tensor to each of several ranks and receive one from each of several.

    Args:
        send_rank_ids, recv_rank_ids: group ranks.
        recv_shapes, send_shapes: shapes, in the same order.
        recv_type: dtype of what is received.
        group: name of the group.
    """

    attribute_names = ("send_rank_ids", "recv_rank_ids", "recv_shapes", "send_shapes", "recv_type", "group")
    int_lists = ("send_rank_ids", "recv_rank_ids")
    shape_lists = ("recv_shapes", "send_shapes")
    dtype_names = ("recv_type",)

    def __init__(self, *args: object, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for way in ("send", "recv"):
            ranks, shapes = getattr(self, f"{way}_rank_ids"), getattr(self, f"{way}_shapes")
            if len(ranks) != len(shapes):
                raise For(self.name).error(
                    f"'{way}_shapes' must have one shape for each of the ranks {list(ranks)}", list(shapes)
                )

    def __call__(self, tensor: tuple[Tensor, ...] = ()) -> tuple[Tensor, ...]:
        """A tuple of tensors in, a tuple of tensors out; a rank that sends nothing may leave it out."""
        # Checked against the declared shapes, as the other rank relies on them.
        arrays = [check_tensor(self.name, element).array for element in check_list(self.name, "tensor", tensor)]
        shapes = [tuple(shape) for shape in self.send_shapes]
        if [tuple(array.shape) for array in arrays] != shapes or len(shapes) != len(self.send_rank_ids):
            raise SporaxValueError(
                f"For '{self.name}', the inputs must have the shapes {shapes}, one for each of the ranks "
                f"{list(self.send_rank_ids)}, but got {[tuple(array.shape) for array in arrays]}."
            )
        dtype = dtypes.to_dtype(self.recv_type).np_dtype
        sends = [
            _message(self.world_rank(rank), array.shape, array.dtype)
            for rank, array in zip(self.send_rank_ids, arrays, strict=True)
        ]
        receives = [
            _message(self.world_rank(rank), shape, dtype)
            for rank, shape in zip(self.recv_rank_ids, self.recv_shapes, strict=True)
        ]
        return tuple(map(wrap, _exchanged(sends, receives, arrays)))


class BatchISendIRecv(CommunicationPrimitive):
    """Several sends and receives at once.

    Args:
        op_types: ``"isend"`` or ``"irecv"`` for each.
        remote_ranks: group rank of the other side of each.
        receive_shapes, receive_dtypes: one for each ``"irecv"``.
        group: name of the group.
    """

    attribute_names = ("op_types", "remote_ranks", "receive_shapes", "receive_dtypes", "group")
    int_lists = ("remote_ranks",)
    shape_lists = ("receive_shapes",)
    defaults = {**CommunicationPrimitive.defaults, "receive_shapes": (), "receive_dtypes": ()}

    def __init__(self, *args: object, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("op_types", "remote_ranks", "receive_shapes", "receive_dtypes"):
            if not isinstance(getattr(self, name), tuple | list):
                raise SporaxTypeError(f"For '{self.name}', '{name}' must be a tuple or list.")
        # Every mistake is found at construction: at the call it would stop this rank only, and others would wait.
        num_receives = list(self.op_types).count("irecv")
        if len(self.op_types) != len(self.remote_ranks) or not (
            len(self.receive_shapes) == len(self.receive_dtypes) == num_receives
        ):
            raise For(self.name).error(
                f"there must be one rank for each of {list(self.op_types)} and one shape and dtype for each 'irecv', "
                f"but got {list(self.remote_ranks)}, {list(self.receive_shapes)} and {list(self.receive_dtypes)}"
            )
        if None in self.receive_dtypes:  # to numpy None is float64
            raise For(self.name).type_error("'receive_dtypes' must hold dtypes", self.receive_dtypes)
        if any(kind not in ("isend", "irecv") for kind in self.op_types):
            raise For(self.name).error("'op_types' must hold 'isend' or 'irecv'", self.op_types)

    def __call__(self, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The tensors to send in; for each operation what was received, or a 0 without meaning."""
        elements = [element for element in check_list(self.name, "x", x) if element is not None]
        arrays = [check_tensor(self.name, element).array for element in elements]
        if len(arrays) != list(self.op_types).count("isend"):
            raise For(self.name).error(
                f"there must be one tensor for each 'isend' of {list(self.op_types)}, but got {len(arrays)}"
            )
        ranks = [self.world_rank(rank) for rank in self.remote_ranks]
        outgoing = [rank for kind, rank in zip(self.op_types, ranks, strict=True) if kind == "isend"]
        incoming = [rank for kind, rank in zip(self.op_types, ranks, strict=True) if kind == "irecv"]
        sends = [_message(rank, array.shape, array.dtype) for rank, array in zip(outgoing, arrays, strict=True)]
        receives = [
            _message(rank, shape, dtypes.to_dtype(dtype).np_dtype)
            for rank, shape, dtype in zip(incoming, self.receive_shapes, self.receive_dtypes, strict=True)
        ]
        arrived = iter(_exchanged(sends, receives, arrays))
        # Positions of sends must be filled, since results are given by operation.
        return tuple(wrap(next(arrived) if kind == "irecv" else jnp.zeros((), jnp.float32)) for kind in self.op_types)


class NeighborExchangeV2(CommunicationPrimitive):
    """Exchange the borders of an image that is sharded into tiles, one tile per rank.

    Directions are counted clockwise: top, top right, right, bottom right, bottom, bottom left, left, top left.

    Args:
        send_rank_ids, recv_rank_ids: group rank in each of the 8 directions, -1 for none.
        send_lens, recv_lens: number of rows or columns at the top, bottom, left and right.
        data_format: ``"NCHW"``.
        group: name of the group.
    """

    attribute_names = ("send_rank_ids", "send_lens", "recv_rank_ids", "recv_lens", "data_format", "group")

    def __init__(self, *args: object, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, count in (("send_rank_ids", 8), ("recv_rank_ids", 8), ("send_lens", 4), ("recv_lens", 4)):
            value, least = getattr(self, name), -1 if name.endswith("ids") else 0
            For(self.name).typed(name, value, "a list", list)
            check_ints(self.name, name, value)
            ranks = [rank for rank in value if rank != -1]
            if len(value) != count or min(value) < least or (least == -1 and len(set(ranks)) < len(ranks)):
                raise SporaxValueError(
                    f"For '{self.name}', '{name}' must hold {count} numbers from {least} on, ranks only once, but got {value}."
                )
        For(self.name).refuse(self.data_format != "NCHW", "'data_format' must be 'NCHW'", self.data_format, show=repr)

    def __call__(self, tensor: Tensor) -> Tensor:
        """(N, C, H, W) in, (N, C, top + H + bottom, left + W + right) out; borders no one sends are 0."""
        array = check_tensor(self.name, tensor).array
        For(self.name).refuse(array.ndim != 4, f"the input must have 4 dimensions, but its shape is {array.shape}")
        batch, height, width = tuple(array.shape[:2]), array.shape[2], array.shape[3]
        # Borders of the own tile go out; the frame around it is filled from others.
        outgoing = _tiles(self.send_lens, height, width, inside=True)
        incoming = _tiles(self.recv_lens, height, width, inside=False)
        pieces, sends, receives, positions = [], [], [], []
        for rank, (rows, columns) in zip(self.send_rank_ids, outgoing, strict=True):
            if rank != -1:
                pieces.append(array[:, :, rows, columns])
                sends.append(_message(self.world_rank(rank), pieces[-1].shape, array.dtype))
        for rank, (rows, columns) in zip(self.recv_rank_ids, incoming, strict=True):
            if rank != -1:
                shape = (*batch, rows.stop - rows.start, columns.stop - columns.start)
                receives.append(_message(self.world_rank(rank), shape, array.dtype))
                positions.append((rows, columns))
        # One exchange for all directions, so that no two ranks wait for each other.
        arrived = _exchanged(sends, receives, pieces)
        top, bottom, left, right = self.recv_lens
        # Zeros first: directions without a sender stay 0.
        padded = jnp.pad(array, ((0, 0), (0, 0), (top, bottom), (left, right)))
        for (rows, columns), piece in zip(positions, arrived, strict=True):
            padded = padded.at[:, :, rows, columns].set(piece)
        return wrap(padded)


def _tiles(lens: Sequence[int], height: int, width: int, inside: bool) -> list[tuple[slice, slice]]:
    """Rows and columns of the borders in the 8 directions: of the tile itself, or of the frame put around it."""
    top, bottom, left, right = lens
    down, across = (0, 0) if inside else (top, left)  # where the tile begins
    if inside:
        first, last = slice(0, top), slice(height - bottom, height)
        west, east = slice(0, left), slice(width - right, width)
    else:
        first, last = slice(0, top), slice(top + height, top + height + bottom)
        west, east = slice(0, left), slice(left + width, left + width + right)
    rows, columns = slice(down, down + height), slice(across, across + width)
    # In MindSpore's order: clockwise from the top.
    return [
        (first, columns),
        (first, east),
        (rows, east),
        (last, east),
        (last, columns),
        (last, west),
        (rows, west),
        (first, west),
    ]


register(AllGatherV, ReduceScatterV, AlltoAllV, AlltoAllVC)
register(Send, Receive, NeighborExchange, NeighborExchangeV2, BatchISendIRecv)
