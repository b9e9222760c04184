"""A whole elastic job on the simulated network: workers are the real `ServerStore` and `ServerConnection`, each in a thread of its own that
runs only while simulated time stands still, so a seed repeats a run.

Every sample adds 1 to its own number in each parameter. At the end each number says how often its sample counted.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import numpy as np
from simulation import Faults, SimulatedServer, Simulation

from sporax.ps.client import client_state as client, store
from sporax.ps.protocol import events
from sporax.ps.protocol.messages import (
    Heartbeat,
    HeartbeatReply,
    Initialised,
    OptimizerSpec,
    Options,
    ProcessAccepted,
    RegisterProcess,
    SampleRange,
    Scale,
    ServerMessage,
    Stop,
    ViewReply,
)
from sporax.ps.worker.server_connection import ServerConnection

PARAMETERS = 3
SGD = OptimizerSpec("sgd")


class KilledError(BaseException):
    """The process of a worker ends."""


class DismissedError(Exception):
    """A worker leaves the job."""


class Link:
    """The connection of a worker to the scheduler."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.view = self.welcome = self.range = None
        self.stopped, self.is_over, self.dismissed, self.has_left = "", False, False, False
        self.noted_values = False
        self.clocks: dict[int, int] = {}
        self.gauges: dict[str, float] = {}

    @property
    def rank(self) -> int:
        return self.welcome.index

    @property
    def incarnation(self) -> int:
        return self.welcome.incarnation

    def notify(self, message: ServerMessage) -> None:
        self.worker.job.send("scheduler", self.worker.identity, message)

    def initialised(self) -> None:
        while not (self.noted_values or self.is_over or self.stopped):
            self.notify(Initialised())
            again = self.worker.job.now + 0.5
            self.worker.block(lambda again=again: self.noted_values or self.is_over or self.worker.job.now > again)

    def request_samples(self, message: ServerMessage, seconds: float) -> SampleRange | None:
        self.notify(message)
        ends, self.range = self.worker.job.now + seconds, None

        def has_answer() -> bool:
            return self.range is not None and self.range.request == message.request

        self.worker.block(lambda: has_answer() or self.worker.job.now > ends)
        return self.range if has_answer() else None

    def leave(self, message: ServerMessage, seconds: float) -> None:
        ends = self.worker.job.now + seconds
        while not (self.has_left or self.is_over or self.worker.job.now > ends):
            self.notify(message)
            again = self.worker.job.now + 0.5
            self.worker.block(lambda again=again: self.has_left or self.is_over or self.worker.job.now > again)

    def leave_if_dismissed(self, message: ServerMessage) -> bool:
        while self.dismissed and not (self.has_left or self.is_over or self.stopped):
            self.notify(message)
            again = self.worker.job.now + 0.5
            self.worker.block(
                lambda again=again: self.has_left or self.is_over or not self.dismissed or self.worker.job.now > again
            )
        return self.has_left or self.is_over

    def take(self, message: ServerMessage) -> None:
        match message:
            case ProcessAccepted():
                self.welcome = self.welcome or message
            case ViewReply(view):
                self.take_view(view)
            case HeartbeatReply():
                if message.view is not None:
                    self.take_view(message.view)
                self.dismissed = message.dismissed
                if message.unknown:
                    self.stopped = "replaced"
            case SampleRange():
                self.range = message
            case Initialised():
                self.noted_values = True
            case Stop(reason, done):
                if reason == "left":
                    self.has_left = True
                elif reason != "noted":
                    self.stopped, self.is_over = reason, done

    def take_view(self, view: object) -> None:
        if self.view is None or view.epoch >= self.view.epoch:
            self.view = view

    def close(self) -> None:
        pass


