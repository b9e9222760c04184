"""The global view over several processes: losses of one process with as many devices, checkpoints for one."""

import json

import numpy as np
import pytest

import sporax as ms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "devices", "ways"),
    [(4, 1, ("data_parallel", "full_batch", "sink")), (2, 2, ("cuts", "functions", "model"))],
)
def test_processes_train_like_one_with_all_devices(check_ranks, tmp_path, processes, devices, ways):
    platform = {"JAX_PLATFORMS": "cpu"}
    check_ranks("semi_auto.py", 1, tmp_path, "one", *ways, local_devices=4, **platform)
    check_ranks("semi_auto.py", processes, tmp_path, "many", *ways, local_devices=devices, **platform)
    one, many = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "many"))
    assert set(one) == set(many) == set(ways)
    for way, losses in one.items():
        assert len(set(losses)) == len(losses), way  # it learns
        np.testing.assert_allclose(many[way], losses, rtol=2e-5, err_msg=way)
    saved = {name: ms.load_checkpoint(str(tmp_path / f"{name}.ckpt")) for name in ("one", "many")}
    assert {name: each.shape for name, each in saved["many"].items()} == {"up": (16, 32), "down": (32, 8)}
    for name, parameter in saved["one"].items():
        np.testing.assert_allclose(saved["many"][name].asnumpy(), parameter.asnumpy(), rtol=1e-4, atol=1e-6)
