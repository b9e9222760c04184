import pytest

from sporax.base.errors import SporaxValueError
from sporax.launch.cli import main
from sporax.mindspore._names.check import problem, python_files

PROGRAM = """
from mindspore import nn, Tensro
import mindspore.nothing
nn.Dens(3, 4)
nn.Dense(3, 4, has_bias=False, colour=1)
"""


def test_a_line_for_each_place(write, capsys):
    file = write("program.py", PROGRAM)
    assert main(["check", str(file)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{file}:2: 'mindspore.Tensro' is not offered. Did you mean 'Tensor'?",
        f"{file}:3: 'mindspore.nothing' is not offered.",
        f"{file}:4: 'mindspore.nn.Dens' is not offered. Did you mean 'Dense'?",
        f"{file}:5: 'mindspore.nn.Dense' has no argument 'colour'.",
        "4 place(s) in 1 file(s) use 4 name(s) that are not offered.",
    ]


def test_nothing_missing_in_a_folder(write, tmp_path, capsys):
    write("one/a.py", "from mindspore import nn\nnn.Dense")
    write("one/.hidden/b.py", "from mindspore import gone")
    write("one/text.txt", "from mindspore import gone")
    assert main(["check", str(tmp_path / "one")]) == 0
    assert capsys.readouterr().out == "1 file(s): every name they use is offered.\n"


def test_a_file_that_is_no_program(write, capsys):
    assert main(["check", str(write("old.py", "print 3"))]) == 1
    assert "old.py:1: cannot be read as Python" in capsys.readouterr().out


def test_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(SporaxValueError, match="the path must exist"):
        list(python_files([tmp_path / "none"]))


@pytest.mark.parametrize(
    "path",
    ["mindspore.Tensor.asnumpy", "mindspore.float32.anything", "mindspore.nn.layer.basic.Dense", "sporax.launch"],
)
def test_what_is_there(path: str):
    assert problem(path) is None


def test_an_attribute_of_a_class():
    assert problem("mindspore.Tensor.asnumpyy") == "'mindspore.Tensor.asnumpyy' is not offered."


def test_operators_that_are_only_refused_at_their_calls_are_not_offered():
    for path in ("mindspore.ops.operations.Morph", "mindspore.ops.operations._grad_ops.NoSuchGrad"):
        assert problem(path).startswith(f"'{path}' is not offered.")
