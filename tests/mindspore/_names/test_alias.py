"""The alias changes the import system, so it is watched from inside scripts that run in processes of their own."""

import sys

import pytest

import sporax
from sporax.base.errors import SporaxRuntimeError
from sporax.mindspore._names import alias

SAME_OBJECTS = """
import sys
import mindspore as ms
import mindspore.common.dtype as dtype
from mindspore.common.dtype import DType
import sporax.mindspore.common.dtype
assert ms.nn is sporax.mindspore.nn and ms.Tensor is sporax.mindspore.Tensor and dir(ms) == dir(sporax.mindspore)
assert (ms.__name__, ms.__version__) == ("mindspore", "2.10.0") != sporax.__version__
ours = sporax.mindspore.common.dtype
assert dtype is ours is sys.modules["sporax.mindspore.common.dtype"] is sys.modules["mindspore.common.dtype"]
assert DType is ours.DType
assert dtype.__spec__.name == dtype.__name__ == "sporax.mindspore.common.dtype"
assert ms.common is sporax.mindspore.common
"""


def test_modules_are_the_same_objects(write, run):
    done = run("run", write("script.py", SAME_OBJECTS))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("import mindspore.no_such_module", "ModuleNotFoundError"),
        ("import mindspore.no_such_module.deeper", "ModuleNotFoundError"),
        ("from mindspore.no_such_module import name", "ModuleNotFoundError"),
        ("from mindspore import no_such_name", "ImportError"),
        ("from mindspore.common.dtype import no_such_name", "ImportError"),
        ("import mindspore.common.dtype; mindspore.common.dtype.no_such_name", "AttributeError"),
        ("import mindspore; mindspore.no_such_name", "AttributeError"),
    ],
)
@pytest.mark.sampled(3)
def test_what_is_missing_says_so(write, run, statement: str, kind: str):
    script = f"try:\n    {statement}\nexcept {kind} as error:\n    print(type(error).__mro__[-4:], error)\n"
    said = run("run", write("script.py", script)).stdout
    assert "no_such_" in said
    assert "docs/api.md" in said
    assert "For '" in said


PLACEHOLDERS = """
import mindspore.no_such_module.deeper as deeper
from mindspore.other_module import anything
from mindspore import Tensro, no_such_name
from mindspore.nn.layer.basic import Dens
for use in (lambda: Tensro(1), lambda: Dens.x, lambda: anything + 1, lambda: deeper.name, lambda: no_such_name[0]):
    try:
        use()
    except (NotImplementedError, AttributeError) as error:
        print(error)
"""


def test_a_missing_name_stops_a_program_at_its_first_use(write, run):
    done = run("run", write("script.py", PLACEHOLDERS))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all("docs/api.md" in line for line in lines)
    assert lines[0].endswith("Did you mean 'Tensor'?")
    assert lines[1].endswith("Did you mean 'Dense'?")


def test_another_version_for_programs_that_choose_by_it(write, run):
    script = write("script.py", "import mindspore, sporax; print(mindspore.__version__, sporax.__version__)")
    assert run("run", script, SPORAX_MINDSPORE_VERSION="1.8.1").stdout.split() == ["1.8.1", sporax.__version__]
    assert (
        "must be a version such as '2.3.1', but got 'new'" in run("run", script, SPORAX_MINDSPORE_VERSION="new").stderr
    )


def test_what_is_missing_can_be_requested(write, run):
    script = """
import importlib.util
import mindspore
assert not hasattr(mindspore, "no_such_name")
assert getattr(mindspore, "no_such_name", 7) == 7
assert importlib.util.find_spec("mindspore.nn") is not None
"""
    assert run("run", write("script.py", script)).returncode == 0


CHILDREN = """
import multiprocessing, subprocess, sys
def is_aliased(_):
    import mindspore
    return mindspore.__name__
if __name__ == "__main__":
    code = "import mindspore.common as common; print(common.__name__)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "sporax.mindspore.common\\n"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(is_aliased, [0]) == ["mindspore"]
"""


def test_child_processes_have_the_alias(write, run):
    done = run("run", write("script.py", CHILDREN))
    assert (done.returncode, done.stderr) == (0, "")


def test_an_environment_without_sporax_gets_its_own_mindspore(write, run, tmp_path):
    """Scripts may start programs of other environments, which inherit PYTHONPATH."""
    write("other/mindspore/__init__.py", "real = True")
    script = """
import subprocess, sys
code = '''
import sys
sys.modules["sporax"] = None
sys.path = [entry for entry in sys.path if "sporax" not in entry or entry.endswith("shadow")] + ["other"]
import importlib.machinery
class Hide:
    def find_spec(self, name, path=None, target=None):
        return None
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "sporax" else find_spec(name, package)
import mindspore
assert mindspore.real
'''
subprocess.run([sys.executable, "-c", code], check=True)
"""
    assert run("run", write("script.py", script)).returncode == 0


def test_the_real_mindspore_already_imported_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mindspore", type(sys)("mindspore"))
    with pytest.raises(SporaxRuntimeError, match="must not be imported before"):
        alias.install()


def test_children_variables_are_set_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", ["script directory", "elsewhere"])
    variables = {"PYTHONPATH": "mine"}
    alias.install_for_children(variables)
    alias.install_for_children(variables)
    assert variables["PYTHONPATH"].endswith(":mine")
    assert variables["PYTHONPATH"].count("shadow") == 1
    assert sys.path == ["script directory", alias.SHADOW_DIRECTORY, "elsewhere"]


def test_tensors_of_their_own_module_have_operators(write, run):
    script = "from mindspore.common.tensor import Tensor\nassert (Tensor([2]) + 1 < Tensor([4])).all() and Tensor([-1]).abs() == 1\n"
    assert run("run", write("script.py", script)).returncode == 0
