"""All passes over a step: by tags, with the same results, and the compiler options that go with them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.lowering.marks.host_transfer import to_device, to_host, transfers
from sporax.lowering.marks.tags import new_tag
from sporax.lowering.passes import pass_order, pass_tags
from sporax.lowering.passes.recompute.recompute_blocks import Chosen


def step(written, read, data):
    (weight,), (x,) = written, data

    def loss(weight):
        with jax.named_scope(new_tag().scope):
            return jnp.sin(x @ weight).sum()

    return [weight - jax.grad(loss)(weight)], {"loss": loss(weight)}


ARGUMENTS = [jnp.eye(3)], [], [jnp.arange(6.0).reshape(2, 3)]


@pytest.mark.parametrize("tags", [set(), {"recompute"}, {"recompute", "host"}, {"offload"}])
def test_a_rewritten_step_gives_the_same_in_the_same_form(tags):
    program = pass_order.rewritten(step, tags)
    assert program.__name__ == "step"
    (expected,), results = step(*ARGUMENTS)
    (weight,), rewritten = jax.jit(program)(*ARGUMENTS)
    np.testing.assert_allclose(weight, expected, rtol=1e-6)
    np.testing.assert_allclose(rewritten["loss"], results["loss"], rtol=1e-6)


def test_passes_run_where_tags_request_them():
    def round_trip(written, read, data):
        return written, to_device(to_host(data))

    closed = jax.make_jaxpr(round_trip)(*ARGUMENTS)
    flat = pass_order.flat_for_plan(closed)
    assert len(transfers(pass_order.run_rewrites(flat, set())[0])) == 2
    assert transfers(pass_order.run_rewrites(flat, {"host"})[0]) == []


def test_what_is_computed_again_is_reported():
    closed = jax.make_jaxpr(step)(*ARGUMENTS)
    assert len(pass_order.run_rewrites(pass_order.flat_for_plan(closed), {"recompute"})[1]) == 1


@pytest.mark.parametrize(
    ("tags", "keeps"),
    [(set(), False), ({"host"}, False), ({"recompute"}, True), ({"offload"}, True), ({pass_order.AUTO}, True)],
)
def test_cpus_keep_barriers_where_work_is_repeated(tags, keeps):
    assert ("xla_disable_hlo_passes" in pass_tags.compiler_options(tags)) is keeps


def test_the_list_says_what_each_pass_is_requested_with():
    names = [(entry.summary.split(":")[0], sorted(entry.tags)) for entry in pass_order.PASSES]
    assert names == [
        ("recompute", ["recompute", "recompute auto"]),
        ("offload", ["offload", "offload kept", "offload to files"]),
        ("row updates", ["host"]),
        ("host work", ["host"]),
        ("round trips", ["host"]),
        ("block loops", ["blocks"]),
    ]


def test_passes_run_in_the_order_of_the_list(monkeypatch):
    ran = []

    def noting(entry):
        return replace(entry, run=lambda state: ran.append(entry.summary.split(":")[0]) or entry.run(state))

    monkeypatch.setattr(pass_order, "PASSES", tuple(map(noting, pass_order.PASSES)))
    program = pass_order.flat_for_plan(jax.make_jaxpr(step)(*ARGUMENTS))
    everything = {tag for entry in pass_order.PASSES for tag in entry.tags} - {pass_order.SAVED_IN_FILES}
    pass_order.run_rewrites(program, everything)
    assert ran == ["recompute", "offload", "row updates", "host work", "round trips", "block loops"]
    ran.clear()
    pass_order.run_rewrites(program, {"blocks"}, chosen=Chosen())
    assert ran == ["recompute", "block loops"]
