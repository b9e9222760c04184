"""Several processes drive the stages: homes of variables, small state for all, and who receives results."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_pipelines import ARGUMENTS, ROLES, tied, training

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.graph import Role
from sporax.runtime.devices.global_view import sharding_of
from sporax.runtime.pipeline import processes
from sporax.runtime.pipeline.processes import ManyProcesses, ProcessBroadcast
from sporax.runtime.pipeline.stage_transfer import Line
from sporax.runtime.session import SESSION


def test_a_variable_is_kept_where_it_is_updated(planned, plan):
    assert [{device.id for device in processes.storage_of(planned, place).device_set} for place in (0, 1)] == [
        {0, 1},
        {2, 3},
    ]
    shared = plan(training(tied))  # both stages read the first weight
    assert {device.id for device in processes.storage_of(shared, 0).device_set} == {0, 1}
    assert processes.storage_of(planned, 7) is None


def test_data_and_small_state_are_distinguished(planned):
    assert [processes.is_data(planned, position) for position in range(4)] == [False, False, True, True]
    assert [role for role, _ in ROLES].count(Role.STATE) == 0
    assert not any(processes.is_broadcast(planned, position) for position in range(4))

    def of(role, shape):
        inputs = (SimpleNamespace(role=role, tensor=0),)
        graph = SimpleNamespace(inputs=inputs, tensors=[SimpleNamespace(shape=shape)])
        return SimpleNamespace(micro=SimpleNamespace(step=SimpleNamespace(graph=graph, constants=())))

    assert processes.is_broadcast(of(Role.STATE, (8, 8)), 0)
    assert not processes.is_broadcast(of(Role.STATE, (8, 9)), 0)
    assert not processes.is_broadcast(of(Role.PARAMETER, ()), 0)


def test_rows_of_a_process_are_placed_on_its_stage(planned):
    home = processes.storage_of(planned, 1)
    rows = np.arange(8.0).reshape(2, 4)
    placed = processes.placed_rows(rows, (2, 4), home, ParallelConfig(device_num=4))
    assert placed.sharding == home
    np.testing.assert_array_equal(placed, rows)


def test_with_one_process_no_one_is_notified(planned):
    home = processes.storage_of(planned, 0)
    broadcast = ProcessBroadcast({("result", 2): (home, jax.ShapeDtypeStruct((), jnp.float32))}, Line())
    assert broadcast.transfers == {}
    assert broadcast({}) == {}


def test_processes_elsewhere_receive_through_their_first_device(planned, monkeypatch):
    devices = [SimpleNamespace(process_index=number // 2, id=number) for number in range(6)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    meshes = []
    monkeypatch.setattr(processes, "Mesh", lambda array, names, axis_types: meshes.append(array) or "mesh")
    monkeypatch.setattr(processes, "NamedSharding", lambda mesh, spec: mesh)
    home = SimpleNamespace(mesh=SimpleNamespace(devices=np.array(devices[2:4])))
    assert processes._receivers(home) == "mesh"
    assert [device.id for device in meshes[0]] == [0, 4]
    everywhere = SimpleNamespace(mesh=SimpleNamespace(devices=np.array(devices)))
    assert processes._receivers(everywhere) is None


def test_results_of_other_processes_are_zeros_unless_they_are_sent(planned, settings, monkeypatch):
    spec = jax.ShapeDtypeStruct((3,), jnp.float32)
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    first, second = (sharding_of(planned.chunks[n].plan.inputs[0], planned.chunks[n].plan.mesh) for n in (0, 1))
    monkeypatch.setattr(processes, "is_here", lambda home: home.device_set == first.device_set)
    monkeypatch.setattr(processes, "without_shards", lambda array, home: "nowhere")
    results = {2: (second, scalar), 3: (second, spec)}
    many = ManyProcesses(planned, settings().parallel, Line(), {0, 1}, results)
    assert many.elsewhere == {1: "nowhere"}
    assert many.shapes[:4] == [argument.shape for argument in ARGUMENTS]
    updated, collected = many.collected({0: "w0"}, {})
    assert updated == {0: "w0", 1: "nowhere"}
    np.testing.assert_array_equal(collected[3], [0, 0, 0])
    broadcast = ManyProcesses(planned, settings(pipeline_result_broadcast=True).parallel, Line(), set(), results)
    assert broadcast.dummies == {}


def test_the_watchdog_is_notified_of_a_step_and_explains_its_failure(join, monkeypatch):
    join()
    calls = []

    def explain(name, error):
        return SporaxRuntimeError(f"{name}: {error}")

    watchdog = SimpleNamespace(
        note_start=lambda name, devices: calls.append(name), note_end=lambda zero: calls.append("end"), explain=explain
    )
    assert processes.together("a step", lambda: 5) == 5
    assert calls == []
    monkeypatch.setattr(SESSION, "watchdog", watchdog)
    assert processes.together("a step", lambda: 5) == 5
    assert calls == ["a step", "end"]
    with pytest.raises(SporaxRuntimeError, match="^a step: connection closed$"):
        processes.together("a step", lambda: (_ for _ in ()).throw(RuntimeError("connection closed")))


@pytest.mark.parametrize(
    ("own", "stages", "fits"), [(4, 2, True), (2, 2, True), (8, 2, True), (3, 2, False), (6, 2, False)]
)
def test_a_process_has_whole_stages_or_a_part_of_one(join, monkeypatch, own, stages, fits):
    config = ParallelConfig(device_num=8, pipeline_stages=stages)
    processes.check_processes(config)  # one process has all
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "local_device_count", lambda: own)
    with pytest.raises(
        SporaxRuntimeError, match=r"pipeline_stages=2 over 2 processes needs the ranks joined: call init\(\) first\.$"
    ):
        processes.check_processes(config)
    join()
    if fits:
        processes.check_processes(config)
        return
    with pytest.raises(
        SporaxRuntimeError,
        match=f"the devices of a process must be whole stages .* 2 processes have {own} devices each",
    ):
        processes.check_processes(config)
