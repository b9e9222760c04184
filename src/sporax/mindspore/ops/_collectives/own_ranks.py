"""Ranks as scripts see them: a job has one for each device, whatever the parallel mode and when it is set."""

from __future__ import annotations

import os

from sporax.ir import variables
from sporax.mindspore import context
from sporax.runtime import world as distributed
from sporax.runtime.ranks import Group, groups, local_ranks, server_exchange
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames


def rank_in(members: Group) -> int:
    """Rank of this process in a group. Before `init`: what the environment says (RANK_ID), else 0.

    Raises:
        SporaxRuntimeError: this process is no member, or acts for several ranks, which would all have this number.
    """
    # Workers that do not know each other have their ranks from the scheduler.
    if (session := server_exchange.connection()) is not None and distributed.world() is None:
        return session.store.rank
    if frames.compiling() or local_ranks.is_inside():
        # It would become a constant of the program that all ranks of this process run.
        local_ranks.refuse("get_rank")
    if _before_init(members):
        return from_environ("RANK_ID", 0)
    # Groups of the script's own are of processes.
    if members.name not in groups.WORLD_GROUPS:
        return members.position()
    world = distributed.world()
    return 0 if world is None else world.rank * context.ranks_of_process()


def size_of(members: Group) -> int:
    """Number of ranks in a group. Before `init`: what the environment says (RANK_SIZE), else that of this process's devices."""
    # The number of workers that do not know each other is the environment's.
    if server_exchange.connection() is not None and distributed.world() is None:
        return from_environ("MS_WORKER_NUM", 1)
    if _before_init(members):
        return from_environ("RANK_SIZE", context.ranks_of_process())
    if members.name not in groups.WORLD_GROUPS:
        return members.size
    world = distributed.world()
    SESSION.reported_size = context.ranks_of_process() * (1 if world is None else world.size)
    return SESSION.reported_size


def from_environ(name: str, default: int) -> int:
    """A number that the launcher's environment says."""
    value = variables.read(os.environ, name)
    return default if value is None else int(value)


def _before_init(members: Group) -> bool:
    # The group of all ranks is known before `init`; others do not exist yet.
    return distributed.world() is None and members.name in groups.WORLD_GROUPS
