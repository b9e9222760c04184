"""What a plan knows of an argument of a step."""

from dataclasses import FrozenInstanceError, asdict, replace

import jax
import jax.numpy as jnp
import pytest

from sporax.ir.graph import Role
from sporax.runtime.devices.global_view import Argument

SHAPE = jax.ShapeDtypeStruct((4, 2), jnp.float32)


def test_an_argument_may_be_sharded_and_is_on_the_device_by_default():
    assert asdict(Argument(Role.DATA, "input 0", SHAPE)) == {
        "role": Role.DATA,
        "name": "input 0",
        "array": SHAPE,
        "shardable": True,
        "from_values": False,
        "trainable": False,
        "on_host": False,
    }


def test_an_argument_on_the_host_is_another_one_and_the_first_stays():
    first = Argument(Role.PARAMETER, "w", SHAPE, trainable=True)
    second = replace(first, on_host=True)
    assert (first.on_host, second.on_host) == (False, True)
    assert first != second
    assert replace(second, on_host=False) == first
    assert len({first, second, replace(first)}) == 2


@pytest.mark.parametrize("name", ["on_host", "array"])
def test_an_argument_cannot_be_changed(name):
    argument = Argument(Role.STATE, "step", SHAPE)
    with pytest.raises(FrozenInstanceError, match=name):
        setattr(argument, name, True)
    assert not hasattr(argument, "__dict__")  # a step has thousands of them
