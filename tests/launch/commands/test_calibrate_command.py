"""`sporax calibrate`: what is wrong with the command line is reported before anything is measured."""

import pytest

from sporax.launch import cli
from sporax.runtime.devices import calibrate


@pytest.fixture(autouse=True)
def _nothing_is_measured(monkeypatch, tmp_path):
    def write(name, path):
        with open(path, "w") as file:
            file.write(name)

    monkeypatch.setattr(calibrate, "main", write)
    monkeypatch.chdir(tmp_path)


def test_the_profile_is_written_where_it_was_requested(tmp_path):
    assert cli.main(["calibrate", "--name", "mine", "--out", "mine.json"]) == 0
    assert (tmp_path / "mine.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--devices", "0"], "--devices must be greater than 0, but got 0"),
        (["--devices", "99999"], "their number must be at most 16384 in one process, but got 99999"),
        (["--out", "mine.txt"], "a .json file in a directory that can be written, but got 'mine.txt'"),
        (
            ["--out", "nowhere/mine.json"],
            "a .json file in a directory that can be written, but got 'nowhere/mine.json'",
        ),
        (["--out", "folder.json"], "a .json file in a directory that can be written, but got 'folder.json'"),
        (["--out", "link.json"], "'link.json' must be a file that can be written, but No such file or directory"),
    ],
)
def test_mistakes_are_one_message(tmp_path, capsys, words, message):
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to("nowhere/mine.json")
    assert cli.main(["calibrate", *words]) == 2
    report = capsys.readouterr()
    assert message in report.err
    assert report.err.count("\n") == 1
    assert report.out == ""
