"""A worker's connection to parameter servers: rows that it keeps of tables, and steps with and without waiting."""

from types import SimpleNamespace

import numpy as np
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.protocol.messages import OptimizerSpec
from sporax.ps.worker.row_cache import RowCache
from sporax.ps.worker.server_connection import FIRST_TABLE_KEY, ServedPart, ServerConnection

SGD = OptimizerSpec("sgd")


class Store:
    """Servers on paper: dense values are the clock at which they are requested, a row is its id and the clock."""

    def __init__(self, staleness=0, rank=0):
        self.options = SimpleNamespace(staleness=staleness, num_slots=16)
        self.link = SimpleNamespace(incarnation=1, dismissed=False)
        self.rank, self.clock, self.is_retired, self.is_member = rank, 0, False, True
        self.declared, self.initial, self.log, self.sums = [], [], [], {}

    def declare(self, dense, optimizers, specs):
        self.declared.append(([item.name for item in dense], [spec.key for spec in specs]))

    def initialise(self, values, part):
        self.initial.append((values, part))

    def pull(self, rows=None, dense=True, part=0):
        return self.finish_pull(self.start_pull(rows, dense=dense, part=part))

    def start_pull(self, rows=None, dense=True, part=0, ahead=0):
        self.log.append(("request", part, self.clock + ahead))
        return self.clock + ahead, rows or {}

    def finish_pull(self, plan):
        clock, rows = plan
        assert clock <= self.clock, "servers do not answer before that clock"
        return [np.full(4, clock, np.float32)], {
            key: np.stack([ids, np.full(len(ids), clock)], 1).astype(np.float32) for key, ids in rows.items()
        }

    def push(self, gradients, rates, rows, part, dense=True, lease=-1, weight=1.0):
        self.log.append(("push", part, self.clock))
        self.lease = lease
        self.pushed = (gradients, rates, rows)
        for ids, values, _ in rows.values():
            for number, value in zip(ids.tolist(), values, strict=True):
                self.sums[number] = self.sums.get(number, 0) + value
        self.clock += 1
        return self.clock

    def wait(self, ticket):
        self.log.append(("wait", ticket))
        return self.is_member

    def give_up(self, plan):
        pass

    def close(self, finished):
        self.log.append(("close", finished))


@pytest.fixture
def cache():
    """A cache of three rows on a connection with one part."""
    connection = ServerConnection(Store())
    table = RowCache("table", 2, 3)
    connection.attach([], [], [], [SGD], [(table, 0)])
    return table, connection


def step(table, connection, ids):
    """One training step that looks up rows; gives the ids of the rows that it fetched."""
    before = table.misses
    places, rows = table.positions(connection, np.array(ids))
    np.testing.assert_array_equal(rows[..., 0], ids)
    table.take_gradient(np.zeros((3, 2), np.float32), connection.store.clock, 0)
    return places.tolist(), table.misses - before


def test_rows_are_fetched_once_and_keep_their_places(cache):
    table, connection = cache
    places, missed = step(table, connection, [[7, 3], [7, 7]])
    assert places[0][0] == places[1][0] == places[1][1] != places[0][1]
    assert missed == 2
    assert step(table, connection, [3, 7]) == ([places[0][1], places[0][0]], 0)


def test_rows_are_fetched_again_when_they_are_too_old(cache):
    table, connection = cache
    step(table, connection, [7])
    connection.store.clock = 1
    assert step(table, connection, [7])[1] == 1  # synchronous training reads the rows of its own clock
    connection.store.options.staleness = 2
    connection.store.clock = 3
    assert step(table, connection, [7])[1] == 0
    connection.store.clock = 4
    assert step(table, connection, [7])[1] == 1


def test_the_least_recently_used_row_makes_room(cache):
    table, connection = cache
    for ids in ([1], [2], [3], [1]):
        step(table, connection, ids)
    assert step(table, connection, [4])[1] == 1  # in the place of 2
    assert step(table, connection, [1, 3])[1] == 0
    assert step(table, connection, [2])[1] == 1


def test_more_ids_in_a_step_than_rows_are_an_error(cache):
    table, connection = cache
    table.positions(connection, np.array([1, 2]))  # two lookups of one step
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'EmbeddingLookup', 'vocab_cache_size' of 'table' must be at least the number of different ids of a step, "
        "but got 3 rows and 4 ids",
    ):
        table.positions(connection, np.array([3, 4]))


