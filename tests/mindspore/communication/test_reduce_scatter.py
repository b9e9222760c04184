"""Between CPU devices with `jax.distributed` sums are scattered by an all-to-all, whatever the job; and gloo's other collectives."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from compiler_flags import COMPILER

TOOL = Path(__file__).parents[3] / "tools" / "soak_collectives.py"
ADVICE = (
    "jaxlib {} is newer than those whose reduce-scatter between CPU processes is known to be wrong (jax-ml/jax issue 40830). Run "
    "`python tools/soak_collectives.py --only 'control: psum_scatter' --runs 100000`. Read the issue for its mending, too: differences are rare. If it is not mended, raise KNOWN_BAD there; if it "
    "is, `has_reduce_scatter` in src/sporax/runtime/world.py may allow it for this jaxlib."
)


def known_bad():
    spec = importlib.util.spec_from_file_location("soak_collectives", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool.KNOWN_BAD


def numbers(version):
    return tuple(int(part) for part in version.split(".")[:2])


def test_the_way_round_reduce_scatter_is_looked_at_again_with_every_new_jaxlib():
    version = importlib.metadata.version("jaxlib")
    first, end = map(numbers, known_bad())
    assert first <= numbers(version) < end, ADVICE.format(version)


@pytest.mark.full
def test_no_job_of_several_cpu_processes_compiles_a_reduce_scatter(check_ranks, tmp_path):
    check_ranks(
        "without_reduce_scatter.py", 2, tmp_path / "programs", local_devices=2, JAX_PLATFORMS="cpu", XLA_FLAGS=COMPILER
    )


@pytest.mark.full
def test_collectives_of_two_processes_give_the_same_bits_again_and_again():
    names = "all_reduce,pairs,all_gather,all_to_all,permute,broadcast,reduce_scatter"
    options = ["--runs", "60", "--processes", "2", "--load", "0", "--only", names]
    soak = subprocess.run([sys.executable, str(TOOL), *options], capture_output=True, text=True, timeout=240)
    assert soak.returncode == 0, soak.stdout + soak.stderr
    assert soak.stdout.count("| 0 of 60 | 0 of 60 |") == 7, soak.stdout


@pytest.mark.soak
def test_a_rank_that_comes_forty_seconds_late_ends_no_job(check_ranks):
    check_ranks("late_to_scatter.py", 2, 40, seconds=300)
