"""Recorded steps: only those requested, with Cell paths, collectives by their purpose and tasks of a pipeline by name."""

import gzip
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sporax
from sporax.launch.cli import main
from sporax.mindspore import Tensor, context, nn
from sporax.runtime.process import recording
from sporax.runtime.process.recorded_operators import instructions_of
from sporax.runtime.process.recording import StepRecording
from sporax.runtime.session import SESSION


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up = nn.Dense(8, 16)
        self.down = nn.Dense(16, 4)
        self.down.matmul.shard(((1, 2), (1, 2)))

    def construct(self, x):
        return self.down(self.up(x)).sum()


@pytest.fixture
def record(tmp_path, names_of_programs):
    """``record(first, last)``: these steps are recorded."""
    others = set(SESSION.executables)  # programs of other tests that still exist: they may have the names of this one's
    SESSION.executables.clear()

    def begin(first, last):
        folder = tmp_path / "profile"
        recording.begin({"SPORAX_PROFILE": str(folder), "SPORAX_PROFILE_STEPS": f"{first}:{last}"})
        return folder

    yield begin
    SESSION.recording = None
    SESSION.executables.update(others)
    context.reset_auto_parallel_context()
    context.set_context(mode=context.PYNATIVE_MODE)


def trace_of(folder):
    return json.loads(gzip.decompress((folder / "rank_0" / "perfetto.json.gz").read_bytes()))["traceEvents"]


def test_a_sharded_step(record, capsys):
    context.set_context(mode=context.GRAPH_MODE)
    context.set_auto_parallel_context(device_num=4, parallel_mode="semi_auto_parallel")
    net = Net()
    step = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    folder = record(1, 3)
    for _ in range(4):
        step(Tensor(np.ones((8, 8), np.float32)))
    recording.end()
    events = trace_of(folder)
    slices = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in slices if event["cat"] == "host"] == ["step 1", "step 2"]
    assert {event["pid"] for event in slices if event["cat"] == "compute"} == {1, 2, 3, 4}
    cells = {event["args"]["cell"] for event in slices if event["cat"] == "compute"}
    # An operator that was fused with its bias belongs to the layer.
    assert {"network.down.matmul", "optimizer"} <= cells
    assert any(cell.startswith("network.up") for cell in cells)
    sums = [event["name"] for event in slices if event["cat"] == "collective"]
    # Two steps on four devices; the product over a sharded dimension leaves partial sums.
    assert len([name for name in sums if name.startswith("network.down.matmul: all-reduce")]) == 8
    assert any("gradient of up.weight" in name for name in sums)
    assert len(slices) < 1000  # no frames of Python
    printed = capsys.readouterr().err
    assert "sporax: steps 1 to 2: " in printed
    assert "network.down.matmul" in printed
    assert main(["profile", str(folder), "--depth", "2"]) == 0
    assert "network.down " in capsys.readouterr().out


def test_functions_of_plain_jax(record):
    folder = record(1, 2)

    def step(w, x):
        with jax.named_scope("model"):
            return w - 0.1 * jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)

    w, x = jnp.ones((8, 8)), jnp.ones((4, 8))
    planned = sporax.plan(step, w, x, devices=2)
    run = planned.function()
    for _ in range(2):
        w = run(w, x)
    assert any(event.get("args", {}).get("cell") == "model" for event in trace_of(folder))


def test_a_program_that_ends_too_early_is_reported(record, capsys):
    folder = record(5, 8)
    SESSION.recording.around(lambda: 0, ends_step=True)
    recording.end()
    assert (
        "has recorded nothing: the program ended after 1 steps, and steps 5:8 were requested" in capsys.readouterr().err
    )
    assert not folder.exists()
    record(0, 3)
    SESSION.recording.around(lambda: 0, ends_step=True)
    recording.end()
    assert "has recorded 1 of 3 steps: the program ended after 1" in capsys.readouterr().err


def test_programs_inside_of_others_and_those_that_update_nothing_are_no_steps(tmp_path):
    counting = StepRecording(tmp_path, 5, 6)
    counting.around(lambda: 0)
    counting.around(lambda: counting.around(lambda: 0, ends_step=True))
    assert counting.done == 0


def test_combined_collectives_name_all_that_they_are_for():
    text = (
        "HloModule jit_step\n"
        '  %all-reduce = (f32[2]{0}, f32[3]{0}) all-reduce(%a, %b), metadata={op_name="jit(step)/shard_map/'
        '(step/communication:gradient of a/psum:step/communication:gradient of b/psum)"}\n'
    )
    found = instructions_of([text])["jit_step", "all-reduce"]
    assert (found.path, found.purpose) == ("gradient of a and 1 more", "gradient of a and 1 more")


def test_folders_without_a_recording_are_refused(tmp_path, capsys):
    assert main(["profile", str(tmp_path)]) == 2
    assert "has no step_times.json" in capsys.readouterr().err
    (tmp_path / "step_times.json").write_text('{"rank": "some"}')
    assert main(["profile", str(tmp_path)]) == 2
    assert "must be as it was written, but 'rank'" in capsys.readouterr().err
