"""Makes the modules shared with the recorder in `tools/golden` importable by the tests here."""

import sys
from pathlib import Path

import pytest

import sporax as ms

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "golden")]


@pytest.fixture(autouse=True)
def _mode():
    """Start in PYNATIVE_MODE, and leave the mode as it was."""
    before = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=before)
