"""Which variables of a pipeline are on the hosts: marked ones, all, or of each stage the largest that help."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from small_pipelines import ARGUMENTS, ROLES, WIDTH

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.graph import Role
from sporax.lowering.marks.host_transfer import is_on_host
from sporax.runtime.devices.global_view import Argument
from sporax.runtime.pipeline.hosts import notes_of_hosts, on_hosts, part_bytes
from sporax.runtime.pipeline.runner import compile_pipeline

BYTES = WIDTH * WIDTH * 4
STEP = [
    Argument(role, name, jax.ShapeDtypeStruct(array.shape, array.dtype), trainable=role is Role.PARAMETER)
    for (role, name), array in zip(ROLES, ARGUMENTS, strict=True)
]


def chosen(planned, above, within=-1, peaks=(1000.0, 1000.0), arguments=STEP):
    tags = {"host"} if above is None else {"host", f"offload above {above} within {within}"}
    return set(on_hosts(planned, arguments, tags, lambda _: peaks))


def test_marked_variables_or_all_of_them_are_sent_and_no_data(planned):
    assert chosen(planned, None) == set()
    assert chosen(planned, None, arguments=[STEP[0], replace(STEP[1], on_host=True), *STEP[2:]]) == {1}
    assert chosen(planned, 0) == {0, 1}


def test_weights_that_micro_batches_read_do_not_help_a_stage_that_is_too_large(planned):
    assert chosen(planned, 10) == set()


def test_the_fullest_host_counts(planned):
    """Both stages are driven by this process: two devices of each hold the weight of their stage."""
    everywhere = sum(2 * part_bytes(planned, position) for position in (0, 1))
    assert part_bytes(planned, 0) == BYTES
    assert chosen(planned, 0, within=everywhere) == {0, 1}
    with pytest.raises(SporaxRuntimeError, match=f"but {everywhere} bytes of Parameters and state"):
        chosen(planned, 0, within=everywhere - 1)


def test_a_pipeline_with_hosts_gives_the_same_and_says_what_travels(plan, settings, expected):
    planned = plan(hosts=lambda pipeline: frozenset({0}))
    assert planned.on_host == {0}
    updated, results = compile_pipeline(planned, settings().parallel)([jax.numpy.asarray(a) for a in ARGUMENTS])
    assert is_on_host(updated[0]) and not is_on_host(updated[1])
    for number, value in {**updated, **results}.items():
        np.testing.assert_allclose(value, expected[number], rtol=2e-5, atol=1e-6)
    held, sent = notes_of_hosts(planned, STEP)
    assert held.startswith(f"stage 0: host memory of each device: {BYTES} B of w0")
    # Fetched for the micro batches, and again by the update, which returns it.
    assert f"sends {BYTES} B to its host in 1 transfers a step, and fetches {2 * BYTES} B in 2" in sent
    assert notes_of_hosts(plan(), STEP) == ()
