"""What processes of a parameter-server job say to each other: one frozen struct per kind of message.

Arrays are never sent inside a struct; they follow it as raw frames, see `wire`. Requests of workers carry a number that
the reply repeats. `epoch` is the version of the slot map: whoever meets another epoch than its own refuses, or requests the map.
"""

from __future__ import annotations

import msgspec


class ServerMessage(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Root of all messages."""


# ------------------------------------------------------------------------------------------------------ shared values


class OptimizerSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An update rule and its constants.

    Attributes:
        rule: a name in `update.RULES`.
        constants: numbers the rule needs.
        decay: L2 weight decay added to the gradient.
        scale: the gradient is multiplied by this before anything else (1 / loss scale).
    """

    rule: str
    constants: dict[str, float] = {}
    decay: float = 0.0
    scale: float = 1.0


class VariableSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a slot keeps under one key.

    Attributes:
        key: number of the variable, the same in all workers.
        name: for messages to people.
        size: values of a dense segment; 0 for an embedding table.
        width: values of a row; 0 for a dense segment.
        optimizer: how it moves.
        seed, sigma, distribution: initial rows of a table: ``normal``, ``uniform``, ``zeros`` or ``constant`` (sigma).
        admit_count: updates that must name an id before it gets a row; 0 or 1 at once.
        admit_probability: share of ids that may get a row.
        max_rows: rows per slot above which the least recently updated are evicted; 0 for no limit.
        ttl: updates of the slot after which an unused row is evicted; 0 for never.
    """

    key: int
    name: str
    size: int
    width: int
    optimizer: OptimizerSpec
    seed: int = 0
    sigma: float = 0.01
    distribution: str = "normal"
    admit_count: int = 0
    admit_probability: float = 1.0
    max_rows: int = 0
    ttl: int = 0


class VariableValues(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Values of one variable in a message: one frame (chunked) of floats, before it one of row ids for tables.

    Attributes:
        key: the variable.
        rate: learning rate of this update; 0 in pulls.
        rows: number of rows, -1 for a dense segment.
        values: number of floats that follow; 0 in requests of pulls.
    """

    key: int
    rate: float
    rows: int
    values: int


class Source(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which push an update came from: the push id, the clock and the sample lease (-1 for none)."""

    rank: int
    incarnation: int
    seq: int
    clock: int
    lease: int = -1


class Holders(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Servers of one slot; -1 for none.

    Attributes:
        primary, backup: indices of servers.
        synced: whether the backup holds every acknowledged update.
        since: epoch in which the backup became the backup.
    """

    primary: int
    backup: int = -1
    synced: bool = False
    since: int = 0


class ServerAddress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a server listens, and which start of it this is: `tcp` by ZeroMQ, `ipc` for its machine, `plain` for others without
    keys; "" where it does not.
    """

    index: int
    incarnation: int
    host: str
    tcp: str
    ipc: str
    plain: str = ""


class Members(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ranks whose gradients are combined from a clock on."""

    clock: int
    ranks: list[int]


class Options(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Settings of the whole job, given out by the scheduler.

    Attributes:
        staleness: 0 synchronous, k bounded, -1 unbounded.
        durability: ``memory``, ``process``, ``disk`` or ``replica``.
        num_slots: virtual slots.
        lease_seconds: how long a primary may serve after its last heartbeat was answered.
        heartbeat_seconds: pause between heartbeats.
        snapshot_bytes: log size after which snapshots are taken and the log is truncated.
        lost_seconds: after so long without the only server that has a slot, the slot is lost.
        checkpoint_path: where global checkpoints go, "" for nowhere.
        checkpoint_seconds: pause between them, 0 for only on request.
        restore: folder of a checkpoint that first values come from, "" for none.
        worker_lease_seconds: how long a silent worker stays a member, 0 for `lease_seconds`.
    """

    staleness: int = 0
    durability: str = "replica"
    num_slots: int = 16
    lease_seconds: float = 10.0
    heartbeat_seconds: float = 0.5
    snapshot_bytes: int = 256 << 20
    lost_seconds: float = 600.0
    checkpoint_path: str = ""
    checkpoint_seconds: float = 0.0
    restore: str = ""
    worker_lease_seconds: float = 0.0


class Hold(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change of members is being agreed on: no slot may go beyond `clock` until the next view.

    Attributes:
        change: number of the change.
        clock: where the new members begin.
        strict: values of that clock must not have been given out yet.
    """

    change: int
    clock: int
    strict: bool


class HoldReply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A server's answer to a hold: whether its slots stop there, and the highest clock among them."""

    change: int
    held: bool
    clock: int


class View(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Membership and slot map of one epoch."""

    epoch: int
    servers: list[ServerAddress]
    slots: list[Holders]
    members: list[Members]
    hold: Hold | None = None


class PeerHello(ServerMessage, frozen=True, array_like=True, tag=10):
    """The first message of a connection through the file system: who is at its other end."""

    identity: bytes


# ------------------------------------------------------------------------------------------------- worker and server


class OfSlot(ServerMessage, frozen=True, array_like=True):
    """A request of a worker about a slot, or an answer to it."""

    request: int
    slot: int


class Init(OfSlot, frozen=True, array_like=True, tag=1):
    """Create variables where they do not exist; dense values follow as frames, one entry per dense variable."""

    epoch: int
    variables: list[VariableSpec]
    entries: list[VariableValues]


class Push(OfSlot, frozen=True, array_like=True, tag=2):
    """Gradients of one step for one slot; `weight` counts samples."""

    epoch: int
    source: Source
    weight: float
    entries: list[VariableValues]


class Pull(OfSlot, frozen=True, array_like=True, tag=3):
    """Request values as of a clock; -1 for whatever there is. Frames: row ids of the tables."""

    epoch: int
    rank: int
    clock: int
    entries: list[VariableValues]


class Acked(OfSlot, frozen=True, array_like=True, tag=4):
    """The push or init is durable; `clock` is how far the slot is."""

    clock: int


class Accepted(OfSlot, frozen=True, array_like=True, tag=5):
    """A synchronous push waits for the other workers; it need not be sent again unless the slot moves."""


class Pulled(OfSlot, frozen=True, array_like=True, tag=6):
    """Values, and the membership in force at their clock."""

    clock: int
    ranks: list[int]
    entries: list[VariableValues]


class Moved(OfSlot, frozen=True, array_like=True, tag=7):
    """Not the primary of the slot (any more); request the map of at least this epoch."""

    epoch: int


class Resend(OfSlot, frozen=True, array_like=True, tag=8):
    """Pushes are missing: send again from this number on."""

    expected: int


class NotAMember(OfSlot, frozen=True, array_like=True, tag=69):
    """A synchronous push of a rank that is no member at its clock: the update of that clock is made without it."""


class RequestRefused(OfSlot, frozen=True, array_like=True, tag=9):
    """The request cannot be served, now or later."""

    reason: str


class ClockAhead(OfSlot, frozen=True, array_like=True, tag=11):
    """The request is for a later clock than that of the slot, which may be on its way, or lost."""

    clock: int


# ------------------------------------------------------------------------------------------------- server and server


class Record(ServerMessage, frozen=True, array_like=True, tag=20):
    """One change of one slot: what is logged, replicated and replayed. Frames: the entries' arrays.

    Attributes:
        slot, lsn, epoch: which slot, the position in its history, and the epoch it was written in.
        variables: created, with the entries as first values; else the entries are gradients.
        sources: pushes contained.
        members: replaces the membership schedule when not None.
    """

    slot: int
    lsn: int
    epoch: int
    variables: list[VariableSpec]
    sources: list[Source]
    entries: list[VariableValues]
    members: list[Members] | None = None


class Replicated(ServerMessage, frozen=True, array_like=True, tag=21):
    """The backup has everything up to `lsn`."""

    slot: int
    epoch: int
    lsn: int


class SlotImage(ServerMessage, frozen=True, array_like=True, tag=22):
    """The whole state of a slot, for snapshots and moves. Frames: arrays in the order of `variables`."""

    slot: int
    lsn: int
    epoch: int
    clock: int
    clocks: dict[int, int]
    last: dict[int, tuple[int, int]]
    leases: list[tuple[int, int]]
    members: list[Members]
    variables: list[VariableSpec]
    frames_of: list[int]
    scalars: list[dict[str, float]]


class NeedImage(ServerMessage, frozen=True, array_like=True, tag=23):
    """The backup missed records: send the whole state."""

    slot: int
    epoch: int


# -------------------------------------------------------------------------------------------------- with the scheduler


class RegisterProcess(ServerMessage, frozen=True, array_like=True, tag=40):
    """A process wants to take part. `index` is the requested rank or server number, -1 for any."""

    role: str
    node: str
    index: int
    host: str = ""
    tcp: str = ""
    ipc: str = ""
    plain: str = ""


class ProcessAccepted(ServerMessage, frozen=True, array_like=True, tag=41):
    """The place a process got; `first_workers`: how many the job began with."""

    node: str
    index: int
    incarnation: int
    job: str
    options: Options
    first_workers: int = 0


class Ready(ServerMessage, frozen=True, array_like=True, tag=42):
    """A server has recovered what it could: slot -> log position.

    Attributes:
        index, incarnation: of the server.
        inventory: slots that are whole here, with their last record.
        missing: slots of which records are missing, with their last record, 0 where that is not known.
        damage: which of its files are damaged, for people; "" for none.
    """

    index: int
    incarnation: int
    inventory: dict[int, int]
    missing: dict[int, int] = {}
    damage: str = ""


class Heartbeat(ServerMessage, frozen=True, array_like=True, tag=43):
    """Alive. `sent` comes back in the reply; the rest is for `sporax ps status` and for decisions."""

    role: str
    index: int
    incarnation: int
    sent: float
    epoch: int
    clocks: dict[int, int] = {}
    lsns: dict[int, int] = {}
    gauges: dict[str, float] = {}
    held: HoldReply | None = None


class HeartbeatReply(ServerMessage, frozen=True, array_like=True, tag=44):
    """The lease is renewed from `sent` on; `view` when the sender's epoch is old.

    `dismissed`: the job became smaller than this worker's rank, so it may leave where it is no member.
    """

    sent: float
    epoch: int
    view: View | None = None
    unknown: bool = False
    dismissed: bool = False


class GetView(ServerMessage, frozen=True, array_like=True, tag=45):
    """Request the slot map."""


class ViewReply(ServerMessage, frozen=True, array_like=True, tag=46):
    """The slot map."""

    view: View


class SlotSynced(ServerMessage, frozen=True, array_like=True, tag=47):
    """The primary reports that its backup holds everything."""

    slot: int
    epoch: int
    backup: int


class Exited(ServerMessage, frozen=True, array_like=True, tag=51):
    """The supervisor saw a process end."""

    role: str
    node: str


class WorkerLeave(ServerMessage, frozen=True, array_like=True, tag=52):
    """A worker pushes nothing from `clock` on: it has finished (`done`), or it was dismissed, if it still is."""

    rank: int
    incarnation: int
    clock: int
    done: bool


class Scale(ServerMessage, frozen=True, array_like=True, tag=53):
    """Wanted numbers of workers and servers; -1 leaves one as it is."""

    workers: int
    servers: int


class Wanted(ServerMessage, frozen=True, array_like=True, tag=54):
    """What the supervisor should have running, and what people should be notified of.

    Attributes:
        workers, servers: numbers of processes.
        retired: nodes that have left for good, and need not be started again.
        finished: all workers have.
        error: why the job cannot go on.
        notices: what people should be notified of.
        joined: nodes of all workers that have ever taken part.
    """

    workers: int
    servers: int
    retired: list[str]
    finished: bool
    error: str
    notices: list[str] = []
    joined: list[str] = []


class GetStatus(ServerMessage, frozen=True, array_like=True, tag=55):
    """Request the state of the job."""


class StatusReply(ServerMessage, frozen=True, array_like=True, tag=56):
    """State of the job as JSON."""

    text: str


class LeaseSamples(ServerMessage, frozen=True, array_like=True, tag=57):
    """Request a range of samples."""

    request: int
    rank: int
    incarnation: int
    total: int
    size: int


class SampleRange(ServerMessage, frozen=True, array_like=True, tag=58):
    """Samples `start` to `stop` under a lease number; lease -1: wait; -2: all samples are done."""

    request: int
    lease: int
    start: int
    stop: int


class SamplesDone(ServerMessage, frozen=True, array_like=True, tag=59):
    """All slots have acknowledged the push of this lease."""

    rank: int
    lease: int


class Initialised(ServerMessage, frozen=True, array_like=True, tag=60):
    """Variables exist in all slots: a slot without state is now a lost slot. The scheduler sends this back once it is noted."""


class GetWanted(ServerMessage, frozen=True, array_like=True, tag=61):
    """The supervisor queries what should run; `running`: names of its workers whose processes run now, silent or not."""

    running: list[str] = []


class Stop(ServerMessage, frozen=True, array_like=True, tag=62):
    """The job is over, or this process is no longer needed; `done`: what a server keeps is not needed either."""

    reason: str
    done: bool = False


class TakeCheckpoint(ServerMessage, frozen=True, array_like=True, tag=63):
    """Write the slots that you lead below `path`, at a clock (-1: now)."""

    number: int
    clock: int
    path: str


class CheckpointPart(ServerMessage, frozen=True, array_like=True, tag=64):
    """A slot is written (or was past the clock, or could not be written)."""

    number: int
    slot: int
    clock: int
    checksum: int = 0
    num_bytes: int = 0
    is_late: bool = False
    error: str = ""


class Checkpoint(ServerMessage, frozen=True, array_like=True, tag=65):
    """A command requests a global checkpoint (`begin`), or queries how far it is."""

    begin: bool


class CheckpointReply(ServerMessage, frozen=True, array_like=True, tag=66):
    """Whether a checkpoint is being written, the last complete one, and what went wrong since."""

    running: bool
    folder: str
    error: str


class Broken(ServerMessage, frozen=True, array_like=True, tag=67):
    """A server cannot go on, and another start of it could not either."""

    index: int
    incarnation: int
    reason: str


class UpdatesLost(ServerMessage, frozen=True, array_like=True, tag=68):
    """A worker was notified that update `had` of a slot is acknowledged, and now that the slot is at update `has`."""

    slot: int
    had: int
    has: int


AnyMessage = (
    PeerHello | Init | Push | Pull | Acked | Accepted | Pulled | Moved | Resend | NotAMember | RequestRefused | Record
    | Replicated | SlotImage | NeedImage | RegisterProcess | ProcessAccepted | Ready | Heartbeat | HeartbeatReply
    | GetView | ViewReply | SlotSynced
    | Exited | WorkerLeave | Scale | Wanted | GetStatus | StatusReply | LeaseSamples | SampleRange | SamplesDone
    | Initialised | GetWanted | Stop | TakeCheckpoint | CheckpointPart | Checkpoint | CheckpointReply | ClockAhead | Broken
    | UpdatesLost
)  # fmt: skip
