import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sporax.base.errors import SporaxValueError
from sporax.launch.target import Target, TargetKind, resolve

DESCRIBE = """
import json, sys
me = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "path0": sys.path[0], "file": __file__, "name": __name__, "spec": repr(__spec__),
    "package": __package__, "is_main": vars(me) is globals(), "names": sorted(n for n in vars(me) if n != "me"),
}))
"""


def as_python(tmp_path: Path, environ: dict[str, str], *arguments: str) -> dict[str, object]:
    """What plain Python shows the script."""
    return json.loads(subprocess.check_output([sys.executable, *arguments], cwd=tmp_path, env=environ))


@pytest.mark.parametrize("script", ["script.py", "deep/er/script.py", "link.py"])
def test_a_script_sees_what_python_would_show_it(write, run, tmp_path, environ, script: str):
    write("deep/er/script.py", DESCRIBE)
    write("script.py", DESCRIBE)
    (tmp_path / "link.py").symlink_to(tmp_path / "deep/er/script.py")
    expected = as_python(tmp_path, environ, script, "--flag", "value")
    seen = json.loads(run("run", script, "--flag", "value").stdout)
    expected["names"] = [name for name in expected["names"] if name not in ("__annotations__", "__cached__")]
    seen["names"] = [name for name in seen["names"] if name not in ("__annotations__", "__cached__")]
    assert seen == expected


def test_a_module_sees_what_python_would_show_it(write, run, tmp_path, environ):
    write("package/__init__.py", "")
    write("package/tool.py", DESCRIBE)
    expected = as_python(tmp_path, environ, "-m", "package.tool", "x")
    seen = json.loads(run("run", "-m", "package.tool", "x").stdout)
    for key in ("argv", "path0", "file", "name", "package", "is_main"):
        assert seen[key] == expected[key], key


def test_main_lives_until_the_process_ends(write, run):
    script = "import atexit, sys\nvalue = 3\natexit.register(lambda: print(sys.modules['__main__'].value))"
    assert run("run", write("script.py", script)).stdout == "3\n"


@pytest.mark.parametrize(
    ("ending", "code"),
    [("", 0), ("raise SystemExit", 0), ("raise SystemExit(5)", 5), ("import sys; sys.exit('no')", 1)],
)
def test_exit_code(write, run, ending: str, code: int):
    assert run("run", write("script.py", ending)).returncode == code


@pytest.mark.parametrize(
    "script", ["def f():\n    1 / 0\nf()\n", "a = (\n", "raise ValueError('x') from KeyError('y')\n"]
)
def test_a_failing_script_is_reported_as_python_does(write, run, tmp_path, environ, script: str):
    """The same text, frame for frame: nothing of the launcher shows."""
    path = write("script.py", script)
    python = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environ)
    done = run("run", path)
    assert (done.returncode, done.stderr) == (python.returncode, python.stderr)


