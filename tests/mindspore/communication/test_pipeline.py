"""Pipeline stages over several processes: losses and checkpoints of one process, own programs only, a lost rank is named."""

import json
import time

import numpy as np
import pytest

import sporax.mindspore as ms


def assert_like_one_process(check_ranks, folder, processes, devices, ways):
    check_ranks("pipeline.py", 1, folder, "one", *ways, local_devices=processes * devices, JAX_PLATFORMS="cpu")
    job = check_ranks(
        "pipeline.py", processes, folder, "many", *ways, local_devices=devices, JAX_PLATFORMS="cpu", SHOW_PROGRAMS="1"
    )
    expected = json.loads((folder / "one-losses-rank0.json").read_text())
    for rank in range(processes):
        got = json.loads((folder / f"many-losses-rank{rank}.json").read_text())
        assert set(got) == set(expected)
        for way, values in got.items():
            np.testing.assert_allclose(values, expected[way], rtol=1e-5, atol=1e-5, err_msg=f"{way}, rank {rank}")
    for way in ways:
        one = ms.load_checkpoint(str(folder / f"one-{way}.ckpt"))
        for rank in range(processes):
            many = ms.load_checkpoint(str(folder / f"many-{way}{f'-of-{rank}' if rank else ''}.ckpt"))
            assert set(many) == set(one)
            for name, parameter in one.items():
                np.testing.assert_allclose(
                    many[name].asnumpy(), parameter.asnumpy(), rtol=2e-4, atol=2e-6, err_msg=name
                )
    return job


def test_two_processes_train_and_predict_like_one(check_ranks, tmp_path):
    job = assert_like_one_process(check_ranks, tmp_path, 2, 1, ["frozen", "broadcast"])
    for line in (line for line in job.stdout.splitlines() if "_forward" in line):
        assert ("chunk0_forward" in line) != ("chunk1_forward" in line), line  # own programs only


@pytest.mark.full
def test_two_processes_with_host_memory_train_like_one(check_ranks, tmp_path):
    """The table that the first process keeps on its host, and looks up rows in, is read by the other one, too."""
    assert_like_one_process(check_ranks, tmp_path, 2, 1, ["offload", "host"])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("processes", "devices", "ways"),
    [
        (2, 2, ["gpipe", "sharded", "scaled", "four"]),
        (2, 4, ["plain", "four"]),
        (2, 2, ["offload", "target", "lookup", "host"]),
        (4, 1, ["offload", "target", "host"]),
        (4, 1, ["four"]),
        (4, 1, ["plain", "sharded", "scaled", "parts"]),  # every stage is driven by two processes
    ],
)
def test_other_numbers_of_processes_and_devices(check_ranks, tmp_path, processes, devices, ways):
    assert_like_one_process(check_ranks, tmp_path, processes, devices, ways)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_lost_rank_is_named_soon(run_ranks, tmp_path, how):
    job = run_ranks("pipeline.py", 2, tmp_path, "lost", how, local_devices=1, JAX_PLATFORMS="cpu")
    ended = time.time()
    output = job.stdout + job.stderr
    assert job.returncode != 0
    headline = next(line for line in job.stderr.splitlines()[1:] if line.startswith("sporax run: "))
    assert headline.startswith("sporax run: rank 1 "), output
    begun = max(float(line.split()[-1]) for line in output.splitlines() if "the end begins at" in line)
    assert ended - begun < 15, output
