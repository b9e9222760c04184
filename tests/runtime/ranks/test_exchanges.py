"""The building blocks of collectives, in groups that divide the ranks and in one that does not, against numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

from sporax.base.errors import SporaxTypeError
from sporax.runtime import world
from sporax.runtime.process import dry_run
from sporax.runtime.ranks import exchanges
from sporax.runtime.ranks.exchanges import Axis

DIVIDING = [(6, 1), (7, 2, 0, 5), tuple(range(8))]
THREE = (5, 0, 6)
VALUES = np.random.default_rng(0).integers(-9, 10, (8, 24, 2)).astype(np.float32)
REDUCTIONS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("has_reduce_scatter", [True, False])
@pytest.mark.parametrize("members", DIVIDING)
def test_every_member_of_a_dividing_group_gets_what_numpy_gives(on_ranks, monkeypatch, members, has_reduce_scatter):
    monkeypatch.setattr(world, "has_reduce_scatter", lambda: has_reduce_scatter)
    axis, mine = Axis(8, members, 0), VALUES[list(members)]
    pieces = np.split(mine, len(members), axis=1)  # [to][from]

    def program(x):
        return {
            "gather": exchanges.gather(axis, x),
            "swap": exchanges.swap(axis, x),
            "swap over dims": exchanges.swap(axis, x, 0, 1),
            **{op: exchanges.reduce(axis, x, op) for op in REDUCTIONS},
            **{f"scatter {op}": exchanges.reduce_scatter(axis, x, op) for op in REDUCTIONS},
        }

    results = on_ranks(program, VALUES)
    for position, place in enumerate(members):
        own = {name: stacked[place] for name, stacked in results.items()}
        np.testing.assert_array_equal(own["gather"], np.concatenate(mine))
        np.testing.assert_array_equal(own["swap"], np.concatenate(pieces[position]))
        np.testing.assert_array_equal(own["swap over dims"], np.concatenate(pieces[position], axis=1))
        for op, combined in REDUCTIONS.items():
            np.testing.assert_array_equal(own[op], combined(mine, axis=0))
            np.testing.assert_array_equal(own[f"scatter {op}"], combined(pieces[position], axis=0))


def test_three_of_eight_ranks_reduce_and_gather_in_a_compiled_program(on_ranks):
    mine = VALUES[list(THREE)]
    gathers = [Axis(8, THREE, position) for position in range(3)]

    def program(x):
        return exchanges.reduce(gathers[0], x, "sum"), [exchanges.gather(axis, x) for axis in gathers]

    total, gathered = on_ranks(program, VALUES)
    for position, place in enumerate(THREE):
        np.testing.assert_array_equal(total[place], mine.sum(0))
        np.testing.assert_array_equal(gathered[position][place], np.concatenate(mine))


def test_three_of_eight_ranks_swap_and_scatter_by_rotations(as_threads):
    def program(place):
        axis, array = Axis(8, THREE, THREE.index(place)), jnp.asarray(VALUES[place])
        return exchanges.swap(axis, array), exchanges.reduce_scatter(axis, array, "sum")

    results = as_threads(program, THREE)
    pieces = np.split(VALUES[list(THREE)], 3, axis=1)
    for position, (swapped, scattered) in enumerate(results):
        np.testing.assert_array_equal(swapped, np.concatenate(pieces[position]))
        np.testing.assert_array_equal(scattered, pieces[position].sum(0))


def test_bools_reduce_as_any_and_all(on_ranks):
    axis = Axis(8, (3, 4), 0)
    flags = np.zeros((8, 4), bool)
    flags[3], flags[4] = [True, True, False, False], [True, False, True, False]
    both, either = [True, False, False, False], [True, True, True, False]

    def program(x):
        ops = ("sum", "max", "prod", "min")
        return [exchanges.reduce(axis, x, op) for op in ops], [exchanges.reduce_scatter(axis, x, op) for op in ops]

    whole, scattered = on_ranks(program, flags)
    for combined, pieces, expected in zip(whole, scattered, (either, either, both, both), strict=True):
        assert combined.dtype == pieces.dtype == bool
        assert combined[3].tolist() == combined[4].tolist() == expected
        assert [*pieces[3], *pieces[4]] == expected


def test_complex_numbers_are_added_and_have_no_maximum(on_ranks):
    axis, values = Axis(8, (2, 5), 0), VALUES[:, 0] + 1j * VALUES[:, 1]
    total = on_ranks(lambda x: exchanges.reduce(axis, x, "sum"), values)
    np.testing.assert_array_equal(total[5], values[2] + values[5])
    with pytest.raises(
        SporaxTypeError, match=r"^For 'AllReduce', complex numbers have no order, so 'op' must not be 'max'\.$"
    ):
        exchanges.reduce(axis, jnp.asarray(values[0]), "max")


def test_every_bit_of_the_root_arrives_and_no_bit_of_others(on_ranks):
    floats = np.zeros((8, 3), np.float32)
    floats[5] = np.array([0x80000000, 0x7FC01234, 0xFF800000], np.uint32).view(
        np.float32
    )  # -0, a NaN with a payload, -inf
    whole = np.zeros((8, 2), np.complex64)
    whole[5] = [complex(-0.0, 1.5), complex(np.nan, -0.0)]
    everyone = tuple(range(8))

    def program(x, z):
        root, other = Axis(8, everyone, 5), Axis(8, everyone, 4)  # both as the root and as another rank runs it
        return exchanges.from_root(root, x, 5), exchanges.from_root(root, z, 5), exchanges.from_root(other, x, 5)

    arrived, numbers, nothing = on_ranks(program, floats, whole)
    for place in everyone:
        np.testing.assert_array_equal(arrived[place].view(np.uint32), floats[5].view(np.uint32))
        np.testing.assert_array_equal(numbers[place].view(np.uint32), whole[5].view(np.uint32))
    np.testing.assert_array_equal(nothing.view(np.uint32), 0)


def test_pairs_carry_arrays_and_others_get_zeros(on_ranks):
    arrived = on_ranks(lambda x: exchanges.permute(x, [(0, 3), (3, 7)]), VALUES)
    expected = np.zeros_like(VALUES)
    expected[3], expected[7] = VALUES[0], VALUES[3]
    np.testing.assert_array_equal(arrived, expected)


def test_in_a_dry_run_the_others_have_what_this_rank_has():
    axis, array = Axis(8, THREE, 1), jnp.arange(6.0)
    with dry_run.alone():
        np.testing.assert_array_equal(exchanges.reduce(axis, array, "sum"), 3 * array)
        np.testing.assert_array_equal(exchanges.reduce(axis, array, "max"), array)
        np.testing.assert_array_equal(exchanges.gather(axis, array), [*range(6)] * 3)
        np.testing.assert_array_equal(exchanges.swap(axis, array), [2, 3] * 3)
        np.testing.assert_array_equal(exchanges.from_root(axis, array, 0), array)


def test_groups_of_equal_size_cover_the_axis_where_one_group_divides_it():
    assert Axis(8, (6, 1), 0).cover == [[6, 1], [0, 2], [3, 4], [5, 7]]
    assert Axis(8, THREE, 0).cover == [[5, 0, 6], [1, 2, 3, 4, 7]]
    assert Axis(8, tuple(range(8)), 0).cover is None
    assert Axis(8, THREE, 0).rotation(2) == [(5, 6), (0, 5), (6, 0)]
