"""Keys by identity: one object is one key, equal objects are different keys."""

import numpy as np

from sporax.base.identity import ByIdentity


def test_one_object_is_one_key():
    array = np.zeros(3)
    assert {ByIdentity(array): 1}[ByIdentity(array)] == 1


def test_equal_objects_are_different_keys():
    assert len({ByIdentity([1]), ByIdentity([1])}) == 2


def test_a_key_keeps_its_object_alive():
    keys = [ByIdentity([number]) for number in range(100)]
    assert len(set(keys)) == 100
