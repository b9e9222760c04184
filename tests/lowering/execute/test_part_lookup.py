"""The masked lookup in a table of uneven parts, and its transpose."""

import jax
import jax.numpy as jnp
import numpy as np

from sporax.lowering.execute.part_lookup import fill_value, part_lookup

ROWS = (4, 2, 3)
OFFSETS = (0, 4, 6)
TABLE = jnp.arange(9 * 2, dtype=jnp.float32).reshape(9, 2)


def test_indices_of_each_field_read_their_part():
    indices = jnp.asarray([[3, 5, 8], [0, 4, 6]])
    np.testing.assert_array_equal(part_lookup(TABLE, indices, ROWS, OFFSETS), TABLE[indices])


def test_an_index_outside_of_its_part_reads_zeros():
    actual = part_lookup(TABLE, jnp.asarray([[4, 3, -1]]), ROWS, OFFSETS)
    np.testing.assert_array_equal(actual, np.zeros((1, 3, 2)))


def test_offsets_shift_the_indices_of_a_part():
    actual = part_lookup(TABLE, jnp.asarray([[0, 101, 2]]), ROWS, (0, 100, 0))
    np.testing.assert_array_equal(actual[0], TABLE[jnp.asarray([0, 5, 8])])


def test_a_table_in_blocks_gives_the_rows_of_the_whole_table():
    blocks = jnp.zeros((12, 2)).at[jnp.asarray([0, 1, 2, 3, 4, 5, 8, 9, 10])].set(TABLE)
    indices = jnp.asarray([[3, 5, 8]])
    np.testing.assert_array_equal(part_lookup(blocks, indices, ROWS, OFFSETS), TABLE[indices])


def test_the_gradient_sums_rows_that_are_read_twice():
    indices = jnp.asarray([[3, 4, 6], [3, 5, 0]])
    slopes = jax.grad(lambda table: part_lookup(table, indices, ROWS, OFFSETS).sum())(TABLE)
    expected = np.zeros((9, 2))
    expected[[4, 5, 6]] = 1
    expected[3] = 2
    np.testing.assert_array_equal(slopes, expected)


def test_fill_values_change_no_reduction():
    assert fill_value("sum", "float32") == 0
    assert fill_value("prod", "int32") == 1
    assert fill_value("max", "float32") == -np.inf
    assert fill_value("min", "int8") == 127
    assert fill_value("and", "bool") == 1
