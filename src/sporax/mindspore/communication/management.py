"""Joining a job, and queries of ranks and groups: `mindspore.communication.management`."""

from __future__ import annotations

import os
import warnings
from typing import Any

import jax

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ir import variables
from sporax.mindspore import context
from sporax.mindspore.ops._collectives import own_ranks
from sporax.runtime import world as distributed
from sporax.runtime.ranks import collectives, groups

HCCL_WORLD_COMM_GROUP, NCCL_WORLD_COMM_GROUP, MCCL_WORLD_COMM_GROUP = groups.WORLD_GROUPS
_BACKENDS = {"hccl": HCCL_WORLD_COMM_GROUP, "nccl": NCCL_WORLD_COMM_GROUP, "mccl": MCCL_WORLD_COMM_GROUP}


class GlobalComm:
    """What communication looks like in this process.

    Attributes:
        BACKEND: name MindSpore has for the backend: ``"nccl"`` on GPUs, ``"mccl"`` on CPUs, ``"hccl"`` before `init`.
        WORLD_COMM_GROUP: name of the group of all ranks; the names of the other backends work as well.
        INITED: whether `init` has been called.
    """

    BACKEND = "hccl"
    WORLD_COMM_GROUP = HCCL_WORLD_COMM_GROUP
    INITED = False


def _is_initialized() -> bool:
    """Whether `init` has been called, and `release` not since."""
    return GlobalComm.INITED


def init(backend_name: str | None = None) -> None:
    """Join the job; waits until all ranks are there. Without a launcher, this process is the only rank.

    Same as MindSpore. May be called after tensors were made: they keep their values.

    Args:
        backend_name: ``"hccl"``, ``"nccl"`` or ``"mccl"``; None picks by the kind of device. The transport is JAX's own
            whatever the name: NCCL between GPUs, gloo between CPUs.

    Raises:
        SporaxTypeError: `backend_name` is not a string.
        SporaxRuntimeError: another name, or ranks that do not come in time.
    """
    For("init").typed("backend_name", backend_name, "a string", str | None)
    if backend_name is not None and backend_name not in _BACKENDS:
        raise For("init").state_error(f"'backend_name' must be one of {list(_BACKENDS)}", f"'{backend_name}'")
    # With parameter servers, the job's scheduler says who is who.
    if context.ps_snapshot().enable_ps:
        _join_parameter_servers()
        return
    for name in variables.without_effect(os.environ, with_servers=False):
        warnings.warn(
            f"For 'init', the environment variable {name} has no effect: "
            + (
                "there are no parameter servers without enable_ps=True."
                if name in variables.VARIABLES
                else "Sporax knows no such name."
            ),
            stacklevel=2,
        )
    # All ranks have to come here: joining is a collective operation.
    world = collectives.meet()
    context.set_world(world.size, world.rank)
    # After joining, since reading the backend starts JAX.
    GlobalComm.BACKEND = backend_name or ("nccl" if jax.default_backend() == "gpu" else "mccl")
    GlobalComm.WORLD_COMM_GROUP = _BACKENDS[GlobalComm.BACKEND]
    GlobalComm.INITED = True


def _join_parameter_servers() -> None:
    """Take this process's role next to parameter servers; workers go on, with a rank.

    Workers exchange data with each other in parallel modes that need it. In STAND_ALONE they do not know each other, so
    one of them can die and come back.
    """
    from sporax.runtime.ranks import server_start  # needs the extra `ps`

    # Without a parallel mode workers know only the servers.
    with_ranks = context.snapshot().parallel_mode != "stand_alone"
    rank, size = server_start.start(context.ps_snapshot(), with_ranks=with_ranks)
    if with_ranks and size > 1:
        # One worker alone has no other to meet.
        collectives.meet()
        context.set_world(size, rank)
    GlobalComm.BACKEND = "nccl" if jax.default_backend() == "gpu" else "mccl"
    GlobalComm.WORLD_COMM_GROUP = _BACKENDS[GlobalComm.BACKEND]
    GlobalComm.INITED = True


def release() -> None:
    """Leave the job and forget all groups; all ranks must do so together. What is sharded over processes is lost.

    Raises:
        SporaxRuntimeError: before `init`.
    """
    _require_init("release")
    distributed.stop()
    groups.forget_all()
    context.set_world(1, 0)
    # As before `init`.
    GlobalComm.BACKEND, GlobalComm.WORLD_COMM_GROUP, GlobalComm.INITED = "hccl", HCCL_WORLD_COMM_GROUP, False


def get_rank(group: str = HCCL_WORLD_COMM_GROUP) -> int:
    """Rank of this process in a group. Before `init`: what the environment says (RANK_ID), else 0.

    Raises:
        SporaxTypeError: `group` is not a string.
        SporaxRuntimeError: no such group, or this rank is not a member.
    """
    return own_ranks.rank_in(_find("get_rank", group))


