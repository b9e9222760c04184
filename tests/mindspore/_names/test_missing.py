import importlib
import pickle
import sys
import types

import pytest

from sporax.base.errors import SporaxAttributeError, SporaxImportError
from sporax.mindspore._names.missing import homes, missing_module, missing_name, missing_names, resolved


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    one = types.ModuleType("house")
    one.there = 1
    one.__getattr__ = missing_names("house")
    monkeypatch.setitem(sys.modules, "house", one)
    return one


def test_names_of_other_modules_are_loaded_when_they_are_read(module: types.ModuleType):
    elsewhere = {**homes("json.tool", "main"), "walk": "ast:walk", "tool": "json.tool"}
    module.__getattr__ = missing_names("house", elsewhere)
    sys.modules.pop("json.tool", None)
    assert module.there == 1
    assert "json.tool" not in sys.modules
    assert module.main is sys.modules["json.tool"].main is module.tool.main
    assert module.walk is resolved("ast:walk")
    with pytest.raises(SporaxAttributeError, match=r"For 'house'.*but got 'gone'"):
        _ = module.gone
    with pytest.raises(AttributeError, match="no_such_name"):
        resolved("ast:no_such_name")


def test_attribute_access(module: types.ModuleType):
    with pytest.raises(SporaxAttributeError, match=r"For 'house'.*but got 'gone'. docs/api.md") as caught:
        _ = module.gone
    assert caught.value.name == "gone"
    assert not hasattr(module, "gone")
    assert getattr(module, "gone", 5) == 5


def test_operators_of_inner_modules_are_made_in_tables_and_refused_at_their_calls():
    from sporax.mindspore import ops

    for module in ("sporax.mindspore.ops.operations._grad_ops", "sporax.mindspore.ops.operations.nn_ops"):
        made = importlib.import_module(module).NoSuchOperator(3)
        with pytest.raises(NotImplementedError, match="but got 'NoSuchOperator'"):
            made(1)
    assert not hasattr(ops, "NoSuchOperator") and not hasattr(ops.operations, "NoSuchOperator")
    with pytest.raises(NotImplementedError, match="but got 'DepthwiseConv2dNative'"):
        ops.operations.DepthwiseConv2dNative(2, 3)(1)
    assert issubclass(ops.operations.Dense, ops.Primitive)


def test_the_nearest_name_is_not_searched_where_nobody_reads_the_message(
    module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
):
    searches = []
    monkeypatch.setattr(
        "sporax.mindspore._names.missing.suggestion", lambda *names: searches.append(names) or " Did you mean 'there'?"
    )
    assert not hasattr(module, "ther")
    assert not searches
    with pytest.raises(SporaxAttributeError) as caught:
        _ = module.ther
    assert not searches
    assert "Did you mean" in caught.value.message
    assert searches == [("house", "ther")]
    assert str(caught.value) == caught.value.message
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_from_import(module: types.ModuleType):
    with pytest.raises(SporaxImportError, match=r"For 'house'.*but got 'gone'. docs/api.md"):
        from house import there, gone  # noqa: F401, I001 - the import is what is tested


def test_from_import_outside_try_gives_a_placeholder(module: types.ModuleType):
    exec("from house import gone, ther", namespace := {})
    with pytest.raises(NotImplementedError, match="but got 'gone'"):
        namespace["gone"]()
    with pytest.raises(NotImplementedError, match="but got 'ther'.* Did you mean 'there'"):
        namespace["ther"]()
    assert not hasattr(module, "gone")


def test_an_import_in_an_except_clause_is_not_inside_its_try(module: types.ModuleType):
    script = "try:\n    from house import gone\nexcept ImportError:\n    from house import older"
    exec(script, namespace := {})
    assert repr(namespace["older"]) == "<placeholder of 'house.older', which Sporax does not offer>"


def test_an_import_of_ours_fails_at_once(module: types.ModuleType):
    with pytest.raises(SporaxImportError, match="but got 'gone'"):
        exec("from house import gone", {"__name__": "sporax.mindspore.nn"})


def test_from_import_of_a_submodule_that_is_still_being_imported(
    module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
):
    """In an import cycle it is known to Python and not yet an attribute of its package."""
    module.__path__ = []
    monkeypatch.setitem(sys.modules, "house.room", types.ModuleType("house.room"))
    from house import room

    assert room.__name__ == "house.room"
    with pytest.raises(SporaxImportError, match="but got 'gone'"):
        from house import gone  # noqa: F401 - the import is what is tested


def test_inside_a_getattr_of_ones_own(monkeypatch: pytest.MonkeyPatch):
    one = types.ModuleType("house")

    def __getattr__(name: str) -> object:
        if name == "lazy":
            return 3
        return missing_name("house", name)

    one.__getattr__ = __getattr__
    monkeypatch.setitem(sys.modules, "house", one)
    from house import lazy

    assert lazy == 3
    with pytest.raises(SporaxImportError):
        from house import gone  # noqa: F401 - the import is what is tested
    with pytest.raises(SporaxAttributeError):
        _ = one.gone


def test_missing_module():
    with pytest.raises(ModuleNotFoundError, match=r"but got 'mindspore\.gone'"):
        raise missing_module("mindspore.gone")
