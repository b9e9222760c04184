"""Messages that are requested now and carried out later: `isend`, `irecv` and their handles.

Two ranks that both send before they receive would wait for each other if every message were carried out where it is
requested. So requests are collected, and when any of their handles is waited for, all that this rank has requested so far
are carried out in the order all ranks agree on (`point_to_point`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from sporax.base.errors import For
from sporax.mindspore.common import DType, Tensor, dtypes, wrap
from sporax.mindspore.ops._collectives import point_to_point
from sporax.mindspore.ops._collectives.point_to_point import Exchange, Message
from sporax.mindspore.ops._collectives.primitives import check_int, check_member
from sporax.runtime.ranks import groups

# Requests of this process in the order they were made; emptied by the first wait.
_pending: list[P2POp] = []


class P2POp:
    """One send or receive.

    Args:
        op: ``"isend"`` or ``"irecv"``, or the function of that name.
        tensor: what to send; for a receive a tensor (or shape) like what comes.
        peer: world rank of the other side.
        group: a group both belong to.
        tag: accepted for compatibility; messages between two ranks arrive in the order they are sent.
        recv_dtype: dtype of what comes, where `tensor` is a shape.

    Raises:
        SporaxTypeError: wrong types.
        SporaxValueError: `peer` is not a member of the group.
    """

    def __init__(
        self,
        op: Any,
        tensor: Any,
        peer: int,
        group: str | None = None,
        tag: int = 0,
        *,
        recv_dtype: DType | None = None,
    ) -> None:
        # MindSpore takes the functions `isend` and `irecv` themselves.
        name = op if isinstance(op, str) else getattr(op, "__name__", "")
        For("P2POp").refuse_type(name not in ("isend", "irecv"), "'op' must be 'isend' or 'irecv'", op, show=repr)
        members = groups.find(group, name)
        self.op = name
        self.peer = check_member(name, members, check_int(name, "peer", peer))
        self.group = members.name
        self.tag = check_int(name, "tag", tag)
        self.tensor = tensor
        if isinstance(tensor, Tensor):
            # Shapes and dtypes of receives come from the tensor to be filled.
            self.message = Message(peer, tensor.shape, tensor.dtype.np_dtype)
        elif name == "irecv" and isinstance(tensor, tuple | list) and recv_dtype is not None:
            self.message = Message(peer, tuple(tensor), dtypes.to_dtype(recv_dtype).np_dtype)
        else:
            raise For("P2POp").type_error(
                "'tensor' must be a Tensor (or for 'irecv' a shape, with 'recv_dtype')", type(tensor).__name__
            )
        if peer == groups.this_rank():
            raise For(name).error("the other side must be another rank", f"{peer}, which is this one")


class CommHandle:
    """Something to wait for.

    Example:
        >>> result, handle = comm_func.all_reduce(x, async_op=True)
        >>> handle.wait()
    """

    def __init__(self, result: Tensor | None = None, request: P2POp | None = None) -> None:
        self._result = result
        self._request = request

    @classmethod
    def of_result(cls, result: Tensor) -> CommHandle:
        """Wait for a tensor that is being computed."""
        return cls(result=result)

    @classmethod
    def of_request(cls, request: P2POp) -> CommHandle:
        """Wait for a message that is to be carried out."""
        _pending.append(request)
        return cls(request=request)

    def wait(self) -> None:
        """Return when it is done."""
        # Another handle may have carried it out.
        if self._request in _pending:
            _carry_out_pending()
        # In a compiled step there is nothing to wait for.
        if self._result is not None and not isinstance(self._result.array, jax.core.Tracer):
            self._result.array.block_until_ready()


def _carry_out_pending() -> None:
    # Emptied first: an error must not leave requests that would be sent twice.
    requests, _pending[:] = list(_pending), []
    for request, tensor in zip(requests, exchange(requests), strict=True):
        if tensor is not None:
            request.tensor.assign_value(tensor)


def exchange(operations: Sequence[P2POp]) -> list[Tensor | None]:
    # Sends first in the list; the order on the wire is that of all ranks together.
    """Carry out sends and receives; what was received, None for each send."""
    sends = [operation for operation in operations if operation.op == "isend"]
    messages = (
        tuple(send.message for send in sends),
        tuple(operation.message for operation in operations if operation.op == "irecv"),
    )
    arrived = iter(point_to_point.run(Exchange(*messages), [send.tensor.array for send in sends]))
    return [wrap(next(arrived)) if operation.op == "irecv" else None for operation in operations]


def check_operations(function: str, operations: object) -> list[P2POp]:
    """Check the argument of `batch_isend_irecv`.

    Raises:
        SporaxTypeError: empty, not a list of `P2POp`, or of several groups.
    """
    if (
        not isinstance(operations, list)
        or not operations
        or any(not isinstance(operation, P2POp) for operation in operations)
    ):
        raise For(function).type_error("'p2p_op_list' must be a non-empty list of P2POp", repr(operations))
    names = {operation.group for operation in operations}
    For(function).refuse_type(len(names) > 1, "all operations must be in one group", sorted(names))
    return operations
