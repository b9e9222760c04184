"""`sporax plan`: the plan of a script's first step, and nothing after it."""

import functools
import json
import re

import pytest

SCRIPT = """
import sys
import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import init

ms.set_context(mode=ms.GRAPH_MODE)
init()
if "--alone" not in sys.argv:
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor(np.ones((16, 8), np.float32)), name="w")
        self.matmul = ops.MatMul().shard(((2, 4), (4, 1)))

    def construct(self, x):
        return self.matmul(x, self.w)

print("arguments", sys.argv[1:])
try:
    print("the result is", Net()(Tensor(np.ones((8, 16), np.float32))).shape)
except Exception as error:
    print("caught", error)
"""


@pytest.fixture
def script(write):
    return write("script.py", SCRIPT)


@pytest.fixture
def plan(run):
    """Run `sporax plan …` to its end."""
    return functools.partial(run, "plan")


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        (
            ["--devices", "8", "--json", "plan.json", "--html", "plan.html", "script.py", "--epochs", "2"],
            "['--epochs', '2']",
        ),
        (
            ["script.py", "--devices", "8", "--json=plan.json", "--html=plan.html", "--", "--devices", "9"],
            "['--devices', '9']",
        ),
    ],
)
def test_it_shows_the_plan_and_stops(run, script, tmp_path, words, passed):
    done = run("plan", *words)
    assert done.returncode == 0, done.stderr
    assert f"arguments {passed}" in done.stdout
    assert "Plan for 8 devices" in done.stdout
    assert "matmul MatMul" in done.stdout
    assert "the result is" not in done.stdout
    assert "caught" not in done.stdout
    value = json.loads((tmp_path / "plan.json").read_text())
    assert value["num_devices"] == 8
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "Plan for 8 devices" in page


def test_a_plan_by_hand_has_time_throughput_and_memory_against_the_limit(plan, script, tmp_path):
    done = plan("--devices", "8", "--hardware", "h100", "--memory", "2MB", "--json", "plan.json", "script.py")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "h100" in text
    assert " samples/s" in text
    assert " of 2 MB" in text
    value = json.loads((tmp_path / "plan.json").read_text())
    assert value["search"] is None
    found = value["headline"]
    assert (found["hardware"], found["samples"], found["limit_bytes"]) == ("h100", 8, 2_000_000)
    assert found["samples_per_second"] == pytest.approx(8 / found["seconds"])


def test_on_simulated_devices_a_sentence_says_what_the_figures_mean(plan, script):
    assert "share the cores of one machine" in " ".join(plan("--devices", "8", "script.py").stdout.split())
    assert "share the cores" not in " ".join(plan("--devices", "8", "--hardware", "h100", "script.py").stdout.split())


def test_more_steps_are_planned_one_after_another_and_none_runs(plan, write, tmp_path):
    again = "    print('and', abs(Net()(Tensor(np.ones((8, 16), np.float32))).asnumpy()).max())\nexcept Exception"
    write("script.py", SCRIPT.replace("except Exception", again, 1))
    done = plan("--devices", "8", "--steps", "2", "--json", "plan.json", "script.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("Step 1\n") < done.stdout.index("the result is (8, 8)") < done.stdout.index("Step 2\n")
    assert "and" not in done.stdout.split("Step 2")[1].splitlines()
    assert json.loads((tmp_path / "plan-2.json").read_text())["num_devices"] == 8
    done = plan("--devices", "8", "--steps", "3", "script.py")
    assert (done.returncode, done.stderr.strip()) == (
        0,
        "sporax plan: 'script.py' has ended with 2 of 3 steps planned.",
    )
    assert "and 0.0" in done.stdout


def test_plain_jax_functions_are_shown_too(plan, write):
    words = "import jax.numpy as jnp, sporax\nw = jnp.ones((8, 8))\nsporax.plan(jnp.dot, w, w)\nprint('afterwards')\n"
    write("script.py", words)
    done = plan("--devices", "8", "--hardware", "h200", "--mode", "recursive_programming", "script.py")
    assert done.returncode == 0, done.stderr
    assert "dot_general" in done.stdout
    assert "recursive" in done.stdout
    assert "afterwards" not in done.stdout


def test_hardware_mode_and_memory_win_over_the_script(plan, script):
    flags = ["--devices", "8", "--hardware", "h200", "--mode", "dynamic_programming", "--memory", "80GB"]
    done = plan("script.py", *flags)
    assert done.returncode == 0, done.stderr
    assert "Plan for 8 devices" in done.stdout
    assert "predicted time of a step" in done.stdout


def test_mindspores_cost_model_can_be_named(plan, script):
    done = plan("script.py", "--devices", "8", "--hardware", "symbolic", "--mode", "recursive_programming")
    assert done.returncode == 0, done.stderr
    assert "weighted bytes" in done.stdout


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--mode", "guess"], "--mode must be one of"),
        (["--hardware", "abacus"], "abacus"),
        (["--memory", "lots"], "a text like '80GB'"),
        (["--memory", "0"], "a number of bytes above 0"),
    ],
)
def test_wrong_settings_are_refused(run, script, flags, words):
    done = run("plan", "script.py", *flags)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_script_without_such_a_step_is_reported(plan, script):
    done = plan("--devices", "8", "script.py", "--alone", "--memry", "80GB")
    assert done.returncode == 3
    assert "the result is (8, 8)" in done.stdout
    assert "'script.py --alone --memry 80GB' has ended without a step that is sharded over devices" in done.stderr
    assert "'--memry' was handed on to the script; should it be '--memory'?" in done.stderr