def test_gradients_belong_to_the_rows_that_the_step_looked_up(cache):
    table, connection = cache
    places, _ = table.positions(connection, np.array([8, 9]))
    gradient = np.arange(6, dtype=np.float32).reshape(3, 2)
    ids, values = table.take_gradient(gradient, 0, 0)
    assert sorted(ids) == [8, 9]
    for number, value in zip(ids, values, strict=True):
        np.testing.assert_array_equal(value, gradient[places[[8, 9].index(number)]])
    assert len(table.take_gradient(gradient, 0, 0)[0]) == 0


def test_rows_that_were_requested_ahead_are_not_fetched_again(cache):
    table, connection = cache
    table.prefetch(connection, np.array([5, 6]))
    requests = len(connection.store.log)
    assert step(table, connection, [5, 6])[1] == 0
    assert len(connection.store.log) == requests


def train(table, connection, part, ids, gradient=1.0):
    """A step whose rows all have one gradient."""
    places, _ = table.positions(connection, np.array(ids))
    full = np.zeros((table.capacity, 2), np.float32)
    np.add.at(full, places.reshape(-1), np.float32(gradient))
    connection.exchange(part, np.array([0.5]), [np.ones((2, 2), np.float32), full])


def make(staleness, capacity=4):
    connection = ServerConnection(Store(staleness))
    table = RowCache("table", 2, capacity)
    return connection, table, connection.attach(["w"], [np.ones((2, 2), np.float32)], [0], [SGD], [(table, 0)])


@pytest.mark.parametrize("how", ["during the step", "before its lookup", "by the data set"])
def test_the_next_rows_are_requested_at_the_next_clock_while_the_step_runs(how):
    connection, table, part = make(0)
    batches = [np.array([[1, 2]]), np.array([[2, 3]]), np.array([[3, 1]])]
    for number, ids in enumerate(batches):
        following = batches[number + 1] if number < 2 else None
        if how == "by the data set" and following is not None:
            connection.next_batches.announce([np.ones(3, np.float32), ids], [np.ones(3, np.float32), following])
        if how == "before its lookup" and following is not None and number:
            table.prefetch(connection, following)
        before = table.misses
        _, rows = table.positions(connection, ids)
        np.testing.assert_array_equal(rows[..., 1], number)  # the rows of this clock, requested or not
        if how == "during the step" and following is not None:
            table.prefetch(connection, following)
        requested_before_push = connection.store.log[-1]
        connection.exchange(part, np.array([0.5]), [np.ones((2, 2), np.float32), np.zeros((4, 2), np.float32)])
        if following is not None and (number or how != "before its lookup"):
            assert requested_before_push == ("request", 0, number + 1)
        if number > (how == "before its lookup"):
            assert table.misses == before


@pytest.mark.parametrize(("staleness", "capacity"), [(0, 4), (1, 4), (3, 4), (3, 20), (-1, 4)])
def test_written_back_gradients_are_those_of_all_steps(staleness, capacity):
    """Evicted, too old, replaced by a copy requested ahead, or left at the end: each gradient goes out once."""
    connection, table, part = make(staleness, capacity)
    draw = np.random.default_rng(0)
    batches = [draw.integers(0, 12, 3) for _ in range(60)]
    expected, pushed = {}, 0
    for number, (ids, following) in enumerate(zip(batches, [*batches[1:], None], strict=True)):
        if following is not None and number % 3:
            connection.next_batches.announce([ids], [following])
        train(table, connection, part, ids, number + 1)
        for row in ids.tolist():
            expected[row] = expected.get(row, 0) + number + 1
        pushed += len(connection.store.pushed[2][part.tables[0].key][0])
        if staleness == 0:
            assert {row: value[0] for row, value in connection.store.sums.items()} == expected
    connection.close()
    assert {row: value[0] for row, value in connection.store.sums.items()} == expected
    if staleness == 3 and capacity == 20:
        assert pushed < sum(len(set(ids.tolist())) for ids in batches) * 0.8  # rows that steps share travel together


