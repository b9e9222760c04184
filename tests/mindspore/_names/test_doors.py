"""Packages that load the module of a name when the name is first used."""

import importlib
import inspect
import pickle
import subprocess
import sys
from types import ModuleType

import pytest

import sporax.mindspore as ms
from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import LISTED, SporaxImportError

DOORS = ("nn", "nn.optim", "train", "train.callback", "train.checkpoint", "train.metrics", "dataset")


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A door with the modules `one` and `two`; a function of `two` has its name."""
    folder = tmp_path / "door_of_test"
    folder.mkdir()
    (folder / "one.py").write_text("first, second = object(), object()")
    (folder / "two.py").write_text("def two(): ...")
    monkeypatch.syspath_prepend(tmp_path)
    (folder / "__init__.py").write_text("")
    module = importlib.import_module("door_of_test")
    homes = {"first": "door_of_test.one:first", "other": "door_of_test.one:second", "two": "door_of_test.two:two"}
    module.__getattr__, module.__dir__ = door("door_of_test", homes, {"hidden": "door_of_test.one:second"})
    yield module
    for name in [name for name in sys.modules if name.startswith("door_of_test")]:
        del sys.modules[name]
    del LISTED["door_of_test"]


def test_a_name_loads_its_module_and_no_other(package):
    assert not any(name.startswith("door_of_test.") for name in sys.modules)
    assert package.other is sys.modules["door_of_test.one"].second is package.hidden
    assert "door_of_test.two" not in sys.modules
    assert vars(package)["other"] is package.other  # found without a call


def test_modules_are_attributes_and_a_function_stands_before_the_module_of_its_name(package):
    assert package.one.__name__ == "door_of_test.one"
    module = importlib.import_module("door_of_test.two")
    assert isinstance(module, ModuleType)
    assert package.two is module.two


def test_names_are_listed_before_they_are_loaded(package):
    assert {"first", "other", "two", "one"} <= set(dir(package))
    assert "hidden" not in dir(package)
    assert dict(inspect.getmembers(package))["first"] is package.first


def test_a_name_that_was_replaced_stays_so(package, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(package, "first", 3)
        assert package.first == 3
    assert package.first is sys.modules["door_of_test.one"].first


def test_a_missing_name_is_an_error(package):
    assert not hasattr(package, "third")
    with pytest.raises(AttributeError, match=r"'door_of_test'.*'third'"):
        _ = package.third
    with pytest.raises((SporaxImportError, ImportError)):
        from door_of_test import third  # noqa: F401


@pytest.mark.parametrize("name", DOORS)
def test_every_name_is_the_one_of_its_module(name):
    path = f"sporax.mindspore.{name}"
    package = importlib.import_module(path)
    homes = LISTED[path]
    assert set(package.__all__) <= set(homes)
    assert set(homes) <= set(dir(package))
    for offered, home in homes.items():
        module, _, attribute = home.partition(":")
        loaded = importlib.import_module(module)
        assert getattr(package, offered) is (getattr(loaded, attribute) if attribute else loaded), offered
    stars: dict[str, object] = {}
    exec(f"from {path} import *", stars)
    assert set(package.__all__) <= set(stars)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "line",
    [
        "from sporax.mindspore.nn import Dense; Dense(2, 3)(ms.ops.ones((1, 2), ms.float32)).sum()",
        "from sporax.mindspore.nn.optim import thor; assert ms.nn.optim.thor is thor is ms.nn.thor and callable(thor)",
        "import sporax.mindspore.train.export; assert callable(ms.train.export) and callable(ms.export)",
        "from sporax.mindspore.train import data_sink; assert callable(data_sink)",
        "ms.nn.wrap.cell_wrapper.TrainOneStepCell",
        "from sporax.mindspore.nn.layer.basic import Dense; assert ms.nn.Dense is Dense",
        "assert ms.nn.PReLUExt is ms.mint.nn.PReLU",
        "assert ms.nn.Accuracy is ms.train.Accuracy",
        "ms.train.get_metric_fn('F1')",
        "data = ms.dataset.NumpySlicesDataset([1, 2, 3]).batch(3); assert isinstance(data, ms.dataset.BatchDataset)",
        "ms.dataset.vision.Rescale(1.0, 0.0)",
        "class Mine(ms.dataset.Dataset): ...\nfrom sporax.mindspore.dataset._dataset import steps; assert 'BatchDataset' in steps",
        "import pickle; assert pickle.loads(pickle.dumps(ms.nn.Dense)) is ms.nn.Dense",
        "import threading as t\nnames = ms.nn.__all__\n"
        "threads = [t.Thread(target=lambda: [getattr(ms.nn, n) for n in names]) for _ in range(4)]\n"
        "[x.start() for x in threads]; [x.join() for x in threads]; assert ms.nn.Dense is ms.nn.basic.Dense",
    ],
)
def test_a_name_alone_in_a_fresh_process(line):
    assert run(f"import sporax.mindspore as ms\n{line}") == ""


def test_a_suggestion_names_what_was_not_loaded():
    code = "import sporax.mindspore as ms; ms.nn\ntry: ms.ops.GroupNorm\nexcept AttributeError as error: print(error)"
    assert "Did you mean 'sporax.mindspore.nn.GroupNorm'?" in run(code)


def test_the_doors_are_these():
    assert {f"sporax.mindspore.{name}" for name in DOORS} <= set(LISTED)
    assert ms.nn.__doc__


def test_functions_of_a_script_take_packages_along_to_other_processes():
    package = importlib.import_module("sporax.mindspore.dataset")
    assert pickle.loads(pickle.dumps(package)) is package