def test_a_flag_behind_the_scripts_own_arguments_is_reported(plan, script):
    done = plan("--devices", "8", "script.py", "--alone", "--memory", "80GB")
    assert done.returncode == 3
    assert "'--memory' was handed on to the script; flags of this command stand before the script's own" in done.stderr


def test_a_script_that_refuses_a_misspelt_flag_is_helped(run, tmp_path):
    (tmp_path / "refuses.py").write_text("import sys; sys.exit('unknown flag')")
    done = run("plan", "--devices", "8", "refuses.py", "--memry", "80GB")
    assert done.returncode == 1
    assert "unknown flag" in done.stderr
    assert "'--memry' was handed on to the script; should it be '--memory'?" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--devices", "6"], "the number of devices must be 1, 2, 4 or a multiple of 8, but got 6"),
        (
            ["--devices", "8", "--mode", "recursive_programming", "--memory", "100B"],
            "For 'memory', the plan must fit into",
        ),
    ],
)
def test_what_cannot_be_planned_is_reported_with_the_scripts_line_and_no_traceback(plan, write, flags, words):
    write("script.py", SCRIPT.replace("try:", "if True:").replace("except Exception as error:", "if False:"))
    done = plan(*flags, "script.py")
    assert done.returncode == 1
    assert done.stderr.startswith("sporax plan: script.py, line 24: For ")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (
            "Infinity",
            "'strategies.json' must be a strategy file, but got: the text is no JSON: NaN and Infinity are no",
        ),
        ("1.5", "For 'strategies.json', an operator must have an entry"),
        ("0", "For 'strategies.json', an operator must have an entry"),
    ],
)
def test_a_strategy_file_with_impossible_numbers_is_wrong_input(plan, write, number, words):
    strategy = f'{{"parallel_strategy": [[{number}, 1], [1, 1]], "stage": 0}}'
    write("strategies.json", f'{{"parallel_strategy_item": {{"Net.matmul/MatMul-op0": {strategy}}}}}')
    write(
        "script.py",
        SCRIPT.replace("try:", "if True:")
        .replace("except Exception as error:", "if False:")
        .replace('l")', "l\", op_strategy_load_file='strategies.json')"),
    )
    done = plan("--devices", "8", "script.py")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_a_file_that_cannot_be_written_is_reported_after_the_plan(plan, script, tmp_path):
    (tmp_path / "plan.html").symlink_to("nowhere/plan.html")
    done = plan("--devices", "8", "--html", "plan.html", "script.py")
    assert done.returncode == 2
    assert "Plan for 8 devices" in done.stdout
    assert "must be a file that can be written, but No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("ending", "code"), [("raise KeyError('x')", 1), ("sys.exit(7)", 7), ("sys.exit('no')", 1)])
