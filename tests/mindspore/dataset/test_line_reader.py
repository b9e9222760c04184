"""Lines of a file in any order."""

import pytest

import sporax.mindspore.dataset as ds


def test_lines_are_read_by_number(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("erste\r\n\nä\nlast".encode())
    reader = ds.LineReader(str(path))
    assert len(reader) == reader.len() == 4
    assert [reader[4], reader.readline(1), reader[3], reader[2]] == ["last", "erste", "ä", ""]
    reader.close()
    assert reader[1] == "erste"
    for wrong, error in ((0, ValueError), (5, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="Input line is not within|Argument line with value 1 is not of type"):
            reader.readline(wrong)
    reader.close()


def test_what_is_no_file_is_refused(tmp_path):
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert ds.LineReader(str(empty)).len() == 0
    for wrong, error, words in (
        (3, TypeError, "path: 3 is not string"),
        (str(tmp_path), RuntimeError, "is not a regular file"),
        (str(tmp_path / "none"), RuntimeError, "does not exist"),
    ):
        with pytest.raises(error, match=words):
            ds.LineReader(wrong)