def test_a_row_waits_for_no_longer_than_its_copy_lives():
    connection, table, part = make(2)
    sent = []
    for _ in range(7):
        train(table, connection, part, [5])
        sent.append(len(connection.store.pushed[2][table.key][0]))
    assert sent == [0, 0, 1, 0, 0, 1, 0]
    connection.write_back()
    assert connection.store.sums[5][0] == 7
    assert connection.store.log[-1][0] == "wait"  # written back means acknowledged


def test_lookups_without_a_gradient_keep_no_rows_and_move_none():
    connection, table, part = make(0)
    for first in range(0, 12, 3):  # more ids than the cache has places
        np.testing.assert_array_equal(
            table.rows(connection, np.arange(first, first + 3))[:, 0], range(first, first + 3)
        )
    np.testing.assert_array_equal(table.rows(connection, np.arange(9))[:, 0], range(9))
    train(table, connection, part, [1])
    assert list(connection.store.sums) == [1]


def test_rank_0_gives_the_first_values_and_parts_have_keys_of_their_own():
    for rank in (0, 1):
        connection = ServerConnection(Store(rank=rank))
        values = [np.ones((2, 2), np.float32)]
        table = RowCache("t", 2, 3)
        connection.attach(["a"], values, [0], [SGD], [(table, 0)])
        second = connection.attach(["b"], values, [0], [SGD], [(table, 0)])
        assert [values is given for given, _ in connection.store.initial] == [rank == 0] * 2
        assert [names for names, _ in connection.store.declared] == [["a"], ["b"]]
        (first_key,), (second_key,) = (keys for _, keys in connection.store.declared)
        assert first_key == FIRST_TABLE_KEY
        assert second_key > first_key
        assert (second.number, second.shapes) == (1, [(2, 2)])


def exchange(connection, part, count=1):
    gradients = [np.ones((2, 2), np.float32)]
    return [float(connection.exchange(part, np.array([0.5]), gradients)[0][0, 0]) for _ in range(count)]


def test_a_synchronous_step_waits_for_the_values_of_the_next_clock():
    connection = ServerConnection(Store())
    connection.parts.append(part := ServedPart(0, [(2, 2)], []))
    assert exchange(connection, part, 2) == [1, 2]
    assert connection.store.log == [
        ("push", 0, 0),
        ("request", 0, 1),
        ("wait", 1),
        ("push", 0, 1),
        ("request", 0, 2),
        ("wait", 2),
    ]
    assert connection.store.pushed[1] == [0.5]


def test_with_staleness_a_step_takes_the_values_requested_before_and_leaves_its_own_on_the_way():
    connection = ServerConnection(Store(staleness=1))
    connection.parts.append(part := ServedPart(0, [(2, 2)], []))
    assert exchange(connection, part, 4) == [1, 1, 2, 3]
    assert connection.store.log[-3:] == [("push", 0, 3), ("wait", 3), ("request", 0, 4)]
    connection.close()
    assert connection.store.log[-2:] == [("wait", 4), ("close", True)]
    connection.close()  # once


def test_a_process_that_continues_another_one_skips_the_parts_that_have_made_their_step():
    connection = ServerConnection(Store())
    connection.parts += [ServedPart(0, [(2, 2)], []), ServedPart(1, [(2, 2)], [])]
    connection.store.link.incarnation, connection.store.clock = 2, 1  # part 0 has made its step of this round
    exchange(connection, connection.parts[0])
    assert connection.store.log == [("request", 0, 1)]
    exchange(connection, connection.parts[1])
    assert connection.store.log[1] == ("push", 1, 1)


def test_a_worker_that_the_others_went_on_without_goes_on_where_it_is_a_member_again():
    connection = ServerConnection(Store())
    connection.parts += [ServedPart(0, [(2, 2)], []), ServedPart(1, [(2, 2)], [])]
    store = connection.store

    def rejoin():
        store.log.append(("rejoin", store.clock))
        store.clock, store.is_member = 7, True

    store.rejoin = rejoin
    exchange(connection, connection.parts[0])
    store.is_member = False  # silent for longer than its lease
    assert exchange(connection, connection.parts[1]) == [7]
    # It is the second optimizer's turn at clock 7, so the first one has nothing to push.
    assert exchange(connection, connection.parts[0]) == [7]
    assert exchange(connection, connection.parts[1]) == [8]
    assert [entry for entry in store.log if entry[0] in ("push", "rejoin")] == [
        ("push", 0, 0),
        ("push", 1, 1),
        ("rejoin", 2),
        ("push", 1, 7),
    ]


