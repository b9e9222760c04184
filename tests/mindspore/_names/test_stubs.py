"""Stubs by which editors find `import mindspore`."""

import ast
from importlib.util import find_spec

import pytest

from sporax.launch.cli import main
from sporax.mindspore._names.module_paths import stubs


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stubs")
    assert main(["stubs", str(folder)]) == 0
    return folder


def test_each_module_hands_out_the_names_of_ours(written):
    assert "from sporax.mindspore import *\n" in (written / "mindspore" / "__init__.pyi").read_text()
    assert "from sporax.mindspore.nn import *" in (written / "mindspore/nn/layer/basic.pyi").read_text()
    # A module that does not list its names.
    wrapper = (written / "mindspore/nn/wrap/cell_wrapper.pyi").read_text()
    assert "from sporax.mindspore.nn import *\n" in wrapper
    assert "import TrainOneStepCell as TrainOneStepCell\n" in wrapper
    for file in written.rglob("*.pyi"):
        ast.parse(file.read_text())


def test_every_home_is_a_module():
    homes = {home for _, home in stubs() if home}
    assert len(homes) > 100
    assert all(find_spec(home) is not None for home in homes)


def test_written_again_and_refused_over_something_else(written, tmp_path, capsys):
    assert main(["stubs", str(written)]) == 0
    (tmp_path / "mindspore").mkdir()
    assert main(["stubs", str(tmp_path)]) == 2
    assert "must be a folder without a 'mindspore' of another origin" in capsys.readouterr().err
