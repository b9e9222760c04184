"""Leaves the mode as it was."""

import pytest

import sporax as ms


@pytest.fixture(autouse=True)
def _mode():
    before = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=before)


@pytest.fixture(params=["graph", "pynative"])
def mode(request):
    """Run in both modes."""
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    return request.param
