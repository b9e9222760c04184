"""Connections that nothing encrypts: whole messages over Unix sockets, or over TCP, read and written by the caller's own thread.

Problem: through a messaging library every message changes threads four times (caller, its I/O thread, the peer's, the peer's
caller, and back), which for a push of 64 KiB costs several times the copying of its bytes.
Method: a non-blocking socket per connection. A message is written by one system call; what the kernel does not take at once waits
in a queue. A reader looks for a moment before it sleeps, because to be woken takes longer than most answers do, as long as that
finds something (`SpinPolicy`). The header of an incoming message (`wire`) has its size, so its arrays are received into their
own memory. Where messages have the sizes of the one before, as the pushes of a worker have, one system call brings all of it.
Between processes of one machine arrays that are not too large go through memory that both share (`shared_area`).
A connection that ends or carries anything but messages is closed; requests that it had are sent again by who made them.
Only this user's processes can enter the directory of a Unix socket (`transport.LocalSocket`). TCP serves jobs on several machines
whose user has said that they need no keys (MS_PS_INSECURE=1); the others have `transport` for that.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from sporax.cluster import ports
from sporax.cluster.environment import join_address
from sporax.ps.protocol import wire
from sporax.ps.protocol.messages import PeerHello, Push, ServerMessage
from sporax.ps.sockets import polling
from sporax.ps.sockets.polling import READ, WRITE, SpinPolicy
from sporax.ps.sockets.shared_area import SharedArea

_SCRATCH_BYTES = 4 << 10  # headers and structs, and the beginning of arrays, which is copied from there
# One slot's message leaves by few system calls, and the peer reads while the rest is written.
_SEND_BUFFER_BYTES = 1 << 20
_MOST_EXPECTED_BYTES = 1 << 20  # larger arrays come by many system calls anyway
_MOST_PARTS = 512  # of one system call; the operating system's limit is 1024
_MOST_MESSAGES = 16  # of one connection before the others get a turn
_MOST_EVENTS = 64  # of one look; the others come first in the next
_BACKLOG = 512
_WAIT_MILLISECONDS = 20  # no longer than this does a read wait
_NO_BODY = memoryview(b"")
_HEADER_BYTES = wire.HEADER.size
_AT_ONCE = int(socket.MSG_DONTWAIT)  # a number: an enum's member takes longer to look up


def _memory(num_bytes: int) -> memoryview:
    try:
        return np.empty(num_bytes, np.uint8).data
    except MemoryError as error:
        raise wire.WireError(
            f"For 'sporax.ps', a message must fit into memory, but it has {num_bytes} bytes."
        ) from error


Incoming = tuple[ServerMessage, tuple[wire.Frame, ...]]
Place = Callable[[ServerMessage, int], memoryview | None]


class Stream:
    """One connection.

    Args:
        connection: a connected socket; it is closed with this object.
        place: gives memory for the arrays of a message, where some is waiting for them.
        is_called: whether another process has connected, whose first message may bring a `SharedArea`.
    """

    def __init__(self, connection: socket.socket, place: Place | None = None, *, is_called: bool = False) -> None:
        # Timeouts of the kernel cost no system call to set before each read.
        connection.setblocking(True)  # each call says whether it waits, and the kernel for how long at most
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, _WAIT_MILLISECONDS * 1000))
        if connection.family == socket.AF_UNIX:
            # Set before the first message, since it bounds what one call takes; TCP's grows by itself.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ports.notice_silence(connection)
        self._until_readable: Callable[[float], object] | None = None
        if connection.family == socket.AF_UNIX:
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            self._until_readable = poll.poll
        self._socket = connection
        self._place = place
        self.identity = b""
        self.is_open = True
        # Bytes and not a view of them: a struct is decoded in two thirds of the time.
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._start = self._stop = 0  # what of the scratch memory has not been taken; both are 0 when all has
        self._message: ServerMessage | None = None
        self._body = _NO_BODY
        self._filled = 0
        self._unsent: deque[memoryview] = deque()
        # Memory for header and struct, and bytes of the arrays, of a message with the sizes of the last one that had arrays.
        self._expected: tuple[bytearray, int] | None = None
        self._spinning = SpinPolicy()
        self.haste = SpinPolicy()
        """Whether to try to read the next message, after one was taken, before the kernel says that it is there."""
        self._area: SharedArea | None = None
        self._may_get_area = is_called and connection.family == socket.AF_UNIX

    def fileno(self) -> int:
        """Of the socket."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether something waits until the kernel takes it."""
        return bool(self._unsent)

    def send(self, message: ServerMessage, frames: Sequence[wire.Frame] = ()) -> bool:
        """Send a message, as far as that is possible at once; False where a part waits: the frames must not change until then."""
        if frames and self._area is not None and (put := self._area.put(frames)) is not None:
            head = wire.head_apart(message, *put)
            frames, size = (), len(head)
        else:
            head, size = wire.head_and_size(message, frames)
        done = 0
        if not self._unsent:
            done = self._write((head, *frames))
            if done == size:
                return True
        # Behind what waits already; the order of messages stays.
        self._unsent.extend(map(memoryview, (head, *frames)))
        self._drop_sent(done)
        return False

    def send_first(self, message: ServerMessage) -> None:
        """Send the first message of a connection that this process has made, with an area to share if possible."""
        made = SharedArea.make() if self._socket.family == socket.AF_UNIX else None
        if made is None:
            self.send(message)
            return
        area, descriptor = made
        try:
            # So short that the kernel takes all of it or nothing.
            socket.send_fds(self._socket, [wire.head_and_size(message, ())[0]], [descriptor], socket.MSG_DONTWAIT)
            self._area = area
        except OSError:
            self.send(message)
        finally:
            os.close(descriptor)

    def flush(self) -> None:
        """Send what waits, as far as that is possible now."""
        while self._unsent and self.is_open:
            parts = [self._unsent[position] for position in range(min(len(self._unsent), _MOST_PARTS))]
            done = self._write(parts)
            if not done:
                return
            self._drop_sent(done)

    @property
    def may_have_more(self) -> bool:
        """Whether bytes of another message are here already; else the kernel says when there are."""
        return self._stop > 0

    def receive(self, *, wait: bool = False) -> Incoming | None:
        """The next message, None when it is not there yet.

        Args:
            wait: for its first byte, for a moment; what begins to be read is always waited for a moment.

        Raises:
            WireError: the bytes are no messages. The connection has ended then.
        """
        try:
            while self.is_open:
                # Several small messages may have come with one read.
                if (message := self._message) is None:
                    if self._stop and (incoming := self._begin()) is not None:
                        return incoming
                    if self._message is not None:
                        continue
                    count = self._read_after_looks() if wait else self._read_head()
                elif self._filled == len(body := self._body):
                    self._message, self._body = None, _NO_BODY
                    return message, (body,)
                else:
                    # The rest is on its way: to wait for it here is faster than to come back for each piece of it.
                    count = self._socket.recv_into(self._body[self._filled :], 0, socket.MSG_WAITALL)
                    self._filled += count
                # Zero bytes: the other end has closed the connection.
                if not count:
                    self.end()
        except BlockingIOError:
            pass
        except OSError:
            self.end()
        except wire.WireError:
            self.end()
            raise
        return None

    def end(self) -> None:
        """End the connection; what was not sent is lost."""
        self.is_open = False
        self._unsent.clear()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self.end()
        self._socket.close()
        self._area = None

    def _begin(self) -> Incoming | None:
        """Begin the next message if its header and struct are here; gives it where its arrays are here, too."""
        start, stop, scratch, needed = self._start, self._stop, self._scratch, _HEADER_BYTES
        if stop - start >= needed:
            place, area = 0, self._area if scratch[start + wire.APART] else None
            if area is None:
                struct_bytes, checksum, body_bytes = wire.header_at(scratch, start)
            else:
                struct_bytes, checksum, body_bytes, place = wire.apart_header_at(scratch, start)
            needed += struct_bytes
            end = start + needed
            if end <= stop:
                message = wire.decode_struct(scratch[start + _HEADER_BYTES : end], checksum)
                if not body_bytes:
                    self._pass_over(end)
                    return message, ()
                if area is None:
                    self._begin_arrays(message, needed, body_bytes, end)
                    return None
                # Gradients are used once and soon; other arrays may stay for long.
                if type(message) is Push:
                    body = area.lend(place, body_bytes)
                else:
                    body = self._memory_for(message, body_bytes)
                    area.take(place, body)
                self._pass_over(end)
                return message, (body,)
        # A struct may be larger than the buffer.
        if start + needed > len(scratch):
            self._start, self._stop = 0, stop - start
            self._scratch = scratch[start:stop].ljust(max(needed, _SCRATCH_BYTES), b"\0")
        return None

    def _pass_over(self, end: int) -> None:
        """Note that the scratch memory was taken up to a byte."""
        self._start = end
        # Empty: the next read has all of it again.
        if end == self._stop:
            self._start = self._stop = 0
            if len(self._scratch) > _SCRATCH_BYTES:
                self._scratch = bytearray(_SCRATCH_BYTES)

    def _begin_arrays(self, message: ServerMessage, head_bytes: int, body_bytes: int, end: int) -> None:
        """Take what is here of the arrays of a message, which come behind its struct."""
        if self._place is None and head_bytes <= _SCRATCH_BYTES and body_bytes <= _MOST_EXPECTED_BYTES:
            self._expected = bytearray(head_bytes), body_bytes
        body = self._memory_for(message, body_bytes)
        count = min(body_bytes, self._stop - end)
        body[:count] = self._scratch[end : end + count]
        self._message, self._body, self._filled = message, body, count
        self._pass_over(end + count)

    def _memory_for(self, message: ServerMessage, body_bytes: int) -> memoryview:
        """Memory for the arrays of a message: the caller's where it waits for these values."""
        buffer = None if self._place is None else self._place(message, body_bytes)
        return _memory(body_bytes) if buffer is None else buffer

    def _read_head(self) -> int:
        """Read the beginning of a message without waiting; gives the number of bytes."""
        if self._expected is not None and not self._stop:
            return self._read_as_expected(*self._expected)
        if self._may_get_area:
            return self._read_first()
        count = self._socket.recv_into(self._free() if self._stop else self._scratch, 0, _AT_ONCE)
        self._stop += count
        return count

    def _read_first(self) -> int:
        """Read the beginning of the first message, and the area that comes with it."""
        data, descriptors, _, _ = socket.recv_fds(
            self._socket, _SCRATCH_BYTES, 1, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        )
        self._may_get_area = False
        for descriptor in descriptors:
            self._area = SharedArea.of(descriptor)
        self._scratch[: len(data)] = data
        self._stop = len(data)
        return len(data)

    def _free(self) -> memoryview:
        """The scratch memory behind what has been read and not yet taken."""
        return memoryview(self._scratch)[self._stop :]

    def _read_as_expected(self, head: bytearray, body_bytes: int) -> int:
        """Read a message that probably has the sizes of the one before: its arrays go into memory of their own at once."""
        body, head_bytes = _memory(body_bytes), len(head)
        count: int = self._socket.recvmsg_into((head, body), 0, socket.MSG_DONTWAIT)[0]
        if count >= head_bytes and not head[wire.APART]:
            struct_bytes, checksum, num_bytes = wire.header_at(head)
            if struct_bytes == head_bytes - _HEADER_BYTES and num_bytes == body_bytes:
                self._message = wire.decode_struct(head[_HEADER_BYTES:], checksum)
                self._body, self._filled = body, count - head_bytes
                return count
        # Another kind of message: its bytes go on where they would have come.
        self._expected = None
        self._scratch = bytearray().join((head, body[: max(count - head_bytes, 0)])).ljust(_SCRATCH_BYTES, b"\0")
        self._stop = count
        return count

    def _read_after_looks(self) -> int:
        """Read the beginning of a message, for which this waits a moment; gives the number of bytes."""
        spinning, count = self._spinning, None
        # A call less where it does not pay to look.
        if spinning.waits_without:
            spinning.waits_without -= 1
        else:
            count = spinning.look(self._read_what_is_here)
        if count is None:
            # A read that waits on a Unix socket is woken, for nothing, when the other end takes what was sent; a poll is not.
            if self._until_readable is not None:
                self._until_readable(_WAIT_MILLISECONDS)
                return self._read_head()
            count = self._socket.recv_into(self._free() if self._stop else self._scratch)
            self._stop += count
        return count

    def _read_what_is_here(self) -> int | None:
        try:
            return self._read_head()
        except BlockingIOError:
            return None

    def _write(self, parts: Sequence[wire.Frame]) -> int:
        """Write once; gives the number of bytes that were taken."""
        if not self.is_open:
            return 0
        try:
            if len(parts) == 1:
                return self._socket.send(parts[0], _AT_ONCE)
            return self._socket.sendmsg(parts[:_MOST_PARTS], (), _AT_ONCE)
        except BlockingIOError:
            return 0
        except OSError:
            self.end()
            return 0

    def _drop_sent(self, count: int) -> None:
        while self._unsent and count >= len(self._unsent[0]):
            count -= len(self._unsent.popleft())
        if count:
            self._unsent[0] = self._unsent[0][count:]


