"""Frames: where reads look and where writes go."""

import jax.numpy as jnp
import pytest

from sporax.runtime import state


class Variable:
    def __init__(self, value):
        self.raw = value
        self.name = "v"


def test_outside_all_frames_a_write_is_for_good():
    variable = Variable(1)
    state.write(variable, 2)
    assert state.read(variable) == 2
    assert variable.raw == 2


def test_a_frame_answers_and_keeps_writes_to_itself():
    variable = Variable(1)
    with state.Frame({variable: 5}) as frame:
        assert state.read(variable) == 5
        state.write(variable, 6)
        assert state.read(variable) == 6
    assert variable.raw == 1
    assert frame.updates() == {variable: 6}


def test_reads_go_outwards_and_writes_stay_inside():
    outer_only, both = Variable(1), Variable(2)
    with state.Frame({outer_only: 10, both: 20}):
        with state.Frame({both: 200}):
            assert state.read(outer_only) == 10
            assert state.read(both) == 200
            state.write(outer_only, 11)
        assert state.read(outer_only) == 10


def test_isolate_returns_what_was_written_and_commit_writes_it():
    variable = Variable(1)
    result, updates = state.isolate(lambda: state.write(variable, state.read(variable) + 1))
    assert result is None
    assert variable.raw == 1
    state.commit(updates)
    assert variable.raw == 2


def test_an_error_inside_leaves_the_frame():
    with pytest.raises(ValueError, match="mine"), state.Frame():
        raise ValueError("mine")
    assert state.current_frame() is None


def test_guards_reach_the_outermost_frame():
    class Guard:
        def fingerprint(self):
            return {}

        def describe(self):
            return "g"

    guard = Guard()
    with state.Frame() as outer, state.Frame():
        state.depend_on(guard)
    assert list(outer.guards.values()) == [guard]


def test_compiling_is_known_through_inner_frames():
    assert not state.compiling()
    with state.Frame():
        assert not state.compiling()
    with state.Frame(compiled=True), state.Frame():
        assert state.compiling()


def test_discovery_notes_each_variable_once_and_never_hands_out_the_value_itself():
    import jax

    variable = Variable(jnp.float32(3.0))
    frame = state.DiscoveryFrame()

    def trace():
        with frame:
            first, second = state.read(variable), state.read(variable)
            assert isinstance(first, jax.core.Tracer)
            return first + second

    jax.eval_shape(trace)
    assert list(frame.found) == [variable]


def test_touch_raises_the_version():
    before = state.version()
    state.touch()
    assert state.version() == before + 1
