"""What public programs use: counting it, and the table of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
PROGRAM = "import mindspore as ms\nfrom mindspore import nn\nnn.Dense(3, 4, colour=1)\nms.gone.away\n"
PAGE = "# Title\n\n```python\nfrom mindspore import ops\nops.abs\n```\n\n```python\nnot python\n```\n"


@pytest.fixture(scope="module")
def count_names():
    sys.path.insert(0, str(TOOLS))
    try:
        import count_names

        yield count_names
    finally:
        sys.path.remove(str(TOOLS))


@pytest.fixture
def repository(tmp_path):
    """A function that commits files and returns the folder of the repository."""

    def make(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / name.replace("__", ".")
            path.write_text(text)
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "files"]):
            subprocess.run(["git", *command], cwd=tmp_path, check=True)
        return tmp_path

    return make


def test_names_and_keywords_count_once_per_program(count_names, repository):
    corpus = count_names.Corpus()
    corpus.read("a/b", repository(one__py=PROGRAM + "nn.Dense(1, 2)\n", two__py=PROGRAM, none__py="print(1)"))
    assert corpus.counts["mindspore.nn.Dense"] == 2
    assert corpus.counts["mindspore.nn.Dense(colour)"] == 2
    assert corpus.repositories[0]["programs"] == 2
    assert corpus.needs == {("mindspore.gone.away", "mindspore.nn.Dense(colour)"): 2}


def test_a_copy_counts_once(count_names, repository):
    corpus = count_names.Corpus()
    corpus.read("a/b", repository(one__py=PROGRAM, two__py=PROGRAM))
    assert (corpus.counts["mindspore.nn.Dense"], corpus.repeated) == (1, 1)


def test_cells_of_pages_count_and_their_fragments_do_not(count_names, repository):
    corpus = count_names.Corpus()
    cells = [{"cell_type": "code", "source": ["!pip install mindspore\n", "import mindspore\n", "mindspore.Tensor"]}]
    corpus.read("a/b", repository(page__md=PAGE, book__ipynb=json.dumps({"cells": cells})))
    assert set(corpus.counts) == {"mindspore", "mindspore.Tensor", "mindspore.ops", "mindspore.ops.abs"}


def test_a_file_that_is_no_python_is_counted_as_such(count_names, repository):
    corpus = count_names.Corpus()
    corpus.read("a/b", repository(old__py="import mindspore\nprint 3\n"))
    assert (corpus.unreadable, corpus.repositories[0]["programs"]) == (1, 0)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("mindspore.Tensor", "mindspore"),
        ("mindspore.nn.Dense", "mindspore.nn"),
        ("mindspore.nnx", "mindspore"),
        ("mindspore.ops.operations._grad_ops.ReluGrad", "internal names (`_…`)"),
        ("mindspore.nn.Dense(has_bias)", "keyword arguments"),
    ],
)
def test_the_package_of_a_name(count_names, name, package):
    import _requested_names

    assert _requested_names.package_of(name) == package


def test_the_shortest_missing_beginning(count_names):
    import _requested_names

    assert _requested_names.first_missing("mindspore.gone.away.far") == "mindspore.gone"
    assert _requested_names.first_missing("mindspore.nn.Dense(colour)") == "mindspore.nn.Dense(colour)"
