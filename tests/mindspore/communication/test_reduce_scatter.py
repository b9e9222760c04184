"""Between CPU devices with `jax.distributed` sums are scattered by an all-to-all, whatever the job; and gloo's other collectives."""

import importlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from compiler_flags import COMPILER

TOOLS = Path(__file__).parents[3] / "tools"
ADVICE = (
    "jaxlib {} is newer than those whose reduce-scatter between CPU processes is known to be wrong (jax-ml/jax issue 40830). Run "
    "`python tools/soak.py control --size 12500`. Read the issue for its mending, too: differences are rare. If it is not mended, raise KNOWN_BAD in tools/soaks/collectives.py; if it "
    "is, `has_reduce_scatter` in src/sporax/runtime/world.py may allow it for this jaxlib."
)


@pytest.fixture
def known_bad(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("soaks.collectives").KNOWN_BAD


def numbers(version):
    return tuple(int(part) for part in version.split(".")[:2])


def test_the_way_round_reduce_scatter_is_looked_at_again_with_every_new_jaxlib(known_bad):
    version = importlib.metadata.version("jaxlib")
    first, end = map(numbers, known_bad)
    assert first <= numbers(version) < end, ADVICE.format(version)


@pytest.mark.full
def test_no_job_of_several_cpu_processes_compiles_a_reduce_scatter(check_ranks, tmp_path):
    check_ranks(
        "without_reduce_scatter.py", 2, tmp_path / "programs", local_devices=2, JAX_PLATFORMS="cpu", XLA_FLAGS=COMPILER
    )


@pytest.mark.full
def test_collectives_of_two_processes_give_the_same_bits_again_and_again(tmp_path):
    figures = tmp_path / "figures.json"
    options = ["--only", "2 processes", "--size", "30", "--load", "0", "--json", str(figures)]
    command = [sys.executable, str(TOOLS / "soak.py"), "collectives", *options]
    soak = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert soak.returncode == 0, soak.stdout + soak.stderr
    names = ("all_gather", "all_reduce", "all_to_all", "broadcast", "pairs", "permute", "reduce_scatter")
    expected = {**{f"differences of {name}": 0 for name in names}, **{f"runs of {name}": 60 for name in names}}
    assert json.loads(figures.read_text())["scenarios"]["collectives"]["faults"] == expected


@pytest.mark.soak
def test_a_rank_that_comes_forty_seconds_late_ends_no_job(check_ranks):
    check_ranks("late_to_scatter.py", 2, 40, seconds=300)
