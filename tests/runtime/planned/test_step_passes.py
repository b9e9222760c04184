"""The list of passes: what each adds to the state of a step, and that all ways to a plan take the same list."""

from dataclasses import FrozenInstanceError, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.graph import Role
from sporax.ir.placement import Placement
from sporax.planner.memory.peak import memory_of
from sporax.planner.memory.xla_cpu.kernel_fusion import XLA_CPU
from sporax.report.summarize import summarize
from sporax.runtime.devices.global_view import Argument
from sporax.runtime.planned import compiled_plans, step_passes
from sporax.runtime.planned.compiled_plans import CompiledPlans, device_bytes
from sporax.runtime.planned.step import PlannedStep
from sporax.runtime.planned.step_passes import FIRST_PASSES, STEP_PASSES, TRIAL_PASSES, StepState, run_passes
from sporax.runtime.session import SESSION

X, W = np.ones((8, 4), np.float32), np.ones((4, 4), np.float32)


def state(**config):
    settings = PlanSettings(ParallelConfig(**{"device_num": 8, "parallel_mode": "semi_auto_parallel", **config}))
    arguments = (Argument(Role.PARAMETER, "w", jnp.asarray(W), trainable=True), Argument(Role.DATA, "input 0", X))
    jaxpr = jax.make_jaxpr(lambda w, x: [w - 0.1 * (x.T @ (x @ w))])(W, X)
    return StepState(name="update", jaxpr=jaxpr, arguments=arguments, num_updated=1, settings=settings)


def searched():
    return state(parallel_mode="auto_parallel", search_mode="dynamic_programming")


def test_the_list_makes_a_step_that_runs():
    planned = run_passes(STEP_PASSES, state()).planned
    assert isinstance(planned, PlannedStep)
    (updated,) = planned.run(planned.lower().compile(), [jnp.asarray(W)], [X])
    np.testing.assert_allclose(updated, W - 0.1 * (X.T @ (X @ W)), rtol=1e-6)


def test_a_pass_leaves_the_state_before_it_as_it_was():
    before = state()
    after = step_passes.read(before)
    assert before.read is None
    assert len(after.ingested.graph.inputs) == len(after.ingested.constants) + 2
    with pytest.raises(FrozenInstanceError):
        after.read = None


def test_plans_that_are_made_on_the_way_take_a_part_of_the_list():
    positions = [STEP_PASSES.index(one) for one in TRIAL_PASSES]
    assert positions == sorted(positions)
    assert set(FIRST_PASSES) < set(TRIAL_PASSES)
    graph, plan = step_passes._first_plan(state(), state().jaxpr)
    assert plan == run_passes(FIRST_PASSES, state()).plan_result.plan
    assert plan == step_passes._trial_plan(state(), state().jaxpr, True)[1]
    assert plan.graph == graph.fingerprint()


def test_data_is_requested_as_the_strategy_says_and_variables_by_what_reads_them():
    ready = run_passes((step_passes.read, step_passes.arrange_axes), state(parallel_mode="auto_parallel"))
    request = step_passes._request(ready)
    assert request.is_searched
    assert [request.placements.get(entry.tensor) for entry in ready.ingested.graph.inputs[-2:]] == [
        None,
        Placement(((0, 1, 2), ())),
    ]
    assert request.memory_bytes == request.profile.memory_bytes


def test_passes_of_one_stage_leave_pipelines_alone():
    pipeline = state(pipeline_stages=2)
    read = step_passes.read(pipeline)
    for one in (step_passes.arrange_axes, step_passes.check_tables, step_passes.take_blocks, step_passes.plan):
        assert one(read) is read
    assert step_passes.plan_stages(state()).pipeline is None


def test_strategies_that_exceed_the_memory_are_refused():
    small = state()
    planned = run_passes(TRIAL_PASSES, replace(small, settings=replace(small.settings, limit_bytes=10)))
    with pytest.raises(SporaxRuntimeError, match=r"^For 'memory', the step must fit into 10 B per device, but with"):
        step_passes.check_memory(planned)


def test_a_limit_holds_for_the_compiled_step_which_is_not_compiled_again(monkeypatch):
    free = run_passes(STEP_PASSES, searched())
    assert free.compiled is None  # nothing is compiled without a limit
    limit = free.plan_result.search.statistics["peak_bytes"]
    near = replace(free.settings, max_device_bytes=limit)
    within = run_passes(STEP_PASSES, replace(searched(), settings=near))
    planned, statistics = within.planned, within.plan_result.search.statistics
    assert statistics["compiled_bytes"] == device_bytes(within.compiled.executable) <= limit
    assert planned.compile("update") is within.compiled.executable is planned.executable
    np.testing.assert_allclose(
        planned.run(planned.executable, [jnp.asarray(W)], [X])[0], W - 0.1 * (X.T @ (X @ W)), rtol=1e-6
    )
    assert "compiled of" in str(summarize(planned.graph, planned.plan, planned.search, planned.model))

    # A compiler that needs more than was predicted: another plan is taken.
    monkeypatch.setattr(compiled_plans, "device_bytes", lambda executable: limit + 1)
    less = run_passes(STEP_PASSES, replace(searched(), settings=near))
    assert less.plan_result.search.statistics["peak_bytes"] < limit
    assert less.plan_result.plan != within.plan_result.plan
    assert less.compiled is None


def test_only_the_plan_that_runs_here_is_compiled(monkeypatch):
    limit = run_passes(TRIAL_PASSES, searched()).plan_result.search.statistics["peak_bytes"]
    monkeypatch.setattr(CompiledPlans, "measure", lambda plans, result: pytest.fail("compiled"))
    settings = replace(searched().settings, max_device_bytes=limit)
    near = replace(searched(), settings=settings)
    assert step_passes._trial_plan(near, near.jaxpr, False)
    others = replace(near, settings=replace(settings, hardware="h100"))
    monkeypatch.setattr(SESSION, "plan_only", True)
    assert run_passes(TRIAL_PASSES, near).compiled is None
    monkeypatch.setattr(SESSION, "plan_only", False)
    assert run_passes(TRIAL_PASSES, others).compiled is None


def test_strategies_near_the_memory_are_compiled():
    needed = memory_of(
        *(lambda made: (made.ingested.graph, made.plan_result.plan))(run_passes(TRIAL_PASSES, state())), XLA_CPU
    )
    near = replace(state(), settings=replace(state().settings, limit_bytes=needed.peak_bytes))
    planned = run_passes(STEP_PASSES, near).planned
    assert device_bytes(planned.executable) <= needed.peak_bytes
