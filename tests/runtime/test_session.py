"""The session: what a process knows of its job, and who is notified of its plans."""

import subprocess
import sys
import threading

import pytest

from sporax.runtime.session import SESSION, Session


def test_listeners_are_notified_of_every_plan_in_order():
    received = []
    session = Session(
        plan_listeners=[lambda plan: received.append(("first", plan)), lambda plan: received.append(("second", plan))]
    )
    session.announce("plan")
    assert received == [("first", "plan"), ("second", "plan")]


def test_an_exception_of_a_listener_reaches_the_caller():
    def stop(_):
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        Session(plan_listeners=[stop]).announce("plan")


def test_a_planned_function_is_announced_to_the_listeners_of_this_process():
    import jax.numpy as jnp

    import sporax

    plans = []
    SESSION.plan_listeners.append(plans.append)
    try:
        planned = sporax.plan(jnp.dot, jnp.ones((8, 8)), jnp.ones((8, 8)))
    finally:
        SESSION.plan_listeners.remove(plans.append)
    assert plans == [planned]


def test_looking_at_the_session_loads_neither_jax_nor_the_searches():
    check = (
        "import sys, sporax.runtime.session; sys.exit('jax' in sys.modules or 'sporax.planner.search' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_contexts_of_a_trace_belong_to_one_thread():
    session, seen = Session(), []
    session.tracing.owner = 3

    def look():
        seen.append((session.tracing.owner, session.tracing.frame, session.tracing.latest))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [(None, None, ())]
    assert session.tracing.owner == 3
