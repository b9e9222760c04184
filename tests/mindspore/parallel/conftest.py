"""Every test here starts from, and leaves behind, untouched settings."""

import sys
from pathlib import Path

import pytest

from sporax.mindspore import context
from sporax.mindspore.communication import release
from sporax.runtime import world

sys.path.insert(0, str(Path(__file__).parent))  # cases and helpers beside the tests


@pytest.fixture(autouse=True)
def _untouched():
    mode = context.get_context("mode")
    yield
    if world.world() is not None:
        release()  # a process that has joined a job counts all its devices
    context.set_context(mode=mode)
    context.set_world(1, 0)
    context.reset_auto_parallel_context()
