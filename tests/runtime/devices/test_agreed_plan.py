"""One plan for all processes: what rank 0 sends the others of a search."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from compiler_flags import COMPILER
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.ir.config.parallel_config import ParallelConfig, ParallelMode
from sporax.ir.config.plan_settings import PlanSettings
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import Role
from sporax.ir.hardware import load_profile
from sporax.lowering.ingest.ingest import ingest
from sporax.planner import PlanRequest, make_plan
from sporax.runtime.devices import agreed_plan as agreed

X, W = jnp.ones((8, 4)), jnp.ones((4, 4))


@pytest.fixture
def request_():
    graph = ingest(jax.make_jaxpr(jnp.dot)(X, W), [(Role.DATA, "x"), (Role.PARAMETER, "w")]).graph
    parallel = ParallelConfig(device_num=4, parallel_mode=ParallelMode.AUTO_PARALLEL)
    return PlanRequest(graph, DeviceMatrix((2, 2)), PlanSettings(parallel), load_profile("cpu"))


@pytest.fixture
def wire(monkeypatch):
    """What rank 0 has broadcast, for the others to receive in the same order."""
    sent = []

    def send(array):
        sent.append(array)
        return array

    monkeypatch.setattr(agreed, "_broadcast", send)

    def receive(request):
        waiting = iter(sent)
        monkeypatch.setattr(agreed, "_broadcast", lambda array: next(waiting))
        return agreed._read(request, agreed._received())

    return receive


def found(outcome):
    future = Future()
    future.set_exception(outcome) if isinstance(outcome, Exception) else future.set_result(outcome)
    return future


def test_one_process_plans_by_itself(request_):
    assert agreed.agreed_plan(request_).plan == make_plan(request_).plan


def test_others_receive_the_plan_and_what_the_search_says_of_it(request_, wire):
    result = make_plan(request_)
    agreed._sent(found(result))
    assert wire(request_) == result


def test_others_wait_while_rank_0_is_busy(request_, wire, monkeypatch):
    monkeypatch.setattr(agreed, "_BEAT_SECONDS", 0.01)
    result, future = make_plan(request_), Future()
    beats, send = [], agreed._broadcast

    def beat(array):
        beats.append(array)
        if len(beats) == 3:
            future.set_result(result)
        return send(array)

    monkeypatch.setattr(agreed, "_broadcast", beat)
    agreed._sent(future)
    assert [int(array[0]) for array in beats[:3]] == [0, 0, 0]
    assert wire(request_) == result


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SporaxValueError("For 'x', no."), SporaxValueError),
        (SporaxRuntimeError("For 'dynamic', nothing fits."), SporaxRuntimeError),
        (ZeroDivisionError("of another library"), SporaxRuntimeError),
    ],
)
def test_errors_reach_all_ranks(request_, wire, error, kind):
    agreed._sent(found(error))
    with pytest.raises(kind, match=str(error)):
        wire(request_)


# -------------------------------------------------------------------------------------------------------- two processes


def of_two_processes(devices):
    """What two processes of plain JAX have found, each with so many devices."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    flags = f"{COMPILER} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, str(Path(__file__).with_name("plan_job.py")), str(port)]
    started = [
        subprocess.Popen(
            [*command, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=200) for process in started]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    for process, (_, errors) in zip(started, outputs, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(text.splitlines()[-1]) for text, _ in outputs]


def test_processes_of_plain_jax_search_once_and_have_one_plan():
    first, second = of_two_processes(2)
    assert (first["devices"], second["devices"]) == (4, 4)
    assert (first["searches"], second["searches"]) == (3, 0)  # one for each call of `sporax.plan`
    assert first["plan"] == second["plan"]
    # The whole result: what was predicted, and how long process 0 has searched for it.
    assert (first["cost"], first["seconds"]) == (second["cost"], second["seconds"])
    assert first["equal"] and second["equal"]
    # What fits nowhere is an error in both; the plan of another function is one where it is received.
    assert first["errors"] == second["errors"][:1]
    assert "B per device" in first["errors"][0]
    assert second["errors"][1].startswith("For 'Plan', ")
