"""A process's side of the cluster: register with the scheduler, wait for a rank, leave when done.

`join` is what the runtime calls before it starts JAX's own distributed service::

    environment = RankEnvironment.from_environ(os.environ)
    if environment.role is Role.SCHEDULER:
        serve_cluster(environment)
        sys.exit()
    membership = join(environment)
    place = membership.environment
    jax.distributed.initialize(place.coordinator_address, place.size, place.rank)
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from msgspec import structs

from sporax.base.errors import SporaxRuntimeError
from sporax.cluster import messages, ports, token
from sporax.cluster.environment import ProcessRole, RankEnvironment, join_address

_RETRY_SECONDS = 0.2
_CONNECT_SECONDS = 10.0
_GRACE_SECONDS = 10.0  # the scheduler keeps the time; its word that time is up needs a moment to arrive


@dataclass
class Membership:
    """A place in a cluster, kept for as long as the process takes part.

    Attributes:
        environment: the completed place: rank, local rank and coordinator address are known.
        awaited_by: ranks that wait, if all of other machines do and this one does not.
    """

    environment: RankEnvironment
    _stream: socket.socket | None = None
    _held_port: socket.socket | None = None
    _process: int = field(default_factory=os.getpid)
    awaited_by: tuple[int, ...] = ()

    def leave(self, failure: str | None = None, accused: int | None = None, problem: str = "") -> None:
        """Notify the scheduler that this process is done; safe to call twice. Happens by itself when Python ends.

        Args:
            failure: what went wrong, in words that follow the name of this member; None: an exception, if there was one.
            accused: rank that is the cause, where it is another one.
            problem: what that rank did, after its name.
        """
        # Taken first: `leave` may run in two threads, and only one may send.
        stream, self._stream = self._stream, None
        if stream is None or self._process != os.getpid():  # a forked child is not the member
            return
        # Python notes an exception that is not caught in `sys.last_type`.
        if failure is None and getattr(sys, "last_type", None):
            failure = "ended with an exception"
        with suppress(OSError):  # the scheduler may be gone, then no one is left to notify
            text = None if failure is None else messages.shortened(failure)
            _send(stream, messages.Leave(text, accused, problem))
            stream.shutdown(socket.SHUT_RDWR)  # wakes a thread that listens; what was sent still arrives
        stream.close()
        if self._held_port is not None:
            self._held_port.close()
        # Without this the exit handler would keep the membership alive.
        atexit.unregister(self.leave)

    def say_waits(self, waits: bool) -> None:
        """Let the other machines know that this process waits for others, or that it goes on."""
        with suppress(OSError):  # whoever listens will notice that the scheduler is gone
            if self._stream is not None:
                _send(self._stream, messages.Wait(waits))

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Call `on_lost(reason)` in a background thread if another member, or the scheduler, is lost."""
        stream = self._stream
        if stream is None:
            return

        def listen() -> None:
            # Notices about waiting ranks may come at any time before the end.
            while isinstance(message := _receive(stream, self.environment.scheduler_address), messages.Awaited):
                self.awaited_by = message.ranks
            # This process has left by itself, or all have ended well.
            if self._stream is None or (isinstance(message, messages.Ended) and message.well):
                return
            on_lost(_reason(message))

        threading.Thread(target=listen, name="sporax-membership", daemon=True).start()


def join(environment: RankEnvironment) -> Membership:
    """Take this process's place in its job; waits until all are there.

    Args:
        environment: a worker's or server's; one that needs no scheduler is complete as it is.

    Raises:
        SporaxRuntimeError: the scheduler cannot be reached in time, or refuses this process: a wrong count, a rank
            taken twice, or processes that never came (named).
    """
    if environment.is_joined:
        return Membership(environment)
    # On every way out before the welcome, socket and port are closed.
    with ExitStack() as on_refusal:
        deadline = time.monotonic() + environment.timeout_seconds
        stream = on_refusal.enter_context(_connect(environment, deadline))
        # The address of the interface that reaches the scheduler is one that other ranks reach as well.
        host = environment.worker_host or str(stream.getsockname()[0])
        may_be_first = environment.role is ProcessRole.WORKER and environment.rank in (0, None)
        # Rank 0 must offer a port; without numbers any worker may become rank 0.
        held_port = on_refusal.enter_context(ports.reserve_port(host)) if may_be_first else None
        _say_hello(stream, token.token_from_environ(os.environ))
        _send(stream, _registration(environment, host, held_port))
        answer = _await_answer(stream, deadline)
        # Success: from here on both belong to the membership.
        on_refusal.pop_all()
    if held_port is not None and answer.rank != 0:
        held_port.close()
    place = replace(
        environment,
        rank=answer.rank,
        local_rank=answer.local_rank,
        local_size=answer.local_size,
        coordinator_address=answer.coordinator,
    )
    membership = Membership(place, stream, held_port)
    atexit.register(membership.leave)
    return membership


def _await_answer(stream: socket.socket, deadline: float) -> messages.Welcomed:
    """Wait for the scheduler's welcome; anything else is an error."""
    stream.settimeout(max(deadline - time.monotonic(), 0) + _GRACE_SECONDS)
    answer = _receive(stream)
    if not isinstance(answer, messages.Welcomed):
        raise SporaxRuntimeError(f"For 'init', the scheduler must let this process join, but: {_reason(answer)}.")
    # From now on a thread may wait for hours.
    stream.settimeout(None)
    return answer


