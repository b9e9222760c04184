"""What this process knows of its job, in one value: `SESSION`.

Problem: a process takes part in one job at a time, and facts about it are asked for from everywhere: which rank it is, whether
it only imitates one, which groups there are, what the user has seeded. Method: one mutable value, made when Sporax is loaded,
changed by `runtime.distributed` (start and stop) and by the setters of the facade, and looked up here. No other module
below the facade keeps state that is rebound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import jax

from sporax.cluster.membership import Membership
from sporax.cluster.watchdog import Watchdog
from sporax.runtime.dry_run_report import DryRun


@dataclass(frozen=True, slots=True)
class World:
    """All ranks of the job, seen from one of them.

    Attributes:
        rank, size: this rank, and how many there are.
        local_rank, local_size: the same among the ranks of this machine.
        devices: the device of each rank, in rank order.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    devices: tuple[jax.Device, ...] = field(default=(), repr=False)


@dataclass(slots=True)
class Session:
    """The state of this process.

    Attributes:
        world: the ranks; None before `init`.
        membership: this process's connection to the scheduler.
        watchdog: notices ranks that are lost; None where there is only one.
        groups: ranks of the groups that the user has created, by name.
        dry_run: the rank that this process only imitates; None in a real job.
        imitating: what is traced now computes one rank's part, without the others.
        version: grows whenever configuration changes that a trace may depend on.
        job: number of ranks and own rank, as the parallel context sees them.
        seed: the global seed; None when it was never set.
        fed_network: the network whose inputs data sets prepare: the last that was told how its inputs arrive.
    """

    world: World | None = None
    membership: Membership | None = None
    watchdog: Watchdog | None = None
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    dry_run: DryRun | None = None
    imitating: bool = False
    version: int = 0
    job: tuple[int, int] = (1, 0)
    seed: int | None = None
    fed_network: ref[Any] | None = None


SESSION = Session()
"""Of this process."""
