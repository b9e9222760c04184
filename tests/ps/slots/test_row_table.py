"""Embedding rows: the index against a dict, first values, admission and eviction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sporax.ps.protocol.messages import OptimizerSpec, VariableSpec
from sporax.ps.slots import row_table
from sporax.ps.slots.row_table import HashIndex, RowTable, first_rows, slots_of


def table(**options: object) -> RowTable:
    options = {"optimizer": OptimizerSpec("sgd"), "distribution": "zeros", **options}
    return RowTable(VariableSpec(3, "t", 0, 2, **options))


def add(table: RowTable, ids: list[int], value: float = 1.0) -> None:
    table.update(np.array(ids), np.full((len(ids), 2), -value, np.float32), 1.0, keep_before=True)


@given(st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=40, unique=True), max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_index_equals_a_dict(batches: list[list[int]]) -> None:
    index, model = HashIndex(), {}
    for batch in batches:
        new = [number for number in batch if number not in model]
        index.insert(np.array(new, np.int64), np.arange(len(model), len(model) + len(new)))
        model |= {number: position for position, number in enumerate(new, len(model))}
        queried = np.array([*model, *range(20)], np.int64)
        assert index.find(queried).tolist() == [model.get(int(number), -1) for number in queried]


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20, unique=True), max_size=20))
@settings(max_examples=60, deadline=None)
def test_rows_equal_a_dict_of_rows(batches: list[list[int]]) -> None:
    rows, model = table(), {}
    for batch in batches:
        add(rows, sorted(batch))
        model |= {number: model.get(number, 0) + 1 for number in batch}
    assert rows.read(np.arange(61))[:, 0].tolist() == [model.get(number, 0) for number in range(61)]
    assert rows.count == len(model)


def test_reading_makes_no_rows() -> None:
    rows = table(distribution="normal", sigma=1.0)
    before = rows.read(np.array([7, 7, 9]))
    assert rows.count == 0
    np.testing.assert_array_equal(before[0], before[1])
    add(rows, [7], 0.0)
    np.testing.assert_array_equal(rows.read(np.array([7]))[0], before[0])


def test_first_rows_depend_on_seed_table_and_id_alone() -> None:
    options = {"seed": 1, "table": 2, "sigma": 0.5, "distribution": "normal"}
    whole = first_rows(np.arange(2000), 16, **options)
    np.testing.assert_array_equal(whole[100:200][::-1], first_rows(np.arange(199, 99, -1), 16, **options))
    assert abs(float(whole.std()) - 0.5) < 0.01
    assert abs(float(whole.mean())) < 0.01
    assert not np.array_equal(whole, first_rows(np.arange(2000), 16, **{**options, "seed": 2}))
    assert np.abs(first_rows(np.arange(99), 4, **{**options, "distribution": "uniform"})).max() <= 0.5


def test_slots_get_even_shares() -> None:
    counts = np.bincount(slots_of(np.arange(100_000), 16), minlength=16)
    assert counts.min() > 0.95 * counts.max()


def test_the_rows_of_the_clock_before_can_be_read() -> None:
    rows = table()
    add(rows, [1, 2])
    add(rows, [2, 5])
    assert rows.read(np.array([5, 2, 1]), before=True)[:, 0].tolist() == [0, 1, 1]
    assert rows.read(np.array([5, 2, 1]))[:, 0].tolist() == [1, 2, 1]


def test_an_id_gets_a_row_when_it_was_seen_often_enough() -> None:
    rows = table(admit_count=3)
    for _ in range(4):
        add(rows, [1])
    add(rows, [2])
    assert rows.read(np.array([1, 2]))[:, 0].tolist() == [2, 0]
    assert rows.refused_rows == 3


def test_a_share_of_ids_gets_rows() -> None:
    rows = table(admit_probability=0.25)
    add(rows, list(range(4000)))
    assert 0.2 < rows.count / 4000 < 0.3


def test_the_least_recently_updated_rows_are_evicted() -> None:
    rows = table(max_rows=8)
    add(rows, list(range(8)))
    add(rows, [0, 1])
    add(rows, [100])
    assert rows.count == 7
    assert rows.read(np.array([0, 1, 100]))[:, 0].tolist() == [2, 2, 1]
    assert rows.evicted_rows == 2


def test_unused_rows_are_evicted_after_their_time() -> None:
    rows = table(ttl=4)
    add(rows, [1])
    for _ in range(6):
        add(rows, [2])
    assert rows.read(np.array([1, 2]))[:, 0].tolist() == [0, 6]
    assert rows.count == 1


@pytest.mark.parametrize("rule", ["adam", "ftrl", "adagrad"])
def test_rows_move_like_a_dense_parameter_that_is_touched_each_time(rule: str) -> None:
    constants = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "accum": 0.1, "initial_accum": 0.1, "power": 0.5}
    optimizer = OptimizerSpec(rule, {**constants, "l1": 0.01, "l2": 0.0}, decay=0.01)
    rows = table(optimizer=optimizer, distribution="constant", sigma=0.5)
    from sporax.ps.slots.slot import Segment

    dense = Segment(VariableSpec(0, "d", 8, 0, optimizer), np.full(8, 0.5, np.float32))
    rng = np.random.default_rng(0)
    for _ in range(5):
        gradient = rng.standard_normal(8).astype(np.float32)
        rows.update(np.arange(4), gradient.reshape(4, 2), 0.1, keep_before=False)
        dense.update(gradient, 0.1)
    np.testing.assert_array_equal(rows.read(np.arange(4)).reshape(-1), dense.value)


@pytest.mark.parametrize("rule", ["sgd", "adagrad"])
def test_an_update_in_blocks_has_the_bits_of_one_as_a_whole(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = OptimizerSpec(rule, {"accum": 0.1}, decay=0.01)
    rng = np.random.default_rng(2)
    updates = [
        (np.unique(rng.integers(0, 3000, 2000)), rng.standard_normal((3000, 2)).astype(np.float32)) for _ in range(3)
    ]

    def values(block_bytes: int) -> list[bytes]:
        monkeypatch.setattr(row_table, "_BLOCK_BYTES", block_bytes)
        rows = table(optimizer=optimizer, distribution="normal", sigma=1.0)
        for ids, gradients in updates:
            rows.update(ids, gradients[: len(ids)], 0.1, keep_before=True)
        return [array.tobytes() for array in rows.arrays()]

    whole = values(1 << 30)
    assert values(8 * 100) == whole
    assert values(1) == whole


def test_a_table_without_limits_does_not_look_for_rows_to_evict(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table()
    monkeypatch.setattr(rows, "_evict", lambda: pytest.fail("looked at all rows"))
    add(rows, [1, 2, 3])
