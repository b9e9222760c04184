"""Streams and events on top of JAX's order of work."""

import gc
import weakref

import jax
import jax.numpy as jnp
import pytest

from sporax.mindspore import runtime
from sporax.mindspore.runtime import _streams


def test_a_stream_is_the_current_one_inside_of_its_context():
    stream = runtime.Stream()
    with runtime.StreamCtx(stream):
        assert runtime.current_stream() is stream
        with runtime.StreamCtx(None):
            assert runtime.current_stream() is stream
    assert runtime.current_stream() is runtime.default_stream()
    runtime.set_cur_stream(stream)
    assert runtime.current_stream() is stream
    runtime.set_cur_stream(runtime.default_stream())


def test_work_is_done_after_synchronizing():
    value = jax.jit(lambda x: x @ x)(jnp.ones((300, 300)))
    stream = runtime.Stream()
    event = stream.record_event()
    stream.synchronize()
    assert stream.query()
    assert event.query()
    assert value.is_ready()
    stream.wait_event(event)
    stream.wait_stream(runtime.communication_stream())


def test_events_wait_for_what_was_started(monkeypatch):
    class Array:
        ready = False

        def is_deleted(self):
            return False

        def is_ready(self):
            return self.ready

    array = Array()
    monkeypatch.setattr(_streams, "_pending", lambda: [array])
    event = runtime.Event()
    assert event.query()
    event.record()
    assert not event.query()
    array.ready = True
    assert event.query()


def test_events_keep_no_memory():
    value = jnp.ones(5)
    event = runtime.Event()
    event.record()
    gone = weakref.ref(value)
    del value
    gc.collect()
    assert gone() is None


def test_time_between_events():
    first, second = runtime.Event(enable_timing=True), runtime.Event(enable_timing=True)
    first.record()
    jax.jit(lambda x: x @ x)(jnp.ones((300, 300)))
    second.record(runtime.current_stream())
    assert 0 < first.elapsed_time(second) < 60_000
    with pytest.raises(RuntimeError, match="'enable_timing' True"):
        first.elapsed_time(runtime.Event())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: runtime.Stream(1), RuntimeError),
        (lambda: runtime.Stream("a"), TypeError),
        (lambda: runtime.Event(1), TypeError),
        (lambda: runtime.StreamCtx(0), TypeError),
        (lambda: runtime.set_cur_stream(0), TypeError),
        (lambda: runtime.Event().record(0), TypeError),
    ],
)
def test_arguments_are_checked(call, error):
    with pytest.raises(error):
        call()
