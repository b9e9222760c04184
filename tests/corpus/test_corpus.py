"""Training steps as others write them: every search and profile plans them, with a limit and without, and devices agree with one."""

import json

import compiled_collectives
import jax
import numpy as np
import pytest
from compiled_collectives import GOLDEN, collectives
from corpus_programs import PROGRAMS

import sporax
from sporax.base.errors import SporaxRuntimeError
from sporax.planner import peak_bytes

MODES = ("dynamic", "ilp", "recursive", "propagation", "repeated_blocks")
PROFILES = ("cpu", "h100", "tpu-v5p", "ascend910")


@pytest.fixture(autouse=True)
def usual_types():
    """The types of a program that does not request 64 bits."""
    with jax.enable_x64(False):
        yield


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_searches_plan_it_for_all_kinds_of_devices(name):
    """Three of twenty pairs of search and profile for each program, so that each pair has several."""
    program, number = PROGRAMS[name], [*PROGRAMS].index(name)
    for turn in range(3):
        mode, hardware = MODES[(number + turn) % len(MODES)], PROFILES[(number + turn) % len(PROFILES)]
        planned = sporax.plan(program.step, *program.args, devices=8, hardware=hardware, mode=mode, carry=program.carry)
        summary = planned.summary()
        assert "peak memory" in str(summary)
        assert 0 < summary.headline.seconds < 1


LIMITED = ("recurrent", "state space", "graph", "low rank", "contrastive", "scaled loss")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_is_kept_or_refused(name):
    program = PROGRAMS[name]
    options = {"devices": 8, "hardware": "tpu-v5p", "mode": "recursive", "carry": program.carry}
    limit = int(0.9 * peak_bytes(sporax.plan(program.step, *program.args, **options).result))
    try:
        planned = sporax.plan(program.step, *program.args, **options, memory=limit)
    except SporaxRuntimeError as error:
        assert "is the smallest plan" in str(error)  # noqa: PT017 -- no other answer is right
    else:
        assert peak_bytes(planned.result) <= limit


@pytest.mark.parametrize("name", compiled_collectives.PROGRAMS)
def test_eight_devices_compute_what_one_does_and_send_what_they_sent(name, tmp_path):
    args, executable = compiled_collectives.compiled(name, tmp_path)
    expected = PROGRAMS[name].step(*PROGRAMS[name].args)
    found, golden = collectives(executable.as_text()), json.loads(GOLDEN.read_text())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5), executable(*args), expected)
    before = golden["programs"][name]
    if golden["jax"] != jax.__version__:  # another XLA combines otherwise
        found, before = ({kind: entry["bytes"] for kind, entry in each.items()} for each in (found, before))
    assert found == before, "if that is meant, `python tests/corpus/compiled_collectives.py` writes the file again"