def watch_as_launcher(
    address: tuple[str, int], secret: str, names: tuple[str, ...] = (), restart: int = 0
) -> socket.socket | None:
    """Connect to another node's scheduler to learn how the job fares, and the ranks of the processes `names`; None when it cannot
    be reached now, or is the one of another start of the job than `restart`.
    """
    with ExitStack() as on_failure:
        try:
            stream = on_failure.enter_context(socket.create_connection(address, timeout=1.0))
            ports.notice_silence(stream)
            if _say_hello(stream, secret) != restart:
                return None
            _send(stream, messages.Watch(socket.gethostname(), names))
        except (OSError, SporaxRuntimeError):
            return None
        stream.settimeout(None)
        on_failure.pop_all()
        return stream


def leave_as_launcher(stream: socket.socket, word: messages.Leave) -> None:
    """Notify the scheduler that this node's ranks have ended, and how."""
    failure = None if word.failure is None else messages.shortened(word.failure)
    with suppress(OSError):  # the scheduler may have ended before us
        _send(stream, structs.replace(word, failure=failure))
    stream.close()


def receive_as_launcher(stream: socket.socket, address: tuple[str, int]) -> tuple[int, ...] | messages.Ended:
    """Read the scheduler's word on the job: the ranks that were requested, or how it ended."""
    message = _receive(stream, address)
    if isinstance(message, messages.Numbered):
        return message.ranks
    if isinstance(message, messages.Refused):
        where = join_address(*address)
        return messages.Ended(well=False, reason=f"the scheduler at {where} refuses this launcher: {message.reason}")
    return message if isinstance(message, messages.Ended) else messages.Ended(well=False, reason=_reason(message))


def _connect(environment: RankEnvironment, deadline: float) -> socket.socket:
    """Connect to the scheduler, which may not have started yet."""
    assert environment.scheduler_address is not None
    while True:
        try:
            # A name may have several addresses, of which the first may be one that drops what is sent to it.
            stream = socket.create_connection(environment.scheduler_address, timeout=_CONNECT_SECONDS)
            stream.settimeout(environment.timeout_seconds)
            ports.notice_silence(stream)
            return stream
        except OSError as error:
            if time.monotonic() + _RETRY_SECONDS < deadline:
                time.sleep(_RETRY_SECONDS)
                continue
            host, port = environment.scheduler_address
            raise SporaxRuntimeError(
                f"For 'init', the scheduler must be reachable at {host}:{port} within "
                f"{environment.timeout_seconds:g} s, but got: {error}. Is the process with MS_ROLE=MS_SCHED running?"
            ) from error


def _registration(environment: RankEnvironment, host: str, held_port: socket.socket | None) -> messages.Register:
    """What a member says of itself."""
    return messages.Register(
        role=environment.role,
        node_id=environment.node_id or f"{socket.gethostname()}-{os.getpid()}",
        rank=environment.rank,
        size=environment.size,
        host=host,
        port=held_port.getsockname()[1] if held_port is not None else 0,
    )


def _say_hello(stream: socket.socket, secret: str) -> int:
    """Answer the scheduler's challenge; gives how often the job was started again.

    Raises:
        SporaxRuntimeError: it is not a scheduler that is there.
    """
    challenge = _receive(stream)
    if not isinstance(challenge, messages.Challenge):
        raise SporaxRuntimeError(f"For 'init', the scheduler must let this process join, but: {_reason(challenge)}.")
    _send(stream, messages.Hello(token.proof(secret, challenge.nonce)))
    return challenge.restart


def _send(stream: socket.socket, message: messages.ToScheduler) -> None:
    """Write one message."""
    stream.sendall(messages.encode(message))


def _receive(stream: socket.socket, address: tuple[str, int] | None = None) -> messages.FromScheduler | str:
    """Read one message, byte by byte so that nothing of the next is taken; the reason why there is none.

    Args:
        stream: connected to the scheduler.
        address: the scheduler's, for words; a connection that is broken already has forgotten it.
    """
    # A buffered reader could take the beginning of the next message, which another thread reads.
    line = bytearray()
    scheduler = f"the scheduler at {join_address(*address)}" if address else "the scheduler"
    try:
        while not line.endswith(b"\n"):
            byte = stream.recv(1)
            if not byte:
                return f"{scheduler} is gone"
            line += byte
            if len(line) > messages.MAX_BYTES:
                return "what it says is no message (it is too long)"
        return messages.decode(messages.FROM_SCHEDULER, bytes(line))
    except messages.MessageError as error:
        return f"what it says is no message ({error})"
    except OSError as error:
        is_lost = error.errno in ports.UNREACHABLE
        return f"{scheduler} {ports.UNANSWERED}" if is_lost else f"{scheduler} cannot be reached ({error})"


def _reason(message: messages.FromScheduler | str) -> str:
    """Why there is nothing more to hope for, from the last message that was received."""
    match message:
        case str():
            return message
        case messages.Refused(reason) | messages.Ended(_, reason):
            return reason
    return f"it has said '{type(message).__name__}' out of turn"
