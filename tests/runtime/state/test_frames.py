"""Frames: where reads look and where writes go."""

import jax.numpy as jnp
import pytest

from sporax.runtime.state import frames


class Variable:
    def __init__(self, value):
        self.raw = value
        self.name = "v"


def test_outside_all_frames_a_write_is_for_good():
    variable = Variable(1)
    frames.write(variable, 2)
    assert frames.read(variable) == 2
    assert variable.raw == 2


def test_a_frame_answers_and_keeps_writes_to_itself():
    variable = Variable(1)
    with frames.Frame({variable: 5}) as frame:
        assert frames.read(variable) == 5
        frames.write(variable, 6)
        assert frames.read(variable) == 6
    assert variable.raw == 1
    assert frame.updates() == {variable: 6}


def test_reads_go_outwards_and_writes_stay_inside():
    outer_only, both = Variable(1), Variable(2)
    with frames.Frame({outer_only: 10, both: 20}):
        with frames.Frame({both: 200}):
            assert frames.read(outer_only) == 10
            assert frames.read(both) == 200
            frames.write(outer_only, 11)
        assert frames.read(outer_only) == 10


def test_isolate_returns_what_was_written_and_commit_writes_it():
    variable = Variable(1)
    result, updates = frames.isolate(lambda: frames.write(variable, frames.read(variable) + 1))
    assert result is None
    assert variable.raw == 1
    frames.commit(updates)
    assert variable.raw == 2


def test_an_error_inside_leaves_the_frame():
    with pytest.raises(ValueError, match="mine"), frames.Frame():
        raise ValueError("mine")
    assert frames.current_frame() is None


def test_guards_reach_the_outermost_frame():
    class Guard:
        def fingerprint(self):
            return {}

        def describe(self):
            return "g"

    guard = Guard()
    with frames.Frame() as outer, frames.Frame():
        frames.depend_on(guard)
    assert list(outer.guards.values()) == [guard]


def test_compiling_is_known_through_inner_frames():
    assert not frames.compiling()
    with frames.Frame():
        assert not frames.compiling()
    with frames.Frame(compiled=True), frames.Frame():
        assert frames.compiling()


def test_discovery_notes_each_variable_once_and_never_hands_out_the_value_itself():
    import jax

    variable = Variable(jnp.float32(3.0))
    frame = frames.DiscoveryFrame()

    def trace():
        with frame:
            first, second = frames.read(variable), frames.read(variable)
            assert isinstance(first, jax.core.Tracer)
            return first + second

    jax.eval_shape(trace)
    assert list(frame.found) == [variable]


def test_touch_raises_the_version():
    before = frames.version()
    frames.touch()
    assert frames.version() == before + 1
