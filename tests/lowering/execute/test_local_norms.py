"""Norms of the gradients of every rank are computed only where the settings set them."""

from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from sporax.ir.config.parallel_config import ParallelConfig
from sporax.lowering.execute.local_norms import local_norms


def test_by_default_there_are_none():
    assert local_norms(ParallelConfig(), [0, 1], Counter()) is None


@pytest.mark.parametrize("setting", ["dump_local_norm", "dump_device_local_norm"])
def test_each_setting_requests_its_norms(setting):
    config = replace(ParallelConfig(), **{setting: True})
    norms = local_norms(config, [4, 5], Counter())
    assert norms is not None
    assert norms.ranks == (4, 5)


def test_steps_are_counted_where_the_caller_says(tmp_path):
    saved = Counter()
    config = replace(ParallelConfig(), dump_device_local_norm=True, dump_local_norm_path=str(tmp_path))
    for _ in range(2):  # two programs of one process, such as a step that is compiled again
        norms = local_norms(config, [4], saved)
        norms.watch(["w"], [jnp.ones(4)], jnp.int32(0))
        jax.effects_barrier()
    assert saved == {tmp_path / "rank_4": 2}
    files = sorted(path.name for path in (tmp_path / "rank_4").iterdir())
    assert files == ["device_local_norm_float32_0.npy", "device_local_norm_float32_1.npy"]
