"""What a dry run reports of its steps, and the files that it leaves."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sporax.runtime.process.dry_run import CompiledStep, DryRun


@pytest.fixture(scope="module")
def lowered():
    """A sum over eight devices."""
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:8]), ("rank",)), PartitionSpec("rank"))
    shape = jax.ShapeDtypeStruct((64,), jnp.float32, sharding=sharding)
    return jax.jit(jnp.sum).lower(shape)


@pytest.mark.parametrize("level", [0, 1])
def test_a_step_is_described_in_files_of_its_rank(lowered, tmp_path, capfd, level):
    run = DryRun(3, 8, level, tmp_path)
    compiled, step = run.add(lowered, "total")
    assert step.collectives == {"all-reduce": 1}
    assert (tmp_path / "1_total.txt").read_text() == compiled.as_text()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["rank"], summary["size"], summary["level"]) == (3, 8, level)
    (entry,) = summary["steps"]
    assert entry["collectives"] == {"all-reduce": 1}
    assert entry["argument_bytes"] == (64 // 8 * 4 if level else None)
    assert entry["peak_bytes"] == step.peak_bytes
    assert (step.peak_bytes is None) is (level == 0)
    assert "sporax: total: compiled in " in capfd.readouterr().err


def test_memory_in_place_of_arguments_counts_once():
    assert CompiledStep("step", 1.0, {}, 100, 60, 40, 7).peak_bytes == 127
    assert CompiledStep("step", 1.0, {}).peak_bytes is None


def test_a_step_is_described_in_one_sentence():
    step = CompiledStep(
        "step", 1.256, {"all-reduce": 2, "all-gather": 1}, 3 * 2**20, 2**20, 2**20, 2**19, [0.001, 0.003, 0.002]
    )
    assert str(step) == (
        "step: compiled in 1.26 s, 2 x all-reduce, 1 x all-gather, 3.5 MB on one rank (3 MB arguments, 1 MB results, of which "
        "1 MB in place of arguments, 0.5 MB in between), ran 3 times, 2 ms each"
    )
    assert str(CompiledStep("other", 0.5, {})) == "other: compiled in 0.50 s, no collectives"


@pytest.mark.parametrize("level", [1, 3])
def test_the_last_word_says_where_the_files_are_and_times_of_steps_that_ran(tmp_path, capfd, level):
    run = DryRun(0, 2, level, tmp_path, [CompiledStep("step", 1.0, {}, run_seconds=[0.5])])
    run.close()
    said = capfd.readouterr().err
    assert ("ran 1 times, 500 ms each" in said) is (level == 3)
    assert f"the dry run of rank 0 is over; 1 compiled steps are described in {tmp_path}" in said
    assert json.loads((tmp_path / "summary.json").read_text())["steps"][0]["run_seconds"] == [0.5]
