"""Events and actions of the state machines are distinguished by their type alone."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from sporax.ps.client import client_state
from sporax.ps.protocol import events, messages


@pytest.mark.parametrize("kinds", [events.Event, events.Action, client_state.Action], ids=["event", "action", "client"])
def test_no_event_or_action_has_kinds_below_it(kinds: object) -> None:
    kinds = get_args(kinds)
    assert len(kinds) >= 3
    for kind in kinds:
        assert getattr(kind, "__final__", False), f"{kind.__name__} is found by `type(...) is`, and must be final"


@pytest.mark.parametrize(
    ("module", "least"), [(events, 8), (client_state, 1), (messages, 8)], ids=["events", "client_state", "messages"]
)
def test_the_garbage_collector_passes_over_messages_events_and_actions(module: object, least: int) -> None:
    """Some ten of them are made for every push; nothing that they hold leads back to them."""
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    frozen = [kind for kind in kinds if kind.__struct_config__.frozen]
    assert len(frozen) >= least
    assert not [kind.__name__ for kind in frozen if kind.__struct_config__.gc]
