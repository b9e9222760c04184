"""Every path from which MindSpore's own files can be imported gives the names that Sporax offers, the very same objects."""

import importlib
import json
from pathlib import Path

import pytest

import sporax.mindspore
from sporax.base.errors import SporaxImportError
from sporax.mindspore._names import module_paths

RECORD = json.loads((Path(__file__).parent / "module_paths.json").read_text())
FUNCTIONS = {"parallel.shard", "train.metrics.auc", "ops.function.grad.grad_func"}
"""Functions of a package have these names (or their parent's); as modules they would be in the way."""


@pytest.mark.parametrize("shown", RECORD, ids=lambda shown: shown or "mindspore")
def test_names_are_found_where_mindspore_defines_them(shown: str):
    home = importlib.import_module(f"sporax.mindspore.{shown}".rstrip("."))
    offered = dir(home)
    missing = []
    for path, names in RECORD[shown].items():
        ours = [name for name in names.split() if name in offered]
        if not ours or path in FUNCTIONS:
            continue
        try:
            module = importlib.import_module(f"sporax.mindspore.{path}")
        except ImportError as error:
            missing.append(f"{path}: {error}")
            continue
        missing += [f"{path}.{name}" for name in ours if getattr(module, name, None) is not getattr(home, name)]
    assert not missing


def test_paths_do_not_replace_names_of_their_package():
    for path in module_paths.HOMES:
        importlib.import_module(path)
    assert callable(sporax.mindspore.ops.grad)
    assert callable(sporax.mindspore.parallel.shard)
    assert sporax.mindspore.mint.distributed.all_reduce is sporax.mindspore.ops.communication.all_reduce
    assert sporax.mindspore.nn.Dense is importlib.import_module("sporax.mindspore.nn.layer.basic").Dense


def test_a_name_that_is_missing_says_so():
    with pytest.raises(SporaxImportError, match=r"'sporax.mindspore.nn.layer.basic'.*but got 'Nothing'"):
        from sporax.mindspore.nn.layer.basic import Nothing  # noqa: F401 - the import is what raises
