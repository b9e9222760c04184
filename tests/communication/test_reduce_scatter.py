"""Between CPU devices with `jax.distributed` sums are scattered by an all-to-all, whatever the job."""

import pytest

from compiler_flags import COMPILER


@pytest.mark.slow
def test_no_job_of_several_cpu_processes_compiles_a_reduce_scatter(check_ranks, tmp_path):
    check_ranks(
        "without_reduce_scatter.py", 2, tmp_path / "programs", local_devices=2, JAX_PLATFORMS="cpu", XLA_FLAGS=COMPILER
    )