def get_group_size(group: str = HCCL_WORLD_COMM_GROUP) -> int:
    """Number of ranks in a group. Before `init`: what the environment says (RANK_SIZE), else 1.

    A job has a rank for each device: a process with several counts for as many, and its own number is that of its first one,
    whether the parallel mode is set before or after. In STAND_ALONE steps run on one device all the same, which a line says.

    Raises:
        SporaxTypeError, SporaxRuntimeError: as `get_rank`.
    """
    return own_ranks.size_of(_find("get_group_size", group))


def get_local_rank(group: str = HCCL_WORLD_COMM_GROUP) -> int:
    """Rank of this process among those of its machine.

    Raises:
        SporaxTypeError, SporaxRuntimeError: as `get_rank`; a group other than that of all ranks is not offered.
    """
    _only_world("get_local_rank", group)
    world = distributed.world()
    # Before joining, the launcher's variables say it.
    return own_ranks.from_environ("LOCAL_RANK", 0) if world is None else world.local_rank * context.ranks_of_process()


def get_local_rank_size(group: str = HCCL_WORLD_COMM_GROUP) -> int:
    """Number of the job's ranks on this machine; those of a process that acts for several count.

    Raises:
        SporaxTypeError, SporaxRuntimeError: as `get_local_rank`.
    """
    _only_world("get_local_rank_size", group)
    world = distributed.world()
    return (
        own_ranks.from_environ("LOCAL_RANK_SIZE", 1) if world is None else world.local_size * context.ranks_of_process()
    )


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    """World rank of a member of a group.

    Raises:
        SporaxTypeError: wrong types.
        SporaxRuntimeError: before `init`, no such group, or the group has no such member.
    """
    members, rank = _member("get_world_rank_from_group_rank", group, "group_rank_id", group_rank_id)
    For("get_world_rank_from_group_rank").refuse_state(
        not 0 <= rank < members.size, f"'group_rank_id' must be in [0, {members.size})", rank
    )
    return members.ranks[rank]


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    """Group rank of a rank.

    Raises:
        SporaxTypeError: wrong types.
        SporaxRuntimeError: before `init`, no such group, or the rank is not a member.
    """
    members, rank = _member("get_group_rank_from_world_rank", group, "world_rank_id", world_rank_id)
    if rank not in members.ranks:
        raise For("get_group_rank_from_world_rank").state_error(
            f"'world_rank_id' must be one of {list(members.ranks)}, the members of '{group}', but got {rank}"
        )
    return members.ranks.index(rank)


def get_process_group_ranks(group: str = HCCL_WORLD_COMM_GROUP) -> list[int]:
    """World ranks of a group's members.

    Raises:
        SporaxTypeError, SporaxRuntimeError: as `get_rank`.
    """
    members = _find("get_process_group_ranks", group)
    everyone = distributed.world() is not None and members.name in groups.WORLD_GROUPS
    return list(range(get_group_size(group))) if everyone else list(members.ranks)


def get_comm_name(group: str = HCCL_WORLD_COMM_GROUP) -> str:
    """Name under which the transport knows a group: its own name here.

    Raises:
        SporaxTypeError, SporaxRuntimeError: as `get_rank`.
    """
    return _find("get_comm_name", group).name


def create_group(group: str, rank_ids: list[int], options: Any = None) -> None:
    """Name a group of ranks; creating it again with the same ranks changes nothing.

    Args:
        group: its name.
        rank_ids: its members; a member's place in the list is its group rank.
        options: settings of MindSpore's transport; refused, since there is nothing here to set.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxRuntimeError: bad names or ranks; the message says which.
    """
    For("create_group").refuse(options is not None, "'options' must be None: HCCL is not used here", options, show=repr)
    groups.create(group, rank_ids)


def destroy_group(group: str) -> None:
    """Forget a group.

    Raises:
        SporaxTypeError: `group` is not a string.
        SporaxRuntimeError: before `init`, or no such group.
        SporaxValueError: the group of all ranks.
    """
    _require_init("destroy_group")
    _find("destroy_group", group)
    groups.destroy(group)


def _find(function: str, group: Any) -> groups.Group:
    For(function).typed("group", group, "a string", str)
    return groups.find(group, function)


def _only_world(function: str, group: Any) -> None:
    if _find(function, group).name not in groups.WORLD_GROUPS:
        raise SporaxRuntimeError(f"For '{function}', 'group' must be the group of all ranks, but got '{group}'.")


def _require_init(function: str) -> None:
    For(function).refuse_state(distributed.world() is None, "the ranks must have been joined: call init() first")


def _member(function: str, group: str, what: str, value: Any) -> tuple[groups.Group, int]:
    """A group, and the number `what` of a member of it."""
    _require_init(function)
    members = _find(function, group)
    For(function).typed(what, value, "an int", int, takes_bool=False)
    return members, int(value)
