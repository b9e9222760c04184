"""What this process knows of its job, in one value: `SESSION`.

Problem: a process takes part in one job at a time, and facts about it are requested from everywhere: which rank it is, whether
it only imitates one, which groups there are, what the user has seeded, who listens to plans. Method: one value for all facts of
the job, made when Sporax is loaded, changed by `runtime.world` (start and stop) and by the setters of the facade, and
looked up here. Other modules keep only what belongs to them: tables that fill up once (rules, kinds of arrays), results that
are kept to save work, and what is being done now (context variables, activities that are shown). This module does not load JAX:
`sporax plan` sets its listener before the user's script decides how JAX is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary, ref

from sporax.cluster.membership import Membership
from sporax.cluster.watchdog import Watchdog

if TYPE_CHECKING:  # the first brings the searches along, which most processes never need
    import jax

    from sporax.ps.worker.server_connection import ServerConnection
    from sporax.report.questions import Planned


def _one() -> int:
    return 1


PlanListener = Callable[["Planned"], None]


class ImitatedRank(Protocol):
    """A rank whose programs are compiled and not run (`runtime.process.dry_run_report`)."""

    level: int

    def add(self, lowered: jax.stages.Lowered, name: str) -> tuple[jax.stages.Compiled, Any]:
        """Compile a program and note what it needs."""

    def close(self) -> None:
        """Write what was noted."""


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
        servers: this worker's connection to parameter servers; None in other jobs.
        version: grows whenever configuration changes that a trace may depend on.
        job: number of ranks and own rank, as the parallel context sees them.
        acts_for: for how many ranks the only process of a job acts; the parallel context knows it.
        told_size: what the script has been told the number of ranks is, by the only process of a job; None before.
        seed: the global seed; None when it was never set.
        agreed: by identity the Parameters that have begun with rank 0's values.
        fed_network: the network whose inputs data sets prepare: the last that was told how its inputs arrive.
        plan_listeners: called in order with every plan that this process makes, before anything of it is compiled.
        plan_only: steps are planned and not run: variables keep their values, results are zeros.
        remarks: what the heads of plans say that are made now.
        plans_all: training steps that the script does not shard are planned as well, in automatic parallelism, and nothing is
            trained or written: the process is there for its plans.
    """

    world: World | None = None
    membership: Membership | None = None
    watchdog: Watchdog | None = None
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    dry_run: ImitatedRank | None = None
    imitating: bool = False
    servers: ServerConnection | None = None
    version: int = 0
    job: tuple[int, int] = (1, 0)
    acts_for: Callable[[], int] = _one
    told_size: int | None = None
    seed: int | None = None
    agreed: WeakValueDictionary[int, Any] = field(default_factory=WeakValueDictionary)
    fed_network: ref[Any] | None = None
    plan_listeners: list[PlanListener] = field(default_factory=list)
    plan_only: bool = False
    plans_all: bool = False
    remarks: tuple[str, ...] = ()

    def announce(self, planned: Planned) -> None:
        """Call all listeners with a new plan. An exception of theirs reaches the caller of the step."""
        for listener in self.plan_listeners:
            listener(planned)


# All facts of this process's job.
SESSION = Session()
"""Of this process."""
