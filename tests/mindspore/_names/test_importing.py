"""The collector rests while the facade is imported, and passes over what is there afterwards."""

import gc
import subprocess
import sys

import pytest

from sporax.mindspore._names import alias

MODULES = {"one": "import two", "two": "import gc\nrests = not gc.isenabled()", "broken": "import two\n1 / 0"}


@pytest.fixture
def frozen(monkeypatch, tmp_path):
    """The sizes of what was frozen; an import of two modules is a large one."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(alias, "_FEWEST_MODULES", 2)
    monkeypatch.setattr(alias, "_MOST_MODULES", sys.maxsize)
    monkeypatch.setattr(alias, "_MOST_OBJECTS", sys.maxsize)
    sizes = []
    monkeypatch.setattr(gc, "freeze", lambda: sizes.append(len(sys.modules)))
    monkeypatch.setattr(gc, "unfreeze", sizes.pop)
    yield sizes
    for name in MODULES:
        sys.modules.pop(name, None)
    assert gc.isenabled()


def test_a_large_import_is_frozen_once_and_garbage_collection_is_paused(frozen):
    assert alias.import_module("one") is sys.modules["one"]
    assert sys.modules["two"].rests
    assert len(frozen) == 1
    alias.import_module("one")
    assert len(frozen) == 1
    assert gc.isenabled()


def test_a_small_import_and_one_of_a_program_with_many_objects_are_not(frozen, monkeypatch):
    monkeypatch.setattr(alias, "_MOST_OBJECTS", 1000)
    alias.import_module("one")
    monkeypatch.setattr(alias, "_MOST_OBJECTS", sys.maxsize)
    del sys.modules["one"]
    alias.import_module("one")  # `two` is there
    assert frozen == []
    assert gc.isenabled()


def test_a_collector_that_the_program_has_stopped_stays_so(frozen):
    gc.disable()
    try:
        alias.import_module("one")
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert frozen == []


def test_a_module_that_fails_leaves_the_collector_on(frozen):
    with pytest.raises(ZeroDivisionError):
        alias.import_module("broken")
    assert gc.isenabled()


def test_a_program_that_imports_the_facade_has_a_collector_with_little_to_do():
    code = (
        "from sporax.mindspore._names import alias; alias.install()\nfrom mindspore import nn\nimport gc\n"
        "print(gc.isenabled(), gc.get_freeze_count() > 100_000, len(gc.get_objects()) < 10_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3


@pytest.mark.parametrize("before", ["", "frozen = [[]]; gc.freeze()"])
def test_after_an_import_the_collector_looks_at_none_of_what_was_made(before):
    # JAX has been imported by the program, which therefore has too many objects for them to be frozen.
    code = (
        f"import gc, jax\n{before}\nimport sporax.mindspore as ms\nbefore = gc.get_freeze_count()\nlooked = []\n"
        "gc.callbacks.append(lambda phase, info: looked.append(gc.get_count()))\nms.ops\nyoung = len(gc.get_objects(generation=0))\n"
        "print(gc.get_freeze_count() - before, looked, young < 5_000, gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    frozen, rest = done.stdout.strip().split(" ", 1)
    if before:  # the objects that the program itself has frozen stay so, and no others
        assert int(frozen) <= 0
    else:
        assert (frozen, rest) == ("0", "[] True True")


def test_a_module_under_the_name_of_its_function_hands_out_the_function():
    code = """
import importlib
from sporax.mindspore._names import module_paths
modules = [importlib.import_module(path) for path in module_paths.HOMES]
own = [vars(module).get(module.__name__.rpartition(".")[2]) for module in modules if callable(module)]
print(len(own) > 1, {callable(function) and function not in modules for function in own})
from sporax.mindspore.parallel.shard import Layout
import sporax.mindspore as ms
print(ms.shard(abs, in_strategy=((1,),)).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True {True}\nabs\n"