def test_a_script_that_fails_before_keeps_its_exit_code(run, write, ending, code):
    write("failing.py", f"import sys\n{ending}\n")
    done = run("plan", "failing.py")
    assert done.returncode == code
    assert "without a step" not in done.stderr
    assert "KeyError" in done.stderr or code != 1 or "no" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--devices", "0", "script.py"], "--devices must be 2 or more for a plan to shard anything, but got 0"),
        (["script.py", "--devices", "-1"], "--devices must be 2 or more for a plan to shard anything, but got -1"),
        (["--devices", "1000000", "script.py"], "their number must be at most 16384 in one process, but got 1000000"),
        (["--steps", "0", "script.py"], "--steps must be 1 or more, but got 0"),
        (["script.py", "--devices", "many"], "--devices must be a number, but got 'many'"),
        (["script.py", "--json"], "--json must have a value"),
        (["--json", "nowhere/plan.json", "script.py"], "a directory that exists, but got 'nowhere/plan.json'"),
        (["--html", "nowhere/plan.html", "script.py"], "a directory that exists, but got 'nowhere/plan.html'"),
        (["missing.py"], "'missing.py'"),
        (["python", "script.py"], "must be a Python script or module"),
    ],
)
def test_mistakes_on_the_command_line(run, script, words, message):
    done = run("plan", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


TRAINING = """
import sys
import numpy as np
import mindspore as ms
from mindspore import Tensor, dataset, nn
from mindspore.train import Model, ModelCheckpoint

if "--graph" in sys.argv:
    ms.set_context(mode=ms.GRAPH_MODE)
x, y = np.ones((32, 16), np.float32), np.zeros(32, np.int32)
net = nn.SequentialCell(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 4))
loss, optimizer = nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9)
if "--loop" in sys.argv:
    gradient = ms.value_and_grad(lambda x, y: loss(net(x), y), None, optimizer.parameters)
    value, gradients = gradient(Tensor(x), Tensor(y))
    optimizer(gradients)
else:
    data = dataset.NumpySlicesDataset((x, y), ["x", "y"]).batch(16)
    Model(net, loss, optimizer).train(2, data, callbacks=[ModelCheckpoint("net", "checkpoints")])
print("trained")
"""


@pytest.mark.parametrize("flags", [[], ["--graph"], ["--loop"]])
@pytest.mark.sampled(1)
def test_a_script_without_a_parallel_mode_is_planned_at_its_first_training_step(plan, write, tmp_path, flags):
    write("script.py", TRAINING)
    done = plan("--devices", "8", "script.py", *flags)
    assert done.returncode == 0, done.stderr
    assert "Plan for 8 devices" in done.stdout
    assert "trained" not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_planning_several_steps_writes_no_checkpoints(plan, write, tmp_path):
    write("script.py", TRAINING)
    done = plan("--devices", "8", "--steps", "9", "script.py")
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stdout  # the steps gave zeros
    assert not (tmp_path / "checkpoints").exists()


def test_on_one_device_nothing_is_trained_either(plan, write, tmp_path):
    write("script.py", TRAINING)
    done = plan("script.py")
    assert done.returncode != 0
    assert "`--devices 8` simulates eight" in done.stderr
    assert "trained" not in done.stdout


def test_devices_win_over_a_call_of_plan_inside_the_script(plan, write):
    words = "import jax.numpy as jnp, sporax\nw = jnp.ones((8, 8))\nsporax.plan(jnp.dot, w, w, devices=2)\n"
    write("script.py", words)
    done = plan("--devices", "8", "script.py")
    assert done.returncode == 0, done.stderr
    assert "Plan for 8 devices" in done.stdout


def test_a_saved_plan_for_another_number_of_devices_is_refused(plan, write):
    words = (
        "import jax.numpy as jnp, os, sporax\nw = jnp.ones((8, 8))\nnumber = os.environ.pop('SPORAX_PLAN_DEVICES')\n"
        "from sporax.runtime.planned import function\nsaved = function._planned(jnp.dot, (w, w), 2, '', 'dynamic', {}, None, {}, None, None,"
        " function.Called((), ()), None, ())\n"
        "os.environ['SPORAX_PLAN_DEVICES'] = number\nsporax.plan(jnp.dot, w, w, saved=saved.plan.to_json())\n"
    )
    write("script.py", words)
    done = plan("--devices", "8", "script.py")
    assert done.returncode == 2
    assert "the saved plan is for 2 devices, but `sporax plan --devices` has 8" in done.stderr


def test_a_script_that_goes_on_after_its_plan_trains_nothing(plan, write):
    stubborn = SCRIPT.replace("except Exception", "except BaseException")
    write("script.py", stubborn + "sys.exit(5)\n")
    done = plan("--devices", "8", "script.py")
    assert done.returncode == 0, done.stderr
    assert "the result is" not in done.stdout
    assert "Plan for 8 devices" in done.stdout


IN_TWO_CALLS = """
import sys
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE if "pynative" in sys.argv else ms.GRAPH_MODE)
net = nn.Dense(256, 128)
optimizer = nn.Adam(net.trainable_params(), 1e-3)
with_loss = nn.WithLossCell(net, nn.MSELoss())
x, y = Tensor(np.ones((64, 256), np.float32)), Tensor(np.zeros((64, 128), np.float32))
gradients = ms.value_and_grad(with_loss, None, optimizer.parameters)
if "cell" in sys.argv:
    gradients = nn.ForwardValueAndGrad(with_loss, optimizer.parameters, get_by_list=True)
step = nn.TrainOneStepCell(with_loss, optimizer)
for _ in range(2):
    if "step" in sys.argv:
        step(x, y)
    else:
        loss, grads = gradients(x, y)
        if "clip" in sys.argv:
            grads = ops.clip_by_global_norm(grads, 1.0)
        if "alone" not in sys.argv:
            optimizer(grads)
    print("a step has run")
"""
MOMENTS = "of 263 kB"  # two for each of the (256 + 1) * 128 numbers


@pytest.mark.parametrize("way", ["pynative step", "pynative", "graph", "graph cell", "pynative clip"])
@pytest.mark.sampled(2)
def test_the_optimizer_is_part_of_the_plan_in_both_modes(plan, write, way):
    write("script.py", IN_TWO_CALLS)
    done = plan("--devices", "8", "--hardware", "h100", "script.py", *way.split())
    assert done.returncode == 0, done.stderr
    (state,) = [line for line in done.stdout.splitlines() if line.startswith("optimizer state")]
    assert MOMENTS in state
    assert ("Warning: What is done with gradients between" in done.stdout) == ("clip" in way)
    assert "a step has run" not in done.stdout


def test_gradients_without_an_optimizer_are_planned_and_their_headline_says_it(plan, write):
    write("script.py", IN_TWO_CALLS)
    done = plan("--devices", "8", "--hardware", "h100", "--json", "plan.json", "script.py", "pynative", "alone")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("Plan for 8 devices"))
    assert lines[head + 1].startswith("Warning: The optimizer is missing from this plan")