def test_an_error_of_sporax_in_the_script_is_the_scripts(write, run):
    done = run(
        "run", write("script.py", "from sporax.base.errors import SporaxValueError\nraise SporaxValueError('x')")
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("SporaxValueError: x\n")


def test_a_missing_name_is_reported_at_the_scripts_line(write, run):
    done = run("run", write("script.py", "import mindspore as ms\nlayer = ms.nn.Dnse\n"))
    assert done.returncode == 1
    assert "During handling" not in done.stderr
    assert "layer = ms.nn.Dnse" in done.stderr
    assert done.stderr.endswith("Did you mean 'Dense'?\n")


def test_pytest_runs_with_the_alias(write, run):
    write(
        "test_it.py",
        "import mindspore, sporax\ndef test():\n    assert mindspore.nn is sporax.mindspore.nn\n    print('here')\n",
    )
    done = run("run", "pytest", "-s", "-p", "no:cacheprovider", "test_it.py")
    assert done.returncode == 0
    assert "here" in done.stdout


def test_python_and_other_executables(write, run):
    assert run("run", "python", "-c", "import mindspore; print(mindspore.__name__)").stdout == "mindspore\n"
    assert run("run", "sh", "-c", "exit 9").returncode == 9


def test_simulated_devices(write, run):
    script = write("script.py", "import os; print(os.environ['XLA_FLAGS'], os.environ['JAX_PLATFORMS'])")
    done = run("run", "--local_devices", 4, script, XLA_FLAGS="--xla_x=1 --xla_force_host_platform_device_count=2")
    assert done.stdout == "--xla_x=1 --xla_force_host_platform_device_count=4 cpu\n"
    assert "JAX_PLATFORMS must be 'cpu'" in run("run", "--local_devices", 4, script, JAX_PLATFORMS="cuda").stderr


def test_a_target_is_a_script_a_module_or_an_executable(write, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write("train.py", "")
    write("tool", "#!/bin/sh\n").chmod(0o755)
    write("plain", "print(1)")
    assert resolve("train.py", ["--lr", "1"]) == Target(TargetKind.SCRIPT, "train.py", ("--lr", "1"))
    assert resolve("./tool", []).kind is TargetKind.EXECUTABLE
    assert resolve("plain", []).kind is TargetKind.SCRIPT
    assert resolve("a.b", [], as_module=True) == Target(TargetKind.MODULE, "a.b")
    assert resolve("python", ["-V"]) == Target(TargetKind.EXECUTABLE, sys.executable, ("-V",))
    assert resolve("pytest", []).kind is TargetKind.SCRIPT
    assert resolve("sh", []).kind is TargetKind.EXECUTABLE
    assert os.path.isabs(resolve("sh", []).name)
    for missing in ("none.py", "no-such-command", str(tmp_path)):
        with pytest.raises(SporaxValueError, match=r"For 'target', it must be .* but got"):
            resolve(missing, [])


def test_a_missing_module_is_a_users_mistake(run):
    done = run("run", "-m", "no_such_module")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


WRONG_SHAPE = """
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn

ms.set_context(mode=ms.GRAPH_MODE)

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(8, 4), nn.Dense(8, 2)

    def construct(self, x):
        return self.second(self.first(x))

net = Net()
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.SGD(net.trainable_params()))
step(Tensor(np.ones((4, 8), np.float32)), Tensor(np.zeros(4, np.int32)))
"""


def test_a_wrong_shape_shows_the_users_lines_and_our_message(run, write):
    write("script.py", WRONG_SHAPE)
    done = run("run", "script.py")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) <= 15
    assert "return self.second(self.first(x))" in done.stderr
    assert "step(Tensor(np.ones((4, 8)" in done.stderr
    assert "sporax.base.errors.SporaxValueError: For 'Dense'" in done.stderr
    assert "JAX has removed" not in done.stderr
    assert any(line.startswith("`sporax run --verbose`") for line in lines)
    # The error stands last.
    assert lines[-1] == "  in Cell 'TrainOneStepCell.network._backbone.second'"
    full = run("run", "--verbose", "script.py").stderr
    assert full.count("\n") > 60
    assert "program.py" in full


FAILING = {
    "rows of a generator": (
        "def rows():\n    yield (x[0],)\n    raise KeyError('broken')\ndata = ds.GeneratorDataset(rows, ['x'])",
        ["row 1 with KeyError: 'broken'", "  in rows, {script}, line 9"],
    ),
    "function of a map": (
        "def bad(x):\n    return x.reshape(3)\ndata = ds.NumpySlicesDataset((x,), ['x']).map(bad)",
        ["the function 'bad' failed with ValueError: cannot reshape", "  in bad, {script}, line 8"],
    ),
    "labels and no loss": (
        "data = ds.NumpySlicesDataset((x, x), ['x', 'y'])",
        ["takes 1 and the data set gives 2. Set 'loss_fn'"],
    ),
    "another name": ("nn.Adam(net.trainable_params(), lr=0.1)", ["no argument 'lr'. Did you mean 'learning_rate'?"]),
}
TRAINING = """
import numpy as np
from mindspore import dataset as ds, nn
from mindspore.train import Model
net = nn.Dense(8, 1)
x = np.ones((4, 8), np.float32)
BODY
Model(net, optimizer=nn.SGD(net.trainable_params())).train(1, data.batch(2))
"""


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.sampled(1)
def test_mistakes_of_a_first_training_take_six_lines(run, write, name):
    body, expected = FAILING[name]
    script = write("script.py", TRAINING.replace("BODY", body))
    lines = run("run", "script.py").stderr.splitlines()
    assert len(lines) <= 6, lines
    for text in expected:
        assert text.format(script=script) in "\n".join(lines[-2:])


def test_other_exceptions_keep_all_of_their_frames(run, write):
    write("script.py", "import json\njson.loads('{')\n")
    stderr = run("run", "script.py").stderr
    assert "decoder.py" in stderr
    assert "--verbose" not in stderr
