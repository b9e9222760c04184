"""Leaves the mode as it was."""

import pytest

import sporax.mindspore as ms


@pytest.fixture(autouse=True)
def _mode():
    before = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=before)