def test_steps_of_two_calls_are_counted_as_one(plan, write):
    write("script.py", IN_TWO_CALLS)
    done = plan("--devices", "8", "--hardware", "h100", "--steps", "2", "script.py", "pynative")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(MOMENTS) == 2
    assert done.stdout.count("a step has run") == 1


def test_strategies_that_need_more_than_the_memory_are_an_error(plan, script):
    """The output of 8 by 8 numbers alone does not fit into 100 bytes."""
    done = plan("--devices", "8", "--memory", "100B", "script.py")
    assert "For 'memory', the step must fit into 100 B per device" in done.stdout + done.stderr
    assert re.search(r"with these strategies the plan needs \S+ k?B\. ", done.stdout + done.stderr)
    assert "Plan for 8 devices" not in done.stdout
    assert "Plan for 8 devices" in plan("--devices", "8", "--memory", "2MB", "script.py").stdout


def test_flags_of_pipelines_say_that_they_have_no_effect_on_other_steps(plan, script):
    done = plan("--devices", "8", "--schedule", "all", "--stages", "auto", "script.py")
    assert done.returncode == 0
    assert "--schedule has no effect: the step is no pipeline, which needs 'pipeline_stages' above 1" in done.stderr
    assert "--stages has no effect: the step is no pipeline" in done.stderr


