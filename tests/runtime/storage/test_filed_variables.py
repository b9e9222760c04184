"""Parameters in files between steps: which ones go there, what a step takes for them, and reading and assigning them."""

import jax.numpy as jnp
import numpy as np
import pytest

from sporax.runtime.session import SESSION
from sporax.runtime.state import frames
from sporax.runtime.storage import block_files
from sporax.runtime.storage.block_files import (
    DiskSettings,
    Filed,
    above_tag,
    bring_to_files,
    files_of,
    files_tag,
    place_of,
)


class Variable:
    """A Parameter as small as can be, whose values may be in a file."""

    __slots__ = ("filed", "name", "raw", "requires_grad")

    def __init__(self, name, size):
        self.name, self.raw, self.filed, self.requires_grad = name, jnp.arange(size, dtype=jnp.float32), None, True

    def __getattr__(self, name):
        if name == "raw":
            return self.filed.full()
        raise AttributeError(name)


@pytest.fixture
def tags(tmp_path, monkeypatch):
    """``tags(above)``: of a step that sends variables to files."""

    def make(above):
        return {files_tag(DiskSettings(str(tmp_path))), above_tag(above)}

    monkeypatch.setattr(SESSION, "files", {})
    return make


def unknown():
    """No prediction of what the step needs."""


def test_the_largest_variables_are_sent_to_files_until_the_rest_fits(tags):
    small, large = Variable("small", 10), Variable("large", 100)
    bring_to_files([small, large], tags(50), unknown)
    assert place_of(small) is None
    assert place_of(large) is not None
    assert frames.slot(large, "raw") is None  # its memory is free
    np.testing.assert_array_equal(large.raw, np.arange(100.0))
    assert dict(block_files.filed_arrays([small, large])) == {1: place_of(large).array}


def test_without_both_tags_nothing_moves(tags):
    variable = Variable("w", 10)
    for some in (set(), {above_tag(0)}, {next(tag for tag in tags(0) if "{" in tag)}):
        bring_to_files([variable], some, unknown)
        assert place_of(variable) is None
    assert files_of({"recompute"}) is None


def test_steps_of_one_setting_share_their_files(tags):
    assert files_of(tags(0)) is files_of(tags(5))


def test_a_step_takes_and_returns_a_token_for_a_file_and_an_array_for_others(tags):
    filed, other = Variable("filed", 10), Variable("other", 10)
    bring_to_files([filed], tags(0), unknown)
    storage = Filed([filed, other], [])
    (token, array), _ = storage.fetch()
    assert token.shape == ()
    assert array is other.raw
    storage.store([jnp.int32(7), jnp.ones(10, jnp.float32)])
    assert int(storage.fetch()[0][0]) == 7
    np.testing.assert_array_equal(other.raw, np.ones(10))


def test_what_is_assigned_goes_to_the_file_when_the_next_step_begins(tags):
    variable = Variable("w", 4)
    bring_to_files([variable], tags(0), unknown)
    variable.raw = jnp.full(4, 9.0, jnp.float32)
    np.testing.assert_array_equal(place_of(variable).array.read(), np.arange(4.0))
    Filed([variable], []).fetch()
    assert frames.slot(variable, "raw") is None
    np.testing.assert_array_equal(variable.raw, np.full(4, 9.0))
    bring_to_files([variable], tags(0), unknown)  # it is there already
    np.testing.assert_array_equal(variable.raw, np.full(4, 9.0))