class Streams:
    """The connections of one process, those it made and those that came in.

    Args:
        path: where others of this machine connect to; "" for nowhere.
        place: of all connections, see `Stream`.
        host: address of this machine at which others connect to a free port; "" for nowhere.
    """

    def __init__(self, path: str = "", place: Place | None = None, host: str = "") -> None:
        self._place = place
        self._poll = polling.Poll()
        self._streams: dict[int, Stream] = {}
        self._senders: dict[bytes, Stream] = {}
        self.unsent: set[int] = set()
        """Descriptors of connections with a message that has not left completely."""
        # Descriptors whose next message has been read from the kernel already, which does not report it again.
        self._begun: set[int] = set()
        self._listeners: dict[int, socket.socket] = {}
        self.bad_messages = 0
        self.others_ready = False
        self._others: set[int] = set()
        self._spinning = SpinPolicy()
        self.address = ""
        """What listens for other machines, as ``host:port``."""
        if path:
            self._listen(socket.AF_UNIX, path)
        if host:
            family, address = ports.resolve_host(host)
            self.address = join_address(address, self._listen(family, (address, 0)).getsockname()[1])

    def fileno(self) -> int:
        """Readable when `receive` has something to do."""
        return self._poll.fileno()

    def watch(self, descriptor: int) -> None:
        """Let `receive` also wait for something else; `others_ready` says whether that came."""
        self._others.add(descriptor)
        self._poll.register(descriptor, READ)

    def connect(self, where: str, identity: bytes) -> Stream | None:
        """A connection to another process, at a path or at ``host:port``; None when it does not listen."""
        host, _, port = where.rpartition(":")
        family, address = (socket.AF_UNIX, where) if where.startswith("/") else ports.resolve_host(host)
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)  # a full backlog is an error, not a wait
        try:
            connection.connect(where if family == socket.AF_UNIX else (address, int(port)))
        except BlockingIOError:
            # Over TCP: messages wait in the queue until the other side has answered.
            if family == socket.AF_UNIX:
                connection.close()
                return None
        except OSError:
            connection.close()
            return None
        stream = self._add(connection)
        stream.send_first(PeerHello(identity))
        self.watch_unsent(stream)
        return stream

    def send(self, stream: Stream, message: ServerMessage, frames: Sequence[wire.Frame] = ()) -> bool:
        """Send to a connection; False when it has ended."""
        if not stream.send(message, frames):
            self.watch_unsent(stream)
        return stream.is_open

    def reply(self, identity: bytes, message: ServerMessage, frames: Sequence[wire.Frame] = ()) -> bool:
        """Send to the process of a name; False when it has no connection here."""
        stream = self._senders.get(identity)
        if stream is None:
            return False
        # As `send`, without a further call: most of what a server sends are such answers.
        if not stream.send(message, frames):
            self.watch_unsent(stream)
        return stream.is_open

    def receive(self, seconds: float = 0.0) -> Iterator[tuple[Stream, ServerMessage, tuple[wire.Frame, ...]]]:
        """Messages that are here, or come in so many seconds, with their connections."""
        self.others_ready = False
        for descriptor, events in self._ready(seconds):
            stream = self._streams.get(descriptor)
            if stream is None:
                self._take_other(descriptor)
                continue
            # Also where the connection has ended, which says neither.
            if events & ~READ:
                stream.flush()
                self.watch_unsent(stream)
                if events == WRITE:
                    continue
            if self._begun:
                self._begun.discard(descriptor)
            is_guess = False
            # Not more at once, so that one busy connection does not keep the others waiting.
            for _ in range(_MOST_MESSAGES):
                incoming = self._incoming(stream)
                if is_guess:
                    stream.haste.note(has_found=incoming is not None)
                if incoming is None:
                    break
                message, frames = incoming
                yield stream, message, frames
                # Who shares its core with this process has often sent the next message by now, as it was answered first.
                is_guess = not stream.may_have_more
                if is_guess and not stream.haste.pays():
                    break
            else:
                self._begun.add(descriptor)

    def _incoming(self, stream: Stream) -> Incoming | None:
        """The next message of a connection that is here, but for those that concern the connection itself."""
        try:
            incoming = stream.receive()
            # The first message names the sender, so that answers find their way.
            while incoming is not None and type(incoming[0]) is PeerHello:
                self._name(stream, incoming[0].identity)
                incoming = stream.receive()
        except wire.WireError:
            self.bad_messages += 1
            incoming = None
        if not stream.is_open:
            self._forget_ended()
        return incoming

    def _take_other(self, descriptor: int) -> None:
        """Note that something else has come, or take new connections; a connection may have ended meanwhile."""
        if descriptor in self._others:
            self.others_ready = True
        elif descriptor in self._listeners:
            self._accept(self._listeners[descriptor])

    def _ready(self, seconds: float) -> Sequence[tuple[int, int]]:
        """What can be read or written now, or in so many seconds: descriptors and events."""
        if self._begun:
            at_once = dict(self._poll.poll(0.0, _MOST_EVENTS))
            for descriptor in self._begun:
                at_once[descriptor] = at_once.get(descriptor, 0) | READ
            return list(at_once.items())
        if seconds and (ready := self._spinning.look(lambda: self._poll.poll(0.0, _MOST_EVENTS) or None)):
            return ready
        return self._poll.poll(seconds, _MOST_EVENTS)

    def receive_from(self, stream: Stream) -> Incoming | None:
        """The next message of one connection, waiting for it for a moment: one system call instead of two."""
        try:
            incoming = stream.receive(wait=True)
        except wire.WireError:
            self.bad_messages += 1
            incoming = None
        if not stream.is_open:
            self._forget_ended()
        return incoming

    def drop(self, stream: Stream) -> None:
        """Close a connection."""
        stream.end()
        self._forget_ended()

    def close(self, seconds: float = 0.0) -> None:
        """Close all connections; what waits to be sent gets some time to leave."""
        for listener in self._listeners.values():
            listener.close()
        for stream in list(self._streams.values()):
            # A connection that is broken must not stop the others from closing.
            if stream.has_unsent and seconds:
                with suppress(OSError, ValueError):
                    select.select([], [stream], [], seconds)
                    stream.flush()
            stream.close()
        self._streams.clear()
        self._senders.clear()
        self._poll.close()

    def _name(self, stream: Stream, identity: bytes) -> None:
        """Note who is at the other end; a later connection of a name takes the place of an earlier one."""
        earlier = self._senders.get(identity)
        # The process has started again, and its old connection is dead.
        if earlier is not None and earlier is not stream:
            self.drop(earlier)
        stream.identity = identity
        self._senders[identity] = stream

    def _listen(self, family: int, address: str | tuple[str, int]) -> socket.socket:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(_BACKLOG)
        # New connections come as events like all others.
        self._poll.register(listener, READ)
        self._listeners[listener.fileno()] = listener
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                self._add(listener.accept()[0], is_called=True)

    def _add(self, connection: socket.socket, *, is_called: bool = False) -> Stream:
        stream = Stream(connection, self._place, is_called=is_called)
        self._streams[stream.fileno()] = stream
        self._poll.register(connection, READ)
        return stream

    def watch_unsent(self, stream: Stream) -> None:
        """Let the kernel notify when more can be sent, as long as something waits."""
        if not stream.is_open:
            self._forget_ended()
            return
        descriptor = stream.fileno()
        if stream.has_unsent != (descriptor in self.unsent):
            self._poll.modify(descriptor, READ | (WRITE if stream.has_unsent else 0))
            (self.unsent.add if stream.has_unsent else self.unsent.discard)(descriptor)

    def _forget_ended(self) -> None:
        for descriptor, stream in list(self._streams.items()):
            if not stream.is_open:
                # First out of the poll, which must not watch a closed descriptor.
                self._poll.unregister(descriptor)
                stream.close()
                del self._streams[descriptor]
                self.unsent.discard(descriptor)
                self._begun.discard(descriptor)
                if self._senders.get(stream.identity) is stream:
                    del self._senders[stream.identity]