PIPELINE = """
import sys
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.parallel.nn import Pipeline

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode=sys.argv[1], pipeline_stages=2, device_num=8)

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(256, 256), nn.Dense(256, 256)
        self.first.pipeline_stage, self.last.pipeline_stage = 0, 1

    def construct(self, x):
        return (self.last(ops.tanh(self.first(x))) ** 2).mean()

net = Net()
step = nn.TrainOneStepCell(Pipeline(net, 4), nn.Momentum(net.trainable_params(), 0.1, 0.9))
step(Tensor(np.ones((64, 256), np.float32)))
"""


@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
@pytest.mark.sampled(1)
def test_pipelines_that_need_more_than_the_memory_are_an_error(plan, write, mode):
    script = write("pipeline.py", PIPELINE)
    done = plan("--devices", "8", "--hardware", "h100", "--memory", "100KB", script, mode)
    assert done.returncode != 0
    assert "must fit into 100 kB per device, but" in done.stderr
    assert "stage" not in done.stdout
    if mode == "semi_auto_parallel":
        done = plan("--devices", "8", "--hardware", "h100", "--memory", "2MB", script, mode)
        assert done.returncode == 0, done.stderr
        assert "peak memory" in done.stdout
        # The headline is of the step of all four micro batches, under the limit that was set.
        assert re.search(r"hardware +h100\n", done.stdout)
        microseconds = float(re.search(r"predicted time of a step +([\d.]+) µs", done.stdout)[1])
        samples = float(re.search(r"throughput +([\d,]+) samples/s", done.stdout)[1].replace(",", ""))
        assert samples * microseconds * 1e-6 == pytest.approx(64, rel=0.02)
        assert re.search(r"model FLOPs utilization +\S+%", done.stdout)
        assert re.search(r"peak memory of a device +\S+ \S+ of 2(\.0+)? MB", done.stdout)


DATA_PARALLEL = """
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn
from mindspore.communication import init

ms.set_context(mode=ms.GRAPH_MODE)
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
net = nn.Dense(16, 16)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params()))
x = Tensor(np.ones((64, 16), np.float32))
step(x, x)
"""


@pytest.mark.parametrize("hardware", ["cpu", "h100", "tpu-v5p"])
@pytest.mark.sampled(1)
def test_a_data_parallel_script_divides_its_batch(plan, write, hardware):
    done = plan("--devices", "8", "--hardware", hardware, write("data_parallel.py", DATA_PARALLEL))
    assert done.returncode == 0, done.stderr
    assert "predicted time" in done.stdout
    assert re.search(r"gradients +2 × all_reduce over 8", done.stdout)


TURNED = """
import sys
import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode=sys.argv[1], device_num=1)

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor(np.ones((512, 512), np.float32)), name="w")
        self.rows, self.columns = ops.MatMul().shard(((8, 1), (1, 1))), ops.MatMul().shard(((1, 8), (8, 1)))

    def construct(self, x):
        return self.columns(self.rows(x, self.w), x)

Net()(Tensor(np.ones((512, 512), np.float32)))
"""


@pytest.mark.parametrize("mode", ["semi_auto_parallel", "auto_parallel"])
def test_a_script_for_one_device_is_planned_for_those_requested_in_its_own_mode_and_says_what_alltoall_would_give(
    plan, write, mode
):
    done = plan("--devices", "8", "--hardware", "h100", write("turned.py", TURNED), mode)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Plan for 8 devices")
    assert ("lower bound of all plans" in done.stdout) == (mode == "auto_parallel")
    if mode == "semi_auto_parallel":
        time, output = re.search(r"predicted time of a step +(\S+ µs)", done.stdout)[1], " ".join(done.stdout.split())
        note = re.search(r"'enable_alltoall=True' would give (\S+) µs in place of (\S+ µs):", output)
        assert note[2] == time
        assert float(note[1]) < float(time.split()[0])


@pytest.mark.full
def test_pipelines_are_compared(plan, write):
    script = write("pipeline.py", PIPELINE)
    done = plan("--compare", "h100,h200", "--devices", "8", script, "semi_auto_parallel")
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["h100", "h200"]
    assert all(row.split()[2] == "8" and "%" in row for row in rows)
    assert sum("(quickest)" in row for row in rows) == 1
    done = plan("--compare", "h100,h200", "--devices", "8", "--out", "plans.html", script, "semi_auto_parallel")
    assert done.returncode == 2
    assert "--out together with --compare must be of steps of one stage" in done.stderr
