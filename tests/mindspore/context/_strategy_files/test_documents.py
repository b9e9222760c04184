"""Strategies as JSON: what is written is read again, and what does not fit is refused with the file's name."""

import pytest

from sporax.base.errors import SporaxValueError
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.layout import Layout
from sporax.mindspore.context._strategy_files.documents import strategy_from_json, strategy_to_json


def test_numbers_of_slices_are_read_again():
    strategy = ((2, 4), (4, 1))
    entry = strategy_to_json(strategy)
    assert entry == {"parallel_strategy": [[2, 4], [4, 1]], "stage": 0}
    assert strategy_from_json(entry, "a.json") == strategy


def test_layouts_are_read_again():
    layout = Layout.from_tensor_map(DeviceMatrix((2, 2)), (0, 1))
    entry = strategy_to_json((layout, (2, 1)))
    assert entry["parallel_layouts"][1] is None
    read, numbers = strategy_from_json(entry, "a.json")
    assert read.split == layout.split
    assert numbers == (2, 1)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (3, "it must be an object, but got 3"),
        ({}, r"it must have 'parallel_strategy', but has \[\]"),
        ({"parallel_strategy": [[2.5]]}, r"'parallel_strategy\[0\]\[0\]' must be a whole number, but got 2.5"),
        ({"parallel_strategy": [[2]], "parallel_layouts": [None, None]}, "zip"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(entry, reason):
    with pytest.raises(SporaxValueError, match=rf"For 'a\.json', an operator must have an entry like .*{reason}"):
        strategy_from_json(entry, "a.json")
