"""A whole job without processes: the pure state machines of scheduler, servers and workers on a simulated network.

The network drops, repeats, delays and reorders messages (each passes through its byte form); servers crash and come back
with what their log had. Time is simulated, so minutes of faults take a fraction of a second, and a seed repeats a run.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from invariants import check_client, check_scheduler, check_server
from sporax.ps.client import client_state as client
from sporax.ps.protocol import events, wire
from sporax.ps.protocol.messages import (
    Heartbeat,
    HeartbeatReply,
    Init,
    Initialised,
    Members,
    OptimizerSpec,
    Options,
    ProcessAccepted,
    Pull,
    Push,
    Ready,
    Record,
    RegisterProcess,
    ServerMessage,
    Source,
    UpdatesLost,
    VariableSpec,
    VariableValues,
    ViewReply,
)
from sporax.ps.scheduler import scheduler_state as scheduler
from sporax.ps.scheduler.journal import Journal
from sporax.ps.server import server_state as server
from sporax.ps.server.follower_state import server_identity
from sporax.ps.slots.log_file import Damage
from sporax.ps.slots.record_log import Replay
from sporax.ps.slots.slot import SlotState

SIZE = 4
SPECS = [VariableSpec(0, "w", SIZE, 0, OptimizerSpec("sgd"))]


@dataclass
class Faults:
    """Shares of messages that are dropped, repeated, or delayed by up to so many seconds."""

    drop: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0


@dataclass
class SimulatedServer:
    """A server process: its machine while it lives, and its disk, which outlives it."""

    index: int
    machine: server.ServerState | None = None
    disk: list[tuple[Record, list[bytes]] | None] = field(default_factory=list)
    images: dict[int, SlotState] = field(default_factory=dict)
    start: int = 0
    ready: Ready | None = None
    paused: bool = False


class Simulation:
    """One job.

    Args:
        seed: of everything random.
        servers, workers: numbers.
        options: of the job.
        faults: of the network.
    """

    def __init__(self, seed: int, servers: int, workers: int, options: Options, faults: Faults) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.options = options
        self.faults = faults
        self.queue: list[tuple[float, int, str, bytes, list[bytes]]] = []
        self.order = itertools.count()
        self.journal = Journal("job", workers, servers)
        self.scheduler = scheduler.SchedulerState(options, self.journal, 0.0)
        self.kept = msgspec.msgpack.encode(self.journal)
        self.servers = [SimulatedServer(index) for index in range(servers)]
        self.clients = [client.ClientState(1e9) for _ in range(workers)]
        self.incarnations = [0] * workers
        self.answers: dict[tuple[int, int], ServerMessage] = {}
        self.values: dict[tuple[int, int], np.ndarray] = {}
        self.failures: list[str] = []
        self.requests = itertools.count(1)
        self.next_tick = 0.0
        self.reports_values = False
        for simulated in self.servers:
            self.start_server(simulated)
        for rank in range(workers):
            self.send("scheduler", b"worker-%d" % rank, RegisterProcess("worker", f"w{rank}", rank))

    # -------------------------------------------------------------------------------------------------------- network

    def send(self, to: str, sender: bytes, message: ServerMessage, frames: tuple[wire.Frame, ...] = ()) -> None:
        parts = [bytes(part) for part in wire.encode(message, frames)]
        if self.rng.random() < self.faults.drop:
            return
        for _ in range(1 + (self.rng.random() < self.faults.repeat)):
            at = self.now + 0.001 + self.rng.random() * self.faults.delay
            heapq.heappush(self.queue, (at, next(self.order), to, sender, parts))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self.now < until:
            self.step(until)

    def run_until(self, done: object, seconds: float = 120.0) -> None:
        """Let time pass until `done()`."""
        until = self.now + seconds
        while not done():
            assert self.now < until, "nothing happens any more"
            self.step(until)

    def step(self, until: float) -> None:
        if self.queue and self.queue[0][0] <= self.next_tick:
            at, _, to, sender, parts = heapq.heappop(self.queue)
            self.now = max(self.now, at)
            message, frames = wire.decode(parts)
            self.deliver(to, sender, message, tuple(frames))
        else:
            self.now = self.next_tick
            self.next_tick = self.now + 0.1
            self.tick()

    def deliver(self, to: str, sender: bytes, message: ServerMessage, frames: tuple[wire.Frame, ...]) -> None:
        if to == "scheduler":
            self.do_scheduler(self.scheduler.handle(events.Received(sender, message, frames), self.now))
        elif to.startswith("server"):
            simulated = self.servers[int(to.split("-")[1])]
            if to == f"server-{simulated.index}-{simulated.start}":
                if simulated.paused:
                    heapq.heappush(
                        self.queue, (self.now + 0.05, next(self.order), to, sender, wire_of(message, frames))
                    )
                else:
                    self.to_server(simulated, sender, message, frames)
        else:
            rank = int(to.split("-")[1])
            self.to_worker(rank, message, frames)

    def to_server(self, simulated: SimulatedServer, sender: bytes, message: ServerMessage, frames: tuple) -> None:
        if isinstance(message, ProcessAccepted):
            if simulated.machine is None:
                replay = self.recovered(simulated)
                simulated.machine = server.ServerState(message.index, message.incarnation, self.options, replay.states)
                inventory = {slot: state.lsn for slot, state in replay.states.items()}
                missing = {slot: what.last for slot, what in replay.missing.items()}
                damage = "its log is damaged" if replay.damages else ""
                simulated.ready = Ready(message.index, message.incarnation, inventory, missing, damage)
            self.send("scheduler", b"server-%d-%d" % (simulated.index, simulated.start), simulated.ready)
        elif simulated.machine is not None:
            self.do_server(simulated, simulated.machine.handle(events.Received(sender, message, frames), self.now))
            if simulated.machine is not None:
                check_server(simulated.machine)

    def to_worker(self, rank: int, message: ServerMessage, frames: tuple[wire.Frame, ...]) -> None:
        if isinstance(message, ProcessAccepted):
            self.incarnations[rank] = message.incarnation
        elif isinstance(message, Initialised):
            self.reports_values = False
        elif isinstance(message, ViewReply) or (isinstance(message, HeartbeatReply) and message.view is not None):
            self.do_client(rank, self.clients[rank].new_view(message.view, self.now))
        else:
            self.answer(rank, message, frames)
        check_client(self.clients[rank])

    def tick(self) -> None:
        self.do_scheduler(self.scheduler.handle(events.Tick(), self.now))
        check_scheduler(self.scheduler)
        for simulated in self.servers:
            identity = b"server-%d-%d" % (simulated.index, simulated.start)
            if simulated.paused:
                continue
            if simulated.machine is None:
                self.send(
                    "scheduler",
                    identity,
                    RegisterProcess("server", f"s{simulated.index}", simulated.index, "h", str(simulated.start)),
                )
                continue
            self.do_server(simulated, simulated.machine.handle(events.Tick(), self.now))
            if simulated.machine is None:
                continue
            if not simulated.machine.is_known:
                self.send("scheduler", identity, simulated.ready)
            self.send("scheduler", identity, simulated.machine.heartbeat(self.now, {}))
        if self.reports_values:
            self.send("scheduler", b"worker-0", Initialised())
        for rank, state in enumerate(self.clients):
            self.do_client(rank, state.tick(self.now))
            identity = b"worker-%d" % rank
            if self.incarnations[rank] == 0:
                self.send("scheduler", identity, RegisterProcess("worker", f"w{rank}", rank))
            else:
                epoch = state.view.epoch if state.view else 0
                self.send("scheduler", identity, Heartbeat("worker", rank, self.incarnations[rank], self.now, epoch))

    # -------------------------------------------------------------------------------------------------------- actions

    def do_scheduler(self, actions: list[scheduler.Action]) -> None:
        for action in actions:
            if isinstance(action, events.Keep):
                self.kept = msgspec.msgpack.encode(self.journal)
            elif isinstance(action, events.Reply):
                self.send(action.to.decode(), b"scheduler", action.message)
            elif isinstance(action, events.End):
                self.failures.append(action.reason)

    def do_server(self, simulated: SimulatedServer, actions: list[events.Action]) -> None:
        queue = list(actions)
        machine = simulated.machine
        assert machine is not None
        me = b"server-%d-%d" % (simulated.index, simulated.start)
        while queue:
            match queue.pop(0):
                case events.Reply(to, message, frames):
                    self.send(to.decode(), me, message, frames)
                case events.ToServer(address, message, frames):
                    target = f"server-{address.index}-{address.tcp}"
                    self.send(target, server_identity(machine.index, machine.incarnation), message, frames)
                case events.ToScheduler(message):
                    self.send("scheduler", me, message)
                case events.StoreRecord(record, frames):
                    simulated.disk.append((record, [bytes(frame) for frame in frames]))
                    if self.options.durability == "disk":
                        queue += machine.handle(events.Stored(record.slot, record.lsn), self.now)
                case events.Apply() as apply:
                    queue += machine.handle(apply, self.now)
                case events.StoreSlot(slot):
                    image, frames = machine.states[slot].image()
                    simulated.images[slot] = SlotState.from_image(
                        image, [bytes(frame) for frame in frames], self.options.staleness
                    )
                case events.DropSlot(slot):
                    simulated.images.pop(slot, None)
                case events.Halt():
                    self.crash(simulated.index)
                    return

    def answer(self, rank: int, message: ServerMessage, frames: tuple) -> None:
        if not self.clients[rank].closes(message):
            self.do_client(rank, self.clients[rank].refused(message, self.now))
            return
        self.answers[(rank, message.request)] = message
        if frames:
            self.values[(rank, message.request)] = np.frombuffer(b"".join(frames), np.float32)

    def do_client(self, rank: int, actions: list[client.Action]) -> None:
        for action in actions:
            match action:
                case events.ToServer(address, message, frames):
                    self.send(f"server-{address.index}-{address.tcp}", b"worker-%d" % rank, message, frames)
                case events.ToScheduler(UpdatesLost() as message):
                    self.send("scheduler", b"worker-%d" % rank, message)
                case events.ToScheduler():
                    pass  # the next heartbeat brings the view
                case client.Failed(_, reason):
                    self.failures.append(reason)

    # --------------------------------------------------------------------------------------------------------- faults

    def start_server(self, simulated: SimulatedServer) -> None:
        simulated.start += 1
        simulated.machine = None

    def recovered(self, simulated: SimulatedServer) -> Replay:
        """What the log of a server has; as `SlotLog.recover` does it. None in place of a record is damage."""
        replay = Replay(self.options.staleness)
        if self.options.durability == "memory":
            return replay
        for state in simulated.images.values():
            image, frames = state.image()
            replay.take_image(image, [bytes(frame) for frame in frames])
        for entry in simulated.disk:
            if entry is None:
                replay.take_damage(Damage(Path("log"), 0, 1))
            else:
                replay.take(entry[0], list(entry[1]))
        replay.finish()
        if replay.damages:
            # As `SlotLog.set_aside`: what is whole is in snapshots now, and the rest is kept elsewhere.
            simulated.images = dict(replay.states)
            simulated.disk = []
            return self.recovered_again(simulated, replay)
        return replay

    def recovered_again(self, simulated: SimulatedServer, first: Replay) -> Replay:
        """The slots as they are on the disk now, with what the first look has found."""
        again = self.recovered(simulated)
        again.missing, again.damages = first.missing, first.damages
        return again

    def crash(self, index: int) -> None:
        """A server ends and begins again at once."""
        self.start_server(self.servers[index])

    def restart_scheduler(self) -> None:
        """The scheduler ends and begins again with its journal; servers that ended before reach only the former one."""
        running = {b"server-%d-%d" % (simulated.index, simulated.start) for simulated in self.servers}
        self.queue = [
            entry
            for entry in self.queue
            if entry[2] != "scheduler" or not entry[3].startswith(b"server") or entry[3] in running
        ]
        heapq.heapify(self.queue)
        self.journal = msgspec.msgpack.decode(self.kept, type=Journal)
        self.scheduler = scheduler.SchedulerState(self.options, self.journal, self.now)

    # --------------------------------------------------------------------------------------------------------- workers

    def submit(self, rank: int, slot: int, make: object, frames: tuple = (), seq: int = 0) -> tuple[int, int]:
        request = next(self.requests)
        self.do_client(rank, [self.clients[rank].submit(request, slot, make, frames, seq, self.now)])
        return rank, request

    def initialise(self) -> None:
        self.run_until(lambda: all(self.incarnations))
        entries = [VariableValues(0, 0.0, -1, SIZE)]
        frames = tuple(wire.chunks(np.zeros(SIZE, np.float32)))
        expected = [
            self.submit(0, slot, lambda request, epoch, slot=slot: Init(request, slot, epoch, SPECS, entries), frames)
            for slot in range(self.options.num_slots)
        ]
        self.run_until(lambda: all(key in self.answers for key in expected))
        self.send("scheduler", b"worker-0", Initialised())
        self.reports_values = True

    def push(self, rank: int, slot: int, seq: int, clock: int, value: float = 1.0, lease: int = -1) -> tuple[int, int]:
        """Add `value` to all of a slot's numbers."""
        source = Source(rank, self.incarnations[rank], seq, clock, lease)
        entries = [VariableValues(0, 1.0, -1, SIZE)]
        frames = tuple(wire.chunks(np.full(SIZE, -value, np.float32)))
        return self.submit(
            rank, slot, lambda request, epoch: Push(request, slot, epoch, source, 1.0, entries), frames, seq
        )

    def pull(self, rank: int, slot: int, clock: int = -1) -> tuple[int, int]:
        entries = [VariableValues(0, 0.0, -1, 0)]
        return self.submit(rank, slot, lambda request, epoch: Pull(request, slot, epoch, rank, clock, entries))

    def value_of(self, rank: int, slot: int, clock: int = -1) -> np.ndarray:
        key = self.pull(rank, slot, clock)
        self.run_until(lambda: key in self.answers)
        return self.values[key]


def wire_of(message: ServerMessage, frames: tuple) -> list[bytes]:
    return [bytes(part) for part in wire.encode(message, frames)]


def members(*ranks: int) -> list[Members]:
    return [Members(0, list(ranks))]
