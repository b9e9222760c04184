"""Packages load a name, or a module of theirs, when it is first used."""

import importlib
import sys
from pathlib import Path

import pytest

import sporax
from sporax.base.lazy_names import homes


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "house_of_late_names"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from sporax.base.lazy_names import lazy_names\n"
        "if TYPE_CHECKING:\n"
        "    from house_of_late_names import room\n"
        "    from house_of_late_names.room import door\n"
        "__getattr__ = lazy_names(__name__)\n"
    )
    (folder / "room.py").write_text("door = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(folder.name)
    for name in (folder.name, f"{folder.name}.room"):
        sys.modules.pop(name, None)
    homes.cache_clear()


def test_a_name_and_a_module_are_loaded_when_they_are_used(package):
    assert "house_of_late_names.room" not in sys.modules
    assert package.door == 1
    assert package.room is sys.modules["house_of_late_names.room"]
    assert {"door", "room"} <= set(vars(package))  # the next use calls nothing


def test_a_module_is_loaded_by_its_name(package):
    assert package.room.door == 1


def test_another_name_is_an_error(package):
    with pytest.raises(AttributeError, match="module 'house_of_late_names' has no attribute 'window'"):
        _ = package.window


SOURCES = Path(sporax.__file__).parent
PACKAGES = [path.parent for path in SOURCES.rglob("__init__.py") if "lazy_names(__name__)" in path.read_text()]


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: str(folder.relative_to(SOURCES)))
def test_no_late_name_is_that_of_a_module_beside_it(folder):
    """Whoever imports that module first makes it an attribute of the package, and the name would be the module."""
    name = ".".join(("sporax", *folder.relative_to(SOURCES).parts))
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    late = {entry for entry, home in homes(name).items() if home != name}
    assert homes(name)
    assert not modules & late
    assert all(hasattr(importlib.import_module(name), entry) for entry in homes(name))


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: str(folder.relative_to(SOURCES)))
def test_no_name_of_a_package_hides_a_module_beside_it(folder):
    name = ".".join(("sporax", *folder.relative_to(SOURCES).parts))
    package = importlib.import_module(name)
    beside = {path.stem for path in folder.glob("*.py")} & {*vars(package)}
    assert [entry for entry in beside if vars(package)[entry] is not sys.modules.get(f"{name}.{entry}")] == []
