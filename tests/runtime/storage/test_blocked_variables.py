"""Tables in uneven parts between steps: in blocks for programs, in rows for everybody else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from sporax.ir.uneven import UnevenRows
from sporax.lowering.passes.uneven_tables import Blocked
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.ranks.collective_order import AXIS
from sporax.runtime.state import frames
from sporax.runtime.storage import placed_variables

PARTS = UnevenRows((2, 1, 2, 3, 1, 1, 2, 1))
TABLE = np.arange(1.0, 2 * PARTS.num_rows + 1, dtype=np.float32).reshape(PARTS.num_rows, 2)
HOW = Blocked(0, PARTS)


class Variable:
    """One array in one of three forms."""

    __slots__ = ("joint", "made", "name", "parts", "raw", "unmade")

    def __init__(self, raw):
        self.name, self.unmade = "table", None
        if raw is not None:
            self.raw = raw

    def __getattr__(self, name):
        return joint_arrays.change_form(self, name)

    def make_at(self, sharding, blocks):
        self.raw = jax.device_put(blocks(TABLE), sharding)
        self.unmade = None


@pytest.fixture
def rows_over_devices(join):
    return NamedSharding(joint_arrays.mesh(join().devices), PartitionSpec(AXIS))


def test_each_device_has_its_part_and_zeros_in_spare_rows(rows_over_devices):
    variable = Variable(jnp.asarray(TABLE))
    blocks = placed_variables.stored(variable, HOW, rows_over_devices)
    assert blocks.sharding == rows_over_devices
    for number, shard in enumerate(blocks.addressable_shards):
        start, size = PARTS.starts[number], PARTS.rows[number]
        np.testing.assert_array_equal(shard.data[:size], TABLE[start : start + size])
        np.testing.assert_array_equal(shard.data[size:], 0)


def test_whoever_reads_the_table_gets_rows_and_the_next_step_blocks_again(rows_over_devices):
    variable = Variable(jnp.asarray(TABLE))
    blocks = placed_variables.stored(variable, HOW, rows_over_devices)
    assert placed_variables.stored(variable, HOW, rows_over_devices) is blocks  # nothing moves between steps
    placed_variables.keep(variable, blocks * 2, HOW)
    np.testing.assert_array_equal(variable.raw, TABLE * 2)
    assert frames.slot(variable, "parts") is None
    np.testing.assert_array_equal(placed_variables.stored(variable, HOW, rows_over_devices), blocks * 2)


def test_spare_rows_never_reach_the_user(rows_over_devices):
    variable = Variable(jnp.asarray(TABLE))
    blocks = placed_variables.stored(variable, HOW, rows_over_devices)
    placed_variables.keep(variable, jnp.where(blocks == 0, jnp.nan, blocks), HOW)
    np.testing.assert_array_equal(variable.raw, TABLE)


def test_a_lazy_table_is_made_in_blocks(rows_over_devices):
    variable = Variable(None)
    variable.unmade = jax.ShapeDtypeStruct(TABLE.shape, TABLE.dtype)
    blocks = placed_variables.stored(variable, HOW, rows_over_devices)
    assert blocks.shape == (PARTS.num_stored, 2)
    np.testing.assert_array_equal(variable.raw, TABLE)


def test_columns_in_parts_are_blocks_too(rows_over_devices):
    how = Blocked(1, UnevenRows((2, 1)))
    variable = Variable(jnp.asarray(TABLE[:4, :1] * [[1, 2, 3]]))
    everywhere = NamedSharding(rows_over_devices.mesh, PartitionSpec())
    blocks = placed_variables.stored(variable, how, everywhere)
    np.testing.assert_array_equal(np.asarray(blocks)[:, 3], 0)
    np.testing.assert_array_equal(variable.raw, TABLE[:4, :1] * [[1, 2, 3]])
