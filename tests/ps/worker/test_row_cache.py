"""Rows of a served table in a worker: gradients that wait here, rows requested ahead, and batches whose successor is known."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.worker.row_cache import NextBatches, RowCache, lifetime

WIDTH = 2


class Servers:
    """A connection to servers on which the row of an id is that id and the clock of the request."""

    def __init__(self, staleness=0, clocks_per_step=1):
        self.store = self
        self.options = SimpleNamespace(staleness=staleness)
        self.clock, self.clocks_per_step, self.lock = 0, clocks_per_step, nullcontext()
        self.next_batches = NextBatches()
        self.fetched, self.ahead = [], []

    def fetch(self, rows):
        self.fetched += [ids.tolist() for ids in rows.values()]
        return None, self._rows(rows, self.clock)

    def start_pull(self, rows, dense, ahead):
        assert not dense
        self.ahead += [(ids.tolist(), ahead) for ids in rows.values()]
        return rows, self.clock + ahead

    def finish_pull(self, plan):
        rows, clock = plan
        assert clock <= self.clock, "servers do not answer before that clock"
        return None, self._rows(rows, clock)

    def _rows(self, rows, clock):
        return {key: np.stack([ids, np.full(len(ids), clock)], axis=1).astype(np.float32) for key, ids in rows.items()}


def train(table, servers, *ids):
    """A step that looks up ids, each of which has its number as gradient; gives what is written back, by id."""
    places, _ = table.positions(servers, np.array(ids))
    gradient = np.zeros((table.capacity, WIDTH), np.float32)
    gradient[places] = np.array(ids, np.float32)[:, None]
    written = table.take_gradient(gradient, servers.clock, lifetime(servers.options.staleness))
    servers.clock += 1
    return by_id(written)


def by_id(written):
    ids, values = written
    assert (values.dtype, values.shape, values.flags.c_contiguous) == (np.float32, (len(ids), WIDTH), True)
    return dict(zip(ids.tolist(), values[:, 0].tolist(), strict=True))


def test_gradients_are_written_back_with_each_step_in_synchronous_training():
    table, servers = RowCache("table", WIDTH, 4), Servers()
    assert train(table, servers, 5, 6) == {5: 5, 6: 6}
    assert train(table, servers, 6, 7) == {6: 6, 7: 7}
    assert by_id(table.take_dirty()) == {}
    assert (table.hits, table.misses, table.written_rows) == (0, 4, 4)


def test_with_staleness_the_gradients_of_a_row_travel_once_in_the_last_step_of_its_copy():
    table, servers = RowCache("table", WIDTH, 4), Servers(staleness=2)
    assert [train(table, servers, 5, 6), train(table, servers, 5)] == [{}, {}]
    assert train(table, servers, 5) == {5: 15, 6: 6}
    assert train(table, servers, 5) == {}  # a new copy
    assert servers.fetched == [[5, 6], [5]]
    assert by_id(table.take_dirty()) == {5: 5}
    assert by_id(table.take_dirty()) == {}  # once


def test_a_row_that_makes_room_is_written_back_with_the_step_that_took_its_place():
    table, servers = RowCache("table", WIDTH, 2), Servers(staleness=9)
    assert [train(table, servers, 5, 6), train(table, servers, 5)] == [{}, {}]
    assert train(table, servers, 7) == {6: 6}  # the least recently used
    assert by_id(table.take_dirty()) == {5: 10, 7: 7}


def test_a_copy_that_is_replaced_by_a_new_one_hands_over_what_it_has_gathered():
    table, servers = RowCache("table", WIDTH, 2), Servers(staleness=2)
    assert train(table, servers, 5) == {}
    servers.clock = 7
    assert train(table, servers, 5) == {5: 5}
    assert by_id(table.take_dirty()) == {5: 5}


def test_rows_of_the_running_step_make_no_room_until_their_gradients_are_taken():
    table, servers = RowCache("table", WIDTH, 2), Servers()
    for number in (1, 2):
        table.positions(servers, np.array([number]))
    with pytest.raises(SporaxRuntimeError, match="of 'table' must be at least .* but got 2 rows and 3 ids"):
        table.positions(servers, np.array([3]))
    table.take_gradient(np.zeros((2, WIDTH), np.float32), 0, 0)
    assert table.positions(servers, np.array([3]))[0].tolist() == [0]


def test_an_evaluation_of_more_rows_than_there_is_room_reads_past_the_cache():
    table, servers = RowCache("table", WIDTH, 3), Servers(staleness=9)
    places, _ = table.positions(servers, np.array([1, 2]))
    few, many = np.array([[4], [4]]), np.array([[7, 8], [9, 7]])
    for ids in (few, many, few):
        rows = table.rows(servers, ids)
        np.testing.assert_array_equal(rows[..., 0], ids)
    assert servers.fetched == [[1, 2], [4], [7, 8, 9]]  # and 4 is there the second time
    np.testing.assert_array_equal(table.positions(servers, np.array([1, 2]))[0], places)


def test_rows_of_the_next_step_are_requested_while_a_step_runs_where_its_batch_is_known():
    table, servers = RowCache("table", WIDTH, 6), Servers()
    servers.next_batches.announce([np.array([1, 2])], [np.array([2, 3, 2])])
    train(table, servers, 1, 2)
    assert servers.ahead == [([2, 3], 1)]  # of the next clock, each row once
    _, rows = table.positions(servers, np.array([2, 3, 2]))
    np.testing.assert_array_equal(rows, [[2, 1], [3, 1], [2, 1]])
    assert servers.fetched == [[1, 2]]
    assert table.hits == 2


def test_rows_that_stay_usable_and_clocks_that_are_not_known_are_not_requested():
    table, servers = RowCache("table", WIDTH, 6), Servers(staleness=2)
    table.positions(servers, np.array([1, 2]))
    table.prefetch(servers, np.array([2, 3]))
    assert servers.ahead == [([3], 1)]
    two_optimizers = Servers(clocks_per_step=2)
    table = RowCache("table", WIDTH, 6)
    table.positions(two_optimizers, np.array([1]))
    table.prefetch(two_optimizers, np.array([3]))
    assert two_optimizers.ahead == []


def test_a_request_between_two_steps_waits_for_the_lookup_of_the_present_one():
    """In synchronous training the clock of the step that will look these rows up is known then."""
    table, servers = RowCache("table", WIDTH, 6), Servers()
    train(table, servers, 1)
    table.prefetch(servers, np.array([4, 5]))
    assert servers.ahead == []
    train(table, servers, 2)
    assert servers.ahead == [([4, 5], 1)]
    _, rows = table.positions(servers, np.array([4, 5]))
    np.testing.assert_array_equal(rows, [[4, 2], [5, 2]])


def test_columns_of_integers_lead_to_the_same_column_of_the_next_batch():
    batches = NextBatches()
    first, second = np.array([[1, 2], [3, 4]], np.int32), np.array([[5, 6], [7, 8]], np.int32)
    batches.announce([np.ones(4), "label", first], [np.zeros(4), "label", second])
    np.testing.assert_array_equal(batches.following(first.reshape(-1).astype(np.int64)), second)
    for unknown in (second, first[:1], np.ones(4, np.int64)):
        assert batches.following(unknown) is None
    for number in range(128):  # so many are kept
        batches.announce([np.array([number])], [np.array([number + 1])])
    assert batches.following(first) is None
    assert batches.following(np.array([0])).tolist() == [1]


@pytest.mark.parametrize(("staleness", "steps"), [(0, 0), (3, 3), (-1, 1)])
def test_copies_are_read_for_as_many_steps_as_values_may_be_stale(staleness, steps):
    """One step where training has no bound."""
    assert lifetime(staleness) == steps
