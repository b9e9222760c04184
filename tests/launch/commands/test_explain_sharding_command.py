"""`sporax explain-sharding`: a function of a script with its arguments, and what is wrong with the command line."""

import json
import sys
from pathlib import Path

import pytest

from sporax.launch import cli

EXAMPLE = Path(__file__).parents[3] / "examples" / "11-explain-sharding" / "train.py"


@pytest.fixture(autouse=True)
def _own_path(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)


def command(*words):
    return cli.main(["explain-sharding", "--hardware", "h100", *words])


def test_the_example_has_a_constraint_too_many_and_one_that_is_better(tmp_path, capsys):
    # The batch alone would be gathered otherwise: nothing is allocated, whatever its size.
    assert command(f"{EXAMPLE}:step", "params", "x", "--json", "found.json", "--tries", "12") == 0
    text, found = capsys.readouterr().out, json.loads((tmp_path / "found.json").read_text())
    assert "all-gather" in text and "in place of your constraint" in text
    first = found["collectives"][0]
    assert first["axes"] == ["model"] and first["remedy"]["sent_bytes"] < 0.5 * sum(
        one["sent_bytes"] for one in found["collectives"]
    )
    assert first["remedy"]["change"] == "with_sharding_constraint(…, P(P.UNCONSTRAINED, 'model'))"


def test_arguments_are_expressions_and_keywords(capsys):
    assert command("--tries", "0", f"{EXAMPLE}:loss", "{**params}", "x=array((16, 4096), 'data')") == 0
    assert "Collectives of 'loss' on data=4, model=2, h100" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.py:step"], "name a script that exists, but got 'nothing.py:step'"),
        ([str(EXAMPLE)], "name a script that exists"),
        ([f"{EXAMPLE}:stop"], "must have 'stop', but it has not. Did you mean 'step'?"),
        ([f"{EXAMPLE}:step", "parms", "x"], "expressions of names in the script, but got 'parms'"),
        ([f"{EXAMPLE}:step", "params["], "expressions of names in the script, but got 'params['"),
        (["--devices", "0", f"{EXAMPLE}:step"], "--devices' must be greater than 0"),
        (["--tries", "-1", f"{EXAMPLE}:step"], "'--tries' must be 0 or more, but got -1"),
        (["--json", "nowhere/found.json", f"{EXAMPLE}:step"], "'--json' must be a file in a directory that exists"),
    ],
)
def test_mistakes_are_one_message(capsys, words, message):
    assert command(*words) == cli.USAGE_ERROR
    assert message in capsys.readouterr().err
