"""Events and actions of the state machines are told apart by their type alone."""

from __future__ import annotations

from typing import get_args

import pytest

from sporax.ps.client import client_state
from sporax.ps.protocol import events


@pytest.mark.parametrize("module", [events, client_state], ids=lambda module: module.__name__)
def test_no_event_or_action_has_kinds_below_it(module: object) -> None:
    kinds = {*get_args(module.Event), *get_args(module.Action)}  # type: ignore[attr-defined]
    assert len(kinds) >= 8
    for kind in kinds:
        assert getattr(kind, "__final__", False), f"{kind.__name__} is found by `type(...) is`, and must be final"
