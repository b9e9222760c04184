"""Dry runs: steps are compiled for all ranks and give zeros, or this rank's part of them is run."""

import atexit
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.base.errors import SporaxNotImplementedError
from sporax.cluster.environment import DRY_RUN_DIRECTORY, RankEnvironment
from sporax.runtime.process import dry_run
from sporax.runtime.process.dry_run import DryRun
from sporax.runtime.ranks import exchanges, joint_arrays
from sporax.runtime.ranks.exchanges import Axis
from sporax.runtime.session import SESSION


@pytest.fixture
def at_level(monkeypatch, tmp_path):
    """``at_level(n)``: this process is in a dry run."""

    def begin(level):
        monkeypatch.setattr(SESSION, "dry_run", DryRun(1, 8, level, tmp_path))
        return SESSION.dry_run

    return begin


def step(written, x):
    return [written[0] + x.sum()], {"double": x * 2}


ARGUMENTS = [jnp.float32(5)], jnp.ones(3)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_step_that_is_not_run_keeps_its_variables_and_gives_zeros(at_level, level):
    run = at_level(level)
    program = dry_run.for_dry_run(jax.jit(step).lower(*ARGUMENTS), jax.jit(step), "step")
    written, results = program(*ARGUMENTS)
    assert written[0] is ARGUMENTS[0][0]
    np.testing.assert_array_equal(results["double"], [0, 0, 0])
    with pytest.raises(TypeError, match="arguments of other shapes"):
        program([jnp.float32(5)], jnp.ones(4))
    assert [item.name for item in run.steps] == ["step"]


def test_at_level_3_this_ranks_part_is_run_and_timed(at_level):
    run = at_level(3)
    program = dry_run.for_dry_run(jax.jit(step).lower(*ARGUMENTS), jax.jit(step), "step")
    for _ in range(2):
        written, results = program(*ARGUMENTS)
    assert float(written[0]) == 8
    np.testing.assert_array_equal(results["double"], [2, 2, 2])
    assert len(run.steps[0].run_seconds) == 2


def test_a_joint_program_is_compiled_for_all_ranks_and_run_for_one(at_level, join):
    run, devices = at_level(3), join().devices
    axis = Axis(8, tuple(range(8)), 1)
    program = joint_arrays.compile_jointly(
        lambda written, x: ([written[0] + exchanges.reduce(axis, x, "sum")], x), devices
    )
    arguments = [jnp.float32(1)], jnp.float32(2), jnp.int32(0)
    dry = dry_run.for_dry_run(program.lower(*arguments), program, "step")
    assert run.steps[0].collectives == {"all-reduce": 1}
    ((written, x), zero) = dry(*arguments)
    assert (float(written[0]), float(x), int(zero)) == (1 + 8 * 2, 2, 0)


def test_below_level_3_a_joint_program_keeps_its_variables_too(at_level, join):
    at_level(1)
    program = joint_arrays.compile_jointly(lambda written, x: ([written[0] + x], x), join().devices)
    arguments = [jnp.float32(1)], jnp.float32(2), jnp.int32(0)
    (written, x), zero = dry_run.for_dry_run(program.lower(*arguments), program, "step")(*arguments)
    assert (float(written[0]), float(x), int(zero)) == (1, 0, 0)


def test_a_sharded_step_gives_zeros_and_is_not_computed(at_level):
    at_level(1)
    lowered = jax.jit(lambda x: [x + 1, (x * 2).astype(jnp.int32)]).lower(jnp.ones(3))
    (zeros,) = dry_run.planned_for_dry_run(lowered, 1, "step")()
    np.testing.assert_array_equal(zeros, np.zeros(3, np.int32))
    at_level(3)
    with pytest.raises(
        SporaxNotImplementedError,
        match=re.escape("For 'sporax run', sim_level must be at most 2 for a step that is sharded over devices"),
    ):
        dry_run.planned_for_dry_run(lowered, 1, "step")


def test_a_dry_run_starts_with_as_many_devices_as_ranks_and_an_empty_folder(monkeypatch, tmp_path, capfd):
    settings = {}
    monkeypatch.setattr(jax.config, "update", settings.__setitem__)
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    monkeypatch.setattr(SESSION, "dry_run", None)
    monkeypatch.setenv(DRY_RUN_DIRECTORY, str(tmp_path))
    folder = tmp_path / "rank_2"
    folder.mkdir()
    (folder / "1_step.txt").write_text("of an earlier run")
    (folder / "notes.txt").write_text("the user's")
    dry_run.start(RankEnvironment(rank=2, size=16, simulation_level=1))
    assert dry_run.active()
    assert settings == {"jax_platforms": "cpu", "jax_num_cpu_devices": 16}
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    dry_run.stop()
    assert not dry_run.active()
    said = capfd.readouterr().err
    assert "DRY RUN, level 1: this process simulates rank 2 of 16. Steps are compiled and not run" in said
    assert "the dry run of rank 2 is over" in said


def test_collectives_answer_by_themselves_only_where_one_rank_is_traced_alone():
    assert not dry_run.simulating()
    with dry_run.alone():
        assert dry_run.simulating()
    assert not dry_run.simulating()
