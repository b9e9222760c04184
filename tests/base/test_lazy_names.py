"""Packages load a name, or a module of theirs, when it is first used."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sporax
from sporax.base.lazy_names import lazy_names


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "__init__.py").write_text("")
    (tmp_path / "house" / "room.py").write_text("door = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = ModuleType("house")
    made.__path__ = [str(tmp_path / "house")]
    monkeypatch.setitem(sys.modules, "house", made)
    yield made
    sys.modules.pop("house.room", None)


def test_a_name_and_a_module_are_loaded_when_they_are_used(package):
    names = package.__getattr__ = lazy_names("house", {"door": "house.room"}, modules=["room"])
    assert "house.room" not in sys.modules
    assert names("room") is sys.modules["house.room"]
    assert package.door == package.room.door == 1
    assert {"door", "room"} <= set(vars(package))  # the next use asks nobody


def test_another_name_is_an_error(package):
    package.__getattr__ = lazy_names("house", {}, modules=["room"])
    with pytest.raises(AttributeError, match="module 'house' has no attribute 'door'"):
        _ = package.door


SOURCES = Path(sporax.__file__).parent
PACKAGES = [path.parent for path in SOURCES.rglob("__init__.py") if "lazy_names(__name__, _HOMES)" in path.read_text()]


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: str(folder.relative_to(SOURCES)))
def test_no_late_name_is_that_of_a_module_beside_it(folder):
    """Whoever imports that module first makes it an attribute of the package, and the name would be the module."""
    name = ".".join(("sporax", *folder.relative_to(SOURCES).parts))
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert not modules & importlib.import_module(name)._HOMES.keys()
