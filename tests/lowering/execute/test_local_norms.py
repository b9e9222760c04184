"""Norms of the gradients of every rank are computed only where the settings ask for them."""

from dataclasses import replace

import pytest

from sporax.ir.config.parallel_config import ParallelConfig
from sporax.lowering.execute.local_norms import local_norms


def test_by_default_there_are_none():
    assert local_norms(ParallelConfig(), [0, 1]) is None


@pytest.mark.parametrize("setting", ["dump_local_norm", "dump_device_local_norm"])
def test_each_setting_asks_for_its_norms(setting):
    config = replace(ParallelConfig(), **{setting: True})
    norms = local_norms(config, [4, 5])
    assert norms is not None
    assert norms.ranks == (4, 5)
