"""Packages load a name, or a module of theirs, when it is first used."""

import sys
from types import ModuleType

import pytest

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
