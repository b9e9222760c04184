"""Streams and events: MindSpore's names for orders of work on a device.

JAX starts programs in the order of the script, and lets each of them wait for its data and for nothing else. So a `Stream` is a
name only: work of one can never overtake data that it needs from another, and waiting of one for another is always done. What
can be queried is whether work is done, and when it was.

Whether operators outside of compiled steps wait for their results: `runtime.launch_blocking`.

JAX hands an operator to the device and goes on. An error on the device then shows where the result is read first. With this
switch on, each operator waits, so the error names the line that called it; and a clock around the line measures it.
"""

from __future__ import annotations

import itertools
import time
import weakref
from types import TracebackType
from typing import Any

import jax

from sporax.base.errors import For
from sporax.base.lazy_members import dataclass


def _pending() -> list[Any]:
    """Arrays whose work is not done."""
    return [array for array in jax.live_arrays() if not array.is_deleted() and not array.is_ready()]


class Stream:
    """An order of work on the first local device.

    Args:
        priority: as in MindSpore; JAX has no priorities, so only 0 is taken.

    Attributes:
        id: number of the stream; 0 is the default one.

    Raises:
        SporaxTypeError: `priority` is not an int.
        SporaxRuntimeError: another priority.
    """

    _numbers = itertools.count()

    def __init__(self, priority: int = 0) -> None:
        For("Stream").typed("priority", priority, "an int", int, takes_bool=False)
        For("Stream").refuse_state(priority, "'priority' must be 0: JAX has no others", priority)
        self.id = next(self._numbers)

    def __repr__(self) -> str:
        return f"Stream(device_name={self.device_name}, device_id:{self.device_id}, stream id:{self.id})"

    @property
    def device_name(self) -> str:
        """``"CPU"``, ``"GPU"`` or ``"TPU"``."""
        return str(jax.local_devices()[0].platform).upper()

    @property
    def device_id(self) -> int:
        """Number of the device in this process."""
        return 0

    def synchronize(self) -> None:
        """Wait until everything that was started is done, in this stream and others: JAX does not distinguish them."""
        jax.block_until_ready(jax.live_arrays())

    def query(self) -> bool:
        """Whether everything that was started is done."""
        return not _pending()

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one by default."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work come after an event: it does, as far as it needs the data."""
        _expect("wait_event", "event", event, Event)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work come after that of another stream: it does, as far as it needs the data."""
        _expect("wait_stream", "stream", stream, Stream)


class Event:
    """A place in the work of a device.

    Args:
        enable_timing: note the time when work up to there is done; `record` waits for it then.
        blocking: as in MindSpore; waiting here always blocks the thread that waits.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        for name, value in (("enable_timing", enable_timing), ("blocking", blocking)):
            _expect("Event", name, value, bool)
        self._is_timed = enable_timing
        self._blocking = blocking
        self._done_at: float | None = None
        self._waiting: list[weakref.ref[Any]] | None = None

    def __repr__(self) -> str:
        return (
            f"Event(enable_timing={int(self._is_timed)}, blocking:{int(self._blocking)}, "
            f"is_created:{int(self._waiting is not None)})"
        )

    def record(self, stream: Stream | None = None) -> None:
        """Put the event behind everything that was started.

        Args:
            stream: must be a stream; JAX does not distinguish them.
        """
        if stream is not None:
            _expect("record", "stream", stream, Stream)
        if self._is_timed:
            jax.block_until_ready(jax.live_arrays())
            self._done_at = time.perf_counter()
        # Weakly: an event must not keep memory.
        self._waiting = list(map(weakref.ref, _pending()))

    def _left(self) -> list[Any]:
        arrays = [reference() for reference in self._waiting or ()]
        return [array for array in arrays if array is not None and not array.is_deleted() and not array.is_ready()]

    def query(self) -> bool:
        """Whether the work before the event is done; True before `record`."""
        return not self._left()

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        jax.block_until_ready(self._left())

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work come after the event: it does, as far as it needs the data."""
        if stream is not None:
            _expect("wait", "stream", stream, Stream)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to a later one.

        Raises:
            SporaxTypeError: not an event.
            SporaxRuntimeError: one of both was not made with `enable_timing`, or not recorded.
        """
        _expect("elapsed_time", "end_event", end_event, Event)
        if self._done_at is None or end_event._done_at is None:
            raise For("elapsed_time").state_error("both events must be made with 'enable_timing' True and be recorded")
        return (end_event._done_at - self._done_at) * 1000


def _expect(where: str, name: str, value: Any, kind: type) -> None:
    For(where).refuse_type(not isinstance(value, kind), f"'{name}' must be {kind.__name__}", type(value).__name__)


class _Streams:
    """The streams of this process.

    Attributes:
        default, communication: the ones that are always there.
        current: the one that is in force.
    """

    def __init__(self) -> None:
        self.default = Stream()
        self.communication = Stream()
        self.current = self.default


_STREAMS = _Streams()


def default_stream() -> Stream:
    """The stream that is in force when no other was chosen."""
    return _STREAMS.default


def communication_stream() -> Stream:
    """The stream of exchanges between ranks."""
    return _STREAMS.communication


def current_stream() -> Stream:
    """The stream that is in force."""
    return _STREAMS.current


def set_cur_stream(stream: Stream | None) -> None:
    """Put a stream in force; None changes nothing.

    Raises:
        SporaxTypeError: not a stream.
    """
    if stream is not None:
        _expect("set_cur_stream", "stream", stream, Stream)
        _STREAMS.current = stream


class StreamCtx:
    """Context in which a stream is in force; None changes nothing.

    Example:
        >>> with StreamCtx(Stream()):
        ...     output = net(x)
    """

    def __init__(self, ctx_stream: Stream | None) -> None:
        if ctx_stream is not None:
            _expect("StreamCtx", "ctx_stream", ctx_stream, Stream)
        self._stream = ctx_stream
        self._before: list[Stream] = []

    def __enter__(self) -> None:
        self._before.append(current_stream())
        set_cur_stream(self._stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_cur_stream(self._before.pop())


@dataclass(slots=True)
class _Switch:
    on: bool = False


_SWITCH = _Switch()


def is_on() -> bool:
    """Whether operators wait."""
    return _SWITCH.on


def turn(on: bool) -> None:
    """Let operators wait for their results from now on, or not."""
    _SWITCH.on = on


def launch_blocking() -> None:
    """Let each operator outside of compiled steps wait for its result; as ``set_context(pynative_synchronize=True)``."""
    turn(True)
