"""What one server does for one push, action by action."""

from __future__ import annotations

import numpy as np
import pytest

from invariants import check_server
from sporax.ps.protocol.events import Action, Apply, Received, Reply, Stored, StoreRecord, ToServer
from sporax.ps.protocol.messages import (
    Accepted,
    Acked,
    HeartbeatReply,
    Holders,
    Init,
    Members,
    OptimizerSpec,
    Options,
    Pull,
    Pulled,
    Push,
    Record,
    Replicated,
    ServerAddress,
    Source,
    VariableSpec,
    VariableValues,
    View,
)
from sporax.ps.protocol.wire import chunks
from sporax.ps.server.follower_state import server_identity
from sporax.ps.server.server_state import ServerState

SIZE = 8


def server(staleness: int, durability: str, ranks: int = 1) -> ServerState:
    """A server that leads the only slot, with one variable of zeros in it."""
    machine = ServerState(0, 1, Options(staleness=staleness, durability=durability, num_slots=1))
    view = View(1, [ServerAddress(0, 1, "h", "t", "")], [Holders(0)], [Members(0, list(range(ranks)))])
    machine.handle(Received(b"scheduler", HeartbeatReply(0.0, 1, view)), 0.0)
    spec = VariableSpec(0, "w", SIZE, 0, OptimizerSpec("sgd"))
    follow(machine, Init(1, 0, 1, [spec], [VariableValues(0, 0.0, -1, SIZE)]), np.zeros(SIZE, np.float32))
    return machine


def follow(machine: ServerState, message: object, values: np.ndarray | None = None) -> list[Action]:
    """Handle a message and what follows from it at once, as the process does; gives all actions in order."""
    frames = tuple(chunks(values)) if values is not None else ()
    queue, done = list(machine.handle(Received(b"worker", message, frames), 0.0)), []
    while queue:
        action = queue.pop(0)
        done.append(action)
        if isinstance(action, StoreRecord):
            queue += machine.handle(Stored(action.record.slot, action.record.lsn), 0.0)
        elif isinstance(action, Apply):
            check_server(machine)
            queue += machine.handle(action, 0.0)
    return done


def push(number: int, rank: int = 0) -> Push:
    return Push(10 + number, 0, 1, Source(rank, 1, number + 1, number), 1.0, [VariableValues(0, 1.0, -1, SIZE)])


@pytest.mark.parametrize("staleness", [0, -1])
def test_a_push_is_stored_acknowledged_and_applied_in_this_order(staleness: int) -> None:
    machine = server(staleness, "process")
    actions = follow(machine, push(0), np.ones(SIZE, np.float32))
    assert [type(action) for action in actions] == [StoreRecord, Reply, Apply]
    assert actions[1] == Reply(b"worker", Acked(10, 0, 1 if staleness == 0 else 0))
    (answer,) = follow(machine, Pull(50, 0, 1, 0, -1, [VariableValues(0, 0.0, -1, 0)]))
    assert isinstance(answer, Reply)
    assert isinstance(answer.message, Pulled)
    assert np.frombuffer(answer.frames[0], np.float32).tolist() == [-1.0] * SIZE


@pytest.mark.parametrize("durability", ["process", "disk"])
def test_an_answer_stands_behind_its_record_and_waits_for_a_flush_where_there_is_one(durability: str) -> None:
    machine = server(-1, durability)
    actions = machine.handle(Received(b"worker", push(0), tuple(chunks(np.ones(SIZE, np.float32)))), 0.0)
    store = actions[0]
    assert isinstance(store, StoreRecord)
    answer = [Reply(b"worker", Acked(10, 0, 0)), Apply(0)]
    assert actions[1:] == (answer if durability == "process" else [])
    # A record counts as stored once, so this is not answered twice.
    flushed = machine.handle(Stored(0, store.record.lsn), 0.0)
    assert flushed == ([] if durability == "process" else answer)
    assert machine.handle(Stored(0, store.record.lsn), 0.0) == []


@pytest.mark.parametrize("durability", ["process", "disk"])
def test_a_follower_confirms_a_record_behind_its_storing(durability: str) -> None:
    leader = server(-1, "memory")
    follower = ServerState(1, 1, Options(staleness=-1, durability=durability, num_slots=1))
    servers = [ServerAddress(0, 1, "h", "t", ""), ServerAddress(1, 1, "h", "u", "")]
    view = View(2, servers, [Holders(0, 1)], [Members(0, [0])])
    follower.handle(Received(b"scheduler", HeartbeatReply(0.0, 1, view)), 0.0)
    image, frames = leader.states[0].image()
    follower.handle(Received(server_identity(0, 1), image, tuple(frames)), 0.0)
    record = Record(0, image.lsn + 1, 2, [], [Source(0, 1, 1, 0)], [VariableValues(0, 1.0, -1, SIZE)])
    values = tuple(chunks(np.ones(SIZE, np.float32)))
    actions = follower.handle(Received(server_identity(0, 1), record, values), 0.0)
    confirmed = [ToServer(servers[0], Replicated(0, 2, record.lsn))]
    assert actions == [StoreRecord(record, values), *(confirmed if durability == "process" else [])]
    if durability == "disk":
        assert follower.handle(Stored(0, record.lsn), 0.0) == confirmed


def test_a_push_that_has_to_wait_for_others_is_accepted_first() -> None:
    machine = server(0, "memory", ranks=2)
    assert follow(machine, push(0), np.ones(SIZE, np.float32)) == [Reply(b"worker", Accepted(10, 0))]
    replies = [
        action for action in follow(machine, push(0, rank=1), np.ones(SIZE, np.float32)) if isinstance(action, Reply)
    ]
    assert replies == [Reply(b"worker", Acked(10, 0, 1))] * 2


def test_a_push_repeated_between_acknowledgement_and_application_is_answered_and_counts_once() -> None:
    machine = server(-1, "memory")
    gradient = np.ones(SIZE, np.float32)
    first = machine.handle(Received(b"worker", push(0), tuple(chunks(gradient))), 0.0)
    assert first == [Reply(b"worker", Acked(10, 0, 0)), Apply(0)]
    assert machine.handle(Received(b"worker", push(0), tuple(chunks(gradient))), 0.0) == []
    assert machine.handle(Apply(0), 0.0) == [Reply(b"worker", Acked(10, 0, 0))]
    assert machine.handle(Apply(0), 0.0) == []
    assert machine.states[0].variables[0].value.tolist() == [-1.0] * SIZE
