"""Slots of which no copy is left."""

import pytest

from sporax.ps.protocol.messages import Holders
from sporax.ps.scheduler.journal import Peer
from sporax.ps.scheduler.lost_slots import lost_reason, slots_without_server


@pytest.mark.parametrize(("live", "seen", "lost"), [(True, 0.0, []), (False, 9.0, []), (False, 1.0, [0, 2])])
def test_a_slot_is_lost_when_its_server_is_away_for_too_long(live, seen, lost):
    slots = [Holders(primary=0), Holders(primary=1), Holders(primary=0)]
    servers = {0: Peer(seen, live=live), 1: Peer(0.0)}
    assert slots_without_server(slots, servers, since=5.0) == lost


def test_the_reason_names_the_checkpoint_to_start_from():
    assert "MS_PS_RESTORE=/data/checkpoint" in lost_reason([3], "be saved", "memory", "/data/checkpoint")
    assert "start from the beginning" in lost_reason([3], "be saved", "memory", "")
