"""Notes under Python's exceptions: a property that documents write as a call."""

import sys

import pytest

from sporax.base.errors import SporaxValueError
from sporax.mindspore import nn
from sporax.mindspore._names.alias import add_hint
from sporax.mindspore.nn import Cell
from sporax.runtime import world


def notes_of(source, path, **names):
    path.write_text(source)
    try:
        exec(compile(source, str(path), "exec"), {"Cell": Cell, **names})
    except TypeError as error:
        add_hint(error, error.__traceback__.tb_next)
        return getattr(error, "__notes__", [])
    return None


@pytest.mark.parametrize("before", ["", "net.pipeline_stage = 1\n"])
@pytest.mark.parametrize("name", ["pipeline_stage", "pipeline_segment"])
def test_a_property_that_is_called_is_reported(before, name, tmp_path):
    source = f"net = Cell()\n{before}\n\ndef place(cell):\n    cell.{name}(0)\n\nplace(net)\n"
    expected = [f"For 'Cell', '{name}' is a property and no method: write `cell.{name} = 0`."]
    assert notes_of(source, tmp_path / "script.py") == expected


@pytest.mark.parametrize("line", ["[None][0]()", "int('x', y=1)", "Cell().pipeline_stage + 1"])
def test_other_exceptions_stay_as_they_are(line, tmp_path):
    assert notes_of(line, tmp_path / "script.py") == []


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "nn.Dense(3, 4, activaton='relu')",
            "For 'Dense', there is no argument 'activaton'. Did you mean 'activation'?",
        ),
        ("nn.Dense(3, 4, colour=1)", None),
    ],
)
def test_a_misspelled_keyword(line, hint, tmp_path):
    # Python 3.13 makes the same suggestion in its own message.
    expected = [] if hint is None or sys.version_info >= (3, 13) else [hint]
    assert notes_of(line, tmp_path / "script.py", nn=nn) == expected


def test_the_launcher_shows_it(write, run):
    done = run("run", write("script.py", "import sporax.mindspore as ms\nnet = ms.nn.Cell()\nnet.pipeline_stage(0)\n"))
    assert done.returncode == 1
    assert "'NoneType' object is not callable" in done.stderr
    assert done.stderr.endswith(
        "For 'Cell', 'pipeline_stage' is a property and no method: write `net.pipeline_stage = 0`.\n"
    )


def test_shapes_of_one_rank_in_a_process_that_acts_for_several(monkeypatch):
    def notes(error):
        add_hint(error, None)
        return getattr(error, "__notes__", [])

    message = "For 'Reshape', the shape of 'input' is (32, 6), which does not fit into 'shape' (4, 6)."
    assert notes(SporaxValueError(message)) == []
    monkeypatch.setattr(world, "num_ranks_here", lambda: 8)
    (note,) = notes(SporaxValueError(message))
    assert note.startswith(
        "This process acts for 8 ranks: outside of a training step a network takes the batch of all of them"
    )
    assert note.endswith("`sporax run --worker_num 8`.")
    assert notes(SporaxValueError("For 'Adam', 'learning_rate' must be positive.")) == []