class Client:
    """`sporax.ps.client.client.Client` over the simulated network."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.state = client.ClientState(1e9)
        self.answers: dict[int, tuple[ServerMessage, tuple]] = {}
        self.errors: dict[int, str] = {}
        self.last = 0

    def submit(self, slot: int, make: Callable, frames: object = (), seq: int = 0, into: object = None) -> int:
        self.last += 1
        request = self.last
        self.do([self.state.submit(request, slot, make, tuple(frames), seq, self.worker.job.now)])
        return request

    def wait(self, request: int) -> tuple[ServerMessage, tuple]:
        link = self.worker.link
        self.worker.block(lambda: request in self.answers or request in self.errors or link.stopped)
        if request in self.errors:
            raise store.SporaxRuntimeError(self.errors[request])
        if request not in self.answers:
            raise store.SporaxRuntimeError(f"the job has ended: {link.stopped}")
        return self.answers.pop(request)

    def wait_all(self, requests: object) -> list:
        return [self.wait(request) for request in requests]

    def forget(self, requests: object) -> None:
        for request in requests:
            for known in (self.state.open, self.answers, self.errors):
                known.pop(request, None)

    def take(self, message: ServerMessage, frames: tuple) -> None:
        if self.state.closes(message):
            self.answers[message.request] = (message, frames)
        else:
            self.do(self.state.refused(message, self.worker.job.now))

    def do(self, actions: list[client.Action]) -> None:
        job, me = self.worker.job, self.worker.identity
        for action in actions:
            match action:
                case events.ToServer(address, message, frames):
                    job.send(f"server-{address.index}-{address.tcp}", me, message, frames)
                case client.Failed(request, reason):
                    self.errors[request] = reason

    def close(self) -> None:
        pass


class SimulatedStore(store.ServerStore):
    """The real store; its connections are simulated."""

    def __init__(self, worker: Worker) -> None:
        self.link, self._client = worker.link, worker.client
        self.options, self.rank = worker.link.welcome.options, worker.link.rank
        self.clock, self.members = 0, ()
        self._parts, self._tables, self._seq = [], {}, [0] * self.options.num_slots


class SimulatedConnection(ServerConnection):
    """The real connection; a worker that is let go raises instead of ending this process."""

    def _end_retired(self) -> None:
        if self.store.is_retired:
            raise DismissedError


class Worker:
    """A worker process, restarted or not."""

    def __init__(self, job: ElasticJob, rank: int, node: str, start: int) -> None:
        self.job, self.rank, self.node = job, rank, node
        self.identity = b"worker-%d-%d" % (rank, start)
        self.link, self.client = Link(self), Client(self)
        self.predicate: Callable[[], object] = lambda: True
        self.error: BaseException | None = None
        self.is_killed = self.has_ended = False
        self.restart_at: float | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def block(self, predicate: Callable[[], object]) -> None:
        """Give simulated time the turn until something is true; called by the worker's thread."""
        if predicate():
            return
        self.predicate = predicate
        self._back.release()
        self._go.acquire()
        if self.is_killed:
            raise KilledError

    def sleep(self, seconds: float) -> None:
        until = self.job.now + seconds
        self.block(lambda: self.job.now >= until)

    def resume(self) -> None:
        """Let the worker run until it waits again."""
        self._go.release()
        self._back.acquire()

    def kill(self) -> None:
        self.is_killed = True
        self.resume()
        self._thread.join()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.is_killed:
                self._work()
        except KilledError:
            pass
        except BaseException as error:  # for the test to see
            self.error = error
        self.has_ended = True
        self._back.release()

    def _work(self) -> None:
        link, job = self.link, self.job
        self.block(lambda: link.welcome is not None and (link.stopped or (link.view is not None and link.view.slots)))
        served = SimulatedStore(self)
        try:
            connection = SimulatedConnection(served, first_workers=job.first_workers)
            names, values = [f"w{i}" for i in range(PARAMETERS)], [np.zeros(job.total, np.float32)] * PARAMETERS
            part = connection.attach(names, values, [0] * PARAMETERS, [SGD], [])
            connection.values(part)  # as an optimizer does
            for samples in connection.leases.ranges(job.total, job.size, 1e9):
                self.sleep(job.rng.random() * job.pause)
                all_samples = 1.0
                if served.options.staleness == 0:  # a mean over the members, weighted by their samples
                    clock = job.size * job.first_workers
                    all_samples = min(clock, job.total - served.clock * clock)
                gradient = np.zeros(job.total, np.float32)
                gradient[list(samples)] = -all_samples / (max(1, len(samples)) if served.options.staleness == 0 else 1)
                connection.exchange(part, np.array([1.0]), [gradient] * PARAMETERS)
        except DismissedError:
            pass
        served.close()


