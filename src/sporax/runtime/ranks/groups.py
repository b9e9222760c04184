"""Named groups of ranks.

A group is an ordered set of ranks; a rank's position in it is its *group rank*. The group of all ranks is always there
once the world has started, under the names MindSpore gives it on its various backends.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from typing import Any

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.base.lazy_members import dataclass
from sporax.runtime import world as distributed
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

WORLD_GROUPS = ("hccl_world_group", "nccl_world_group", "mccl_world_group")
"""Names of the group of all ranks."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that exchange data.

    Attributes:
        name: what it is called.
        ranks: its members, by group rank.
    """

    name: str
    ranks: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.ranks)

    def position(self, what: str = "get_rank") -> int:
        """Group rank of this process.

        Raises:
            SporaxRuntimeError: it is not a member.
        """
        rank = this_rank()
        if rank not in self.ranks:
            raise SporaxRuntimeError(
                f"For '{what}', this rank must be a member of group '{self.name}', which has the ranks "
                f"{list(self.ranks)}, but this is rank {rank}."
            )
        return self.ranks.index(rank)


def this_rank() -> int:
    """This process's rank, the first of those that it acts for; 0 before `init`."""
    world = distributed.world()
    return 0 if world is None else world.rank * distributed.num_ranks_here()


def find(name: str | None, what: str = "group") -> Group:
    """The group called `name`; None is the group of all ranks. Before `init` that one has a single member.

    Raises:
        SporaxTypeError: `name` is not a string.
        SporaxRuntimeError: there is no such group.
    """
    if name is None or name in WORLD_GROUPS:
        world = distributed.world()
        size = distributed.num_ranks_here() * (1 if world is None else world.size)
        return Group(name or WORLD_GROUPS[0], tuple(range(size)))
    For(what).refuse_type(not isinstance(name, str), "'group' must be a string", type(name).__name__)
    if name not in SESSION.groups:
        raise SporaxRuntimeError(
            f"For '{what}', 'group' must be one of {[*WORLD_GROUPS[:1], *SESSION.groups]}, but got '{name}'. Create it first: "
            "create_group(name, rank_ids)."
        )
    # The name may belong to other ranks later.
    frames.depend_on(_guard(name))
    return Group(name, SESSION.groups[name])


def find_counted(name: str | None, what: str) -> Group:
    """As `find`, for exchanges whose result a script may divide by the number of ranks that it has read.

    Raises:
        SporaxTypeError, SporaxRuntimeError: as `find`; or the exchange is between less ranks than that.
    """
    members = find(name, what)
    count, here = SESSION.reported_size or 1, find(None).size
    of_devices = members.size < count if members.name in WORLD_GROUPS else max(members.ranks) >= here
    if of_devices and not SESSION.plans_all:
        mode = "" if distributed.has_other_processes() else "set parallel_mode='data_parallel', or "
        raise SporaxRuntimeError(
            f"For '{what}', the exchange is between {here} process(es) in this parallel mode, but get_group_size() has "
            f"said {count}, the number of devices. To make each device a rank, {mode}start `sporax run --worker_num {count}`."
        )
    return members


def find_planned(name: str, what: str) -> tuple[int, ...]:
    """The ranks of a group in a step that is sharded over all devices, each of which is a rank.

    Raises:
        SporaxTypeError, SporaxRuntimeError: as `find`.
    """
    members = find(name, what)
    return tuple(range(SESSION.sharded_over())) if members.name in WORLD_GROUPS else members.ranks


@dataclass(frozen=True, slots=True)
class _Membership:
    """What a compiled step remembers of a group."""

    name: str

    def fingerprint(self) -> Mapping[str, Hashable]:
        """Its ranks."""
        return {"ranks": SESSION.groups.get(self.name)}

    def describe(self) -> str:
        """What messages call it."""
        return f"group '{self.name}'"


# One object for each name, since guards are distinguished by identity.
_guard = functools.cache(_Membership)


def create(name: str, ranks: list[int]) -> Group:
    """Name a group; creating it again with the same ranks changes nothing.

    Raises:
        SporaxTypeError: `name` is not a string, or `ranks` not a list of ints.
        SporaxValueError: `ranks` is empty or names a rank twice, or the name belongs to other ranks.
        SporaxRuntimeError: before `init`, or a rank that does not exist.
    """
    world = distributed.world()
    For("create_group").refuse_state(world is None, "the ranks must have been joined: call init() first")
    _check_new(name, ranks)
    # Every rank must create the group with the same ranks in the same order, so another order is another group.
    existing = SESSION.groups.get(name)
    if name in WORLD_GROUPS or (existing is not None and existing != tuple(ranks)):
        raise SporaxValueError(
            f"For 'create_group', group '{name}' exists with ranks {list(find(name).ranks)}, but got {ranks}. "
            "Destroy it first, or choose another name."
        )
    SESSION.groups[name] = tuple(ranks)
    frames.touch()
    return Group(name, tuple(ranks))


def _check_new(name: Any, ranks: Any) -> None:
    """Check the arguments of `create`, which raises the same."""
    if not isinstance(name, str) or not name:
        raise SporaxTypeError(f"For 'create_group', 'group' must be a non-empty string, but got {name!r}.")
    if not isinstance(ranks, list) or any(isinstance(rank, bool) or not isinstance(rank, int) for rank in ranks):
        raise SporaxTypeError(f"For 'create_group', 'rank_ids' must be a list of ints, but got {ranks!r}.")
    For("create_group").refuse(not ranks or len(set(ranks)) < len(ranks), "'rank_ids' must hold distinct ranks", ranks)
    # Of one process as many as it has devices: so many the script has read.
    size = max(find(None).size, SESSION.reported_size or 1, SESSION.sharded_over())
    strangers = [rank for rank in ranks if not 0 <= rank < size]
    For("create_group").refuse_state(strangers, f"'rank_ids' must be in [0, {size}), the ranks of the job", strangers)


def destroy(name: str) -> None:
    """Forget a group.

    Raises:
        SporaxValueError: it is the group of all ranks.
        SporaxRuntimeError: there is no such group.
    """
    For("destroy_group").refuse(name in WORLD_GROUPS, f"the group of all ranks cannot be destroyed, but got '{name}'")
    del SESSION.groups[find(name, "destroy_group").name]
    frames.touch()


def forget_all() -> None:
    """Forget every created group."""
    SESSION.groups.clear()
