"""The storages of a program's variables: what is fetched is what the program takes, and what it returns is what reading gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sporax.ir.uneven import UnevenRows
from sporax.lowering.passes.repeat.stacked_arguments import Stacked
from sporax.lowering.passes.uneven_tables import Blocked
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames
from sporax.runtime.storage.block_files import DiskSettings, Filed, above_tag, bring_to_files, files_tag
from sporax.runtime.storage.placed_variables import PlacedVariables
from sporax.runtime.storage.variables import InMemory, stacks_of


class Variable:
    """A Parameter as small as can be, in any form."""

    __slots__ = ("filed", "joint", "name", "on_host", "parts", "raw", "requires_grad", "row", "unmade")

    def __init__(self, name, values):
        self.name, self.raw, self.unmade, self.filed = name, jnp.asarray(values, jnp.float32), None, None
        self.requires_grad, self.on_host = True, False

    def __getattr__(self, name):
        return joint_arrays.change_form(self, name)


ROWS = Blocked(0, UnevenRows((3, 1)))


def in_memory(updated, read, tmp_path):
    return InMemory(updated, read)


def joint(updated, read, tmp_path):
    return InMemory(updated, read, "joint")


def filed(updated, read, tmp_path):
    bring_to_files([updated[1]], {files_tag(DiskSettings(str(tmp_path))), above_tag(0)}, lambda: None)
    return Filed(updated, read)


def stacked(updated, read, tmp_path):
    return stacks_of(Stacked(None, ((0, 1),), ()), updated, read)


def placed(updated, read, tmp_path):
    mesh = Mesh(np.array(jax.devices()[:2]), ("a",))
    whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("a"))
    storage = PlacedVariables(updated, read, (rows, whole, whole), {0: ROWS}, frozenset({2}))
    storage.bring()
    assert [variable.on_host for variable in (*updated, *read)] == [False, False, True]
    assert updated[1].raw.sharding == whole
    return storage


@pytest.fixture
def alone(join, monkeypatch):
    monkeypatch.setattr(SESSION, "files", {})
    return join(0, 1)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("make", [in_memory, joint, filed, stacked, placed])
def test_what_the_program_returns_is_what_reading_gives(make, tmp_path):
    updated = (Variable("a", np.arange(4)), Variable("b", np.arange(4) + 10))
    read = (Variable("c", np.full(4, 7)),)
    storage = make(updated, read, tmp_path)
    taken, fixed = storage.fetch()
    assert storage.names()[1] == ["c"]
    np.testing.assert_array_equal(joint_arrays.to_local(fixed[0]), np.full(4, 7))
    if make is filed:
        # The file has been written by the program; a token comes back in the place of the values.
        updated[1].filed.array.write(np.arange(4) + 110)
        storage.store([taken[0] + 100, taken[1]])
    else:
        storage.store([array + 100 for array in taken])
    for variable, first in zip(updated, (100, 110), strict=True):
        np.testing.assert_array_equal(variable.raw, np.arange(4) + first)
    # Also when the variables have been read meanwhile, the program takes the new values.
    again, _ = storage.fetch()
    storage.store(again)
    np.testing.assert_array_equal(updated[0].raw, np.arange(4) + 100)


@pytest.mark.usefixtures("alone")
def test_a_form_stays_until_somebody_reads(tmp_path):
    updated, read = (Variable("a", np.arange(4)), Variable("b", np.arange(4))), (Variable("c", np.zeros(4)),)
    storage = joint(updated, read, tmp_path)
    taken, _ = storage.fetch()
    storage.store(taken)
    assert frames.slot(updated[0], "raw") is None
    blocks = placed((Variable("d", np.arange(4)), updated[1]), read, tmp_path)
    taken, _ = blocks.fetch()
    assert taken[0].shape == (6,)
    blocks.store(taken)
    assert frames.slot(blocks.updated[0], "raw") is None
    assert storage.names() == (["a", "b"], ["c"])