class ElasticJob(Simulation):
    """One job whose workers and servers come and go; arguments as for `Simulation`.

    Args:
        steps: clocks (synchronous), or leases of a worker (else).
        size: samples of a worker's step.
        pause: longest time that a worker computes.
    """

    def __init__(
        self,
        seed: int,
        servers: int,
        workers: int,
        options: Options,
        faults: Faults,
        *,
        steps: int = 30,
        size: int = 4,
        pause: float = 0.1,
    ) -> None:
        super().__init__(seed, servers, 0, options, faults)
        self.journal.worker_num = self.journal.most_workers = self.first_workers = workers
        self.kept = msgspec.msgpack.encode(self.journal)
        self.size, self.total, self.pause = size, steps * size * workers, pause
        self.workers: dict[int, Worker] = {}
        self.starts = 0
        self.is_over = False
        self.restart_seconds = 0.3
        self.log: list[str] = []
        for rank in range(workers):
            self.start_worker(rank, f"w{rank}")
        store.time = SimpleNamespace(sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        here = threading.current_thread()
        next(worker for worker in self.workers.values() if worker._thread is here).sleep(seconds)

    # ------------------------------------------------------------------------------------------------------ supervisor

    def start_worker(self, rank: int, node: str) -> None:
        self.starts += 1
        # What a process that has ended said to the scheduler has come, or will not come: its connection is closed.
        mine = b"worker-%d-" % rank
        self.queue = [entry for entry in self.queue if not (entry[2] == "scheduler" and entry[3].startswith(mine))]
        heapq.heapify(self.queue)
        self.workers[rank] = Worker(self, rank, node, self.starts)

    def scale(self, workers: int = -1, servers: int = -1) -> None:
        self.log.append(f"{self.now:.2f} scale {workers} {servers}")
        message = Scale(workers, servers)
        self.do_scheduler(self.scheduler.handle(events.Received(b"controller", message, ()), self.now))
        self.supervise()

    def kill_worker(self, rank: int) -> bool:
        worker = self.workers.get(rank)
        if worker is None or worker.has_ended:
            return False
        self.log.append(f"{self.now:.2f} kill {rank}")
        worker.kill()
        worker.restart_at = self.now + self.restart_seconds
        return True

    def supervise(self) -> None:
        """What `LocalCluster` does."""
        journal = self.journal
        for rank, worker in list(self.workers.items()):
            retired = worker.node in journal.retired
            if worker.error is not None:
                raise AssertionError(f"worker {rank} failed: {worker.error!r} after {self.log}") from worker.error
            if worker.is_killed and not retired and not self.is_over and self.now >= worker.restart_at:
                self.start_worker(rank, worker.node)
            elif worker.has_ended and retired and rank < journal.worker_num and not self.is_over:
                self.start_worker(rank, worker.node + "+")
        if self.is_over:
            joined = {node for node, _, _ in journal.workers.values()}
            for worker in self.workers.values():
                if not worker.has_ended and worker.node not in joined:
                    worker.kill()
            return
        for rank in range(journal.worker_num):
            if rank not in self.workers:
                self.start_worker(rank, f"w{rank}")
        for index in range(journal.server_num):
            if index == len(self.servers):
                self.servers.append(SimulatedServer(index))
                self.start_server(self.servers[index])
            elif self.servers[index].paused and f"s{index}" in journal.retired:
                self.servers[index] = SimulatedServer(index, start=self.servers[index].start + 1)

    # --------------------------------------------------------------------------------------------------------- network

    def step(self, until: float) -> None:
        super().step(until)
        for worker in list(self.workers.values()):
            while not worker.has_ended and worker.predicate():
                worker.resume()

    def deliver(self, to: str, sender: bytes, message: ServerMessage, frames: tuple) -> None:
        if not to.startswith("worker"):
            if to != "controller":
                super().deliver(to, sender, message, frames)
            return
        worker = next((worker for worker in self.workers.values() if worker.identity.decode() == to), None)
        if worker is None or worker.has_ended:
            return
        if sender == b"scheduler":
            before = worker.link.view
            worker.link.take(message)
            if worker.link.view is not before:
                worker.client.do(worker.client.state.new_view(worker.link.view, self.now))
        else:
            worker.client.take(message, frames)

    def tick(self) -> None:
        super().tick()
        for rank, worker in list(self.workers.items()):
            if worker.has_ended:
                continue
            worker.client.do(worker.client.state.tick(self.now))
            if worker.link.welcome is None:
                self.send("scheduler", worker.identity, RegisterProcess("worker", worker.node, rank))
            else:
                view, incarnation = worker.link.view, worker.link.incarnation
                epoch = view.epoch if view is not None else 0
                beat = Heartbeat("worker", rank, incarnation, self.now, epoch, {}, {}, dict(worker.link.gauges))
                self.send("scheduler", worker.identity, beat)
        self.supervise()

    def do_scheduler(self, actions: list) -> None:
        for action in actions:
            if isinstance(action, events.End) and not self.journal.error:
                self.is_over = True
                peers = self.scheduler.workers.values()
                for sender in {peer.sender for peer in peers} - {b""}:
                    self.send(sender.decode(), b"scheduler", Stop(action.reason, done=True))
        super().do_scheduler([action for action in actions if not isinstance(action, events.End) or self.journal.error])

    def do_server(self, simulated: SimulatedServer, actions: list) -> None:
        for position, action in enumerate(actions):
            if isinstance(action, events.Halt) and action.done:
                super().do_server(simulated, actions[:position])
                # It ends, and what it had is gone.
                simulated.start, simulated.machine, simulated.paused = simulated.start + 1, None, True
                simulated.disk, simulated.images = [], {}
                return
        super().do_server(simulated, actions)

    # ------------------------------------------------------------------------------------------------------------- end

    def run_to_end(self, seconds: float = 600.0) -> None:
        """Until all workers have ended."""
        until = self.now + seconds
        while not all(
            worker.has_ended and not (worker.is_killed and not self.is_over) for worker in self.workers.values()
        ):
            assert not self.failures, (self.failures, self.log)
            assert self.now < until, f"the job stands still: {self.facts()}"
            self.step(until)
        assert not self.failures, (self.failures, self.log)
        assert self.is_over, self.facts()

    def facts(self) -> str:
        journal = self.journal
        clocks = {
            slot: (server.index, server.machine.states[slot].clock, sorted(lead.pending))
            for server in self.servers
            if server.machine is not None
            for slot, lead in server.machine.leads.items()
        }
        workers = {
            rank: (worker.has_ended, worker.is_killed, worker.link.dismissed) for rank, worker in self.workers.items()
        }
        return (
            f"{self.log} workers {workers} journal {journal.workers} members {journal.members} hold "
            f"{self.scheduler.members.hold} {self.scheduler.members.note} slots {clocks} {journal.slots} "
            f"draining {journal.draining} retired {journal.retired} over {self.is_over}"
        )

    def counts(self) -> np.ndarray:
        """How often each sample counted, by parameter."""

        def led() -> set[int]:
            return {slot for server in self.servers if server.machine is not None for slot in server.machine.leads}

        self.run_until(lambda: len(led()) == PARAMETERS)  # a server may have crashed in the last moment
        found: dict[int, np.ndarray] = {}
        for server in self.servers:
            if server.machine is None:
                continue
            for slot in server.machine.leads:
                for variable in server.machine.states[slot].variables.values():
                    found[slot] = variable.value
        assert len(found) == PARAMETERS, sorted(found)
        return np.concatenate([found[slot].reshape(-1, self.total) for slot in sorted(found)])
