"""Two processes save slices and whole files, and read those of each other under another strategy; bytes are counted."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
from job_environment import job_environment

from forked_commands import run_forked
from sporax.mindspore.train import load_checkpoint

JOB = Path(__file__).with_name("sliced_job.py")
W_BYTES, B_BYTES = 64 * 32 * 4, 32 * 4


def test_slices_of_two_ranks(tmp_path: Path) -> None:
    words = ["-m", "sporax", "run", "--worker_num", "2", "--log_dir", str(tmp_path / "logs"), str(JOB), str(tmp_path)]
    result = run_forked([sys.executable, *words], timeout=250, env=job_environment())
    assert result.returncode == 0, result.stdout + result.stderr
    assert "mixed True" in result.stdout
    counts = re.findall(r"read (\d) (\S+) (\S+) (\d+)", result.stdout)
    assert len(counts) == 2 * 4 * 2
    for rank, name, compiled, count in counts:
        assert int(count) <= W_BYTES // 2 + B_BYTES, (rank, name, compiled)  # half of the columns, and the bias
    whole = load_checkpoint(str(tmp_path / "whole" / "rank_1" / "whole.ckpt"))
    expected = np.random.default_rng(1).normal(size=(64, 32)).astype(np.float32)
    np.testing.assert_array_equal(whole["w"].asnumpy(), expected)
    read = load_checkpoint(str(tmp_path / "slices" / "rank_1" / "slices.ckpt"))
    assert (read["w"].shape, read["note"], int(read["epoch_num"].asnumpy())) == ((32, 32), "yes", 2)
    np.testing.assert_array_equal(read["w"].asnumpy(), expected[32:])
    sizes = {rank: int(size) for rank, size in re.findall(r"sizes (\d) (\d+)", result.stdout)}
    assert all(size < W_BYTES // 2 + B_BYTES + 2000 for size in sizes.values())
