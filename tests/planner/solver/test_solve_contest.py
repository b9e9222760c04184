import json

import pytest
from solve_contest import main


def write(path, limit):
    nodes = {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [3, 4]], "usages": [[5, 1], [2, 2]]}
    edges = {"nodes": [[0, 1]], "costs": [[0, 10, 10, 0]]}
    path.write_text(json.dumps({"problem": {"name": "x", "nodes": nodes, "edges": edges, "usage_limit": limit}}))
    return str(path)


def test_prints_one_json_object_and_writes_the_choices(tmp_path, capsys):
    target = tmp_path / "choices.json"
    assert main([write(tmp_path / "g.json", 4), "--json", "--time", "9", "--solution", str(target)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record.pop("seconds") >= 0
    assert record == {"cost": 6, "bound": 6, "optimal": True, "peak": 3, "limit": 4}
    assert json.loads(target.read_text()) == [1, 1]


def test_says_when_nothing_fits(tmp_path, capsys):
    assert main([write(tmp_path / "g.json", 2), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["cost"], record["optimal"], record["infeasible"]) == (None, False, "proven")


def test_text_output_has_the_same_fields(tmp_path, capsys):
    assert main([write(tmp_path / "g.json", 9)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["cost"] == "4"
    assert lines["optimal"] == "True"


@pytest.mark.parametrize("content", ["{", '{"problem": {}}'])
def test_a_bad_file_is_status_two(tmp_path, capsys, content):
    path = tmp_path / "bad.json"
    path.write_text(content)
    assert main([str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "bad.json" in captured.err


def test_choices_from_a_file_are_measured(tmp_path, capsys):
    graph, choices = write(tmp_path / "g.json", 6), tmp_path / "choices.json"
    for picked, expected in {
        (1, 1): {"cost": 6, "peak": 3, "limit": 6, "fits": True},
        (0, 0): {"cost": 4, "peak": 7, "limit": 6, "fits": False},
    }.items():
        choices.write_text(json.dumps(picked))
        assert main([graph, "--json", "--check", str(choices)]) == (0 if expected["fits"] else 1)
        assert json.loads(capsys.readouterr().out) == expected
    for wrong, message in {
        "[0]": "one choice per node, but got 1 choices and 2 nodes",
        "[0, 2]": "the choice of node 1 must be from 0 to 1, but got 2",
        "[0, 0.5]": "entry 1 must be a whole number, but got 0.5",
        "{}": "there must be a list of whole numbers, but got {}",
        "[0,": "the file must be JSON",
    }.items():
        choices.write_text(wrong)
        assert main([graph, "--check", str(choices)]) == 2
        assert message in capsys.readouterr().err


def test_an_unwritable_solution_file_is_status_two(tmp_path, capsys):
    assert main([write(tmp_path / "g.json", 9), "--solution", str(tmp_path / "no" / "dir.json")]) == 2
    assert "--solution" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--time", "0"], ["--time", "soon"], ["--threads", "0"], ["--threads", "two"], ["--threads", "99999"]]
)
def test_wrong_arguments_are_status_two(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["g.json", *arguments])
    assert caught.value.code == 2
    report = capsys.readouterr().err
    assert f"argument {arguments[0]}: must be a" in report
    assert f"but got '{arguments[1]}'" in report
