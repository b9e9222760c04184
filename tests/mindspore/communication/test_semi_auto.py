"""The global view over several processes: losses of one process with as many devices, checkpoints for one."""

import json

import numpy as np

import sporax.mindspore as ms

FOUR_BY_ONE, TWO_BY_TWO = ("data_parallel", "full_batch", "patches", "sink"), ("cuts", "functions", "searched", "model")


def test_processes_train_like_one_with_all_devices(check_ranks, tmp_path):
    jobs = [("one", 1, 4, FOUR_BY_ONE + TWO_BY_TWO), ("four", 4, 1, FOUR_BY_ONE), ("two", 2, 2, TWO_BY_TWO)]
    for name, processes, devices, ways in jobs:
        check_ranks(
            "semi_auto.py", processes, tmp_path, name, *ways, "released", local_devices=devices, JAX_PLATFORMS="cpu"
        )
    one = json.loads((tmp_path / "one.json").read_text())
    for name, _, _, ways in jobs[1:]:
        many = json.loads((tmp_path / f"{name}.json").read_text())
        assert set(many) == set(ways)
        for way, losses in many.items():
            assert len(set(losses)) == len(losses), way  # it learns
            np.testing.assert_allclose(losses, one[way], rtol=2e-5, err_msg=way)
        compare_checkpoints(tmp_path / f"one-{ways[-1]}.ckpt", tmp_path / f"{name}-{ways[-1]}.ckpt")


def compare_checkpoints(one, many):
    saved, expected = ms.load_checkpoint(str(many)), ms.load_checkpoint(str(one))
    assert {name: item.shape for name, item in saved.items()} == {"up": (16, 32), "down": (32, 8)}
    for name, parameter in expected.items():
        np.testing.assert_allclose(saved[name].asnumpy(), parameter.asnumpy(), rtol=1e-4, atol=1e-6)


def test_sharded_parts_of_eager_code_have_the_gradients_of_one_process(check_ranks):
    check_ranks("sharded_part.py", 2, JAX_PLATFORMS="cpu")