def test_ranges_of_samples_need_one_optimizer():
    with pytest.raises(SporaxRuntimeError, match="one optimizer with parameters on servers, but has 0"):
        next(ServerConnection(Store()).leases.ranges(8, 2, 1.0))


def test_a_clock_has_its_samples_whoever_the_members_are():
    connection = ServerConnection(Store(), first_workers=2)
    part = connection.attach(["w"], [np.ones((2, 2), np.float32)], [0], [], [])
    connection.store.members = (0, 1)
    ranges = connection.leases.ranges(22, 4, 1.0)
    seen = []
    for members in ((0, 1), (0, 1, 2, 5), (0,)):
        connection.store.members = members
        seen.append(next(ranges))
        connection.exchange(part, np.array([0.5]), [np.ones((2, 2), np.float32)])
    assert seen == [range(4), range(8, 10), range(16, 22)]
    assert list(ranges) == []


def test_leased_samples_travel_with_their_lease_and_hold_nothing_back():
    connection, table, part = make(3)
    connection.store.samples = lambda total, size: iter([(7, range(3)), (9, range(3, 5))])
    ranges = connection.leases.ranges(5, 3, 0.2)
    for lease, samples in ((7, range(3)), (9, range(3, 5))):
        assert next(ranges) == samples
        train(table, connection, part, list(samples))
        assert connection.store.lease == lease
        assert len(connection.store.pushed[2][table.key][0]) == len(samples)  # nothing of a lease stays in the cache
    assert list(ranges) == []
    assert [event for event in connection.store.log if event[0] == "wait"] == [("wait", 1), ("wait", 2)]
    stuck = connection.leases.ranges(5, 3, 0.01)
    next(stuck)
    with pytest.raises(SporaxRuntimeError, match="each range must be used for one training step"):
        next(stuck)


def test_a_whole_table_is_read_after_the_cache_was_written_back(monkeypatch):
    monkeypatch.setattr("sporax.ps.worker.server_connection._ROWS_PER_FETCH", 4)
    connection = ServerConnection(Store(3))
    table = RowCache("table", 2, 3, num_rows=10)
    part = connection.attach(["w"], [np.ones((2, 2), np.float32)], [0], [SGD], [(table, 0)])
    train(table, connection, part, [7])
    assert connection.store.sums == {}
    np.testing.assert_array_equal(connection.full_table(table)[:, 0], range(10))
    assert list(connection.store.sums) == [7]


def test_a_table_moves_at_the_rate_of_its_own_group():
    connection = ServerConnection(Store())
    tables = [RowCache(name, 2, 3) for name in "ab"]
    part = connection.attach(["w"], [np.ones((2, 2), np.float32)], [1], [SGD, SGD], [(tables[0], 1), (tables[1], 0)])
    for table in tables:
        table.positions(connection, np.array([1]))
    zeros = np.zeros((3, 2), np.float32)
    connection.exchange(part, np.array([0.5, 0.25]), [np.ones((2, 2), np.float32), zeros, zeros])
    assert [connection.store.pushed[2][table.key][2] for table in tables] == [0.25, 0.5]


def test_a_push_that_does_not_count_is_not_followed_by_a_wait_for_its_next_clock():
    """The slots may be waiting for this worker at the clock of its push: the members before it have died."""

    class Moved(Store):
        def __init__(self):
            super().__init__()
            self.moved = True

        def wait(self, ticket):
            self.log.append(("wait", ticket))
            return not self.moved

        def finish_pull(self, plan):
            assert not (self.moved and plan[0] == self.clock), "the slots never come to this clock"
            return super().finish_pull(plan)

        def give_up(self, plan):
            self.log.append(("give up", plan[0]))

        def rejoin(self):
            self.moved, self.clock = False, self.clock - 1

    connection = ServerConnection(Moved())
    part = connection.attach(["w"], [np.zeros(4, np.float32)], [0], [SGD], [])
    (values,) = connection.exchange(part, np.array([0.1]), [np.ones(4, np.float32)])
    np.testing.assert_array_equal(values, 0)
    requests = [entry for entry in connection.store.log if entry[0] != "close"]
    assert requests == [("push", 0, 0), ("request", 0, 1), ("wait", 1), ("give up", 1), ("request", 0, 0)]
