"""Every environment variable that is read is in the table, and what it must not hold is refused with its name."""

import re
from pathlib import Path

import pytest

import sporax
from sporax.base.errors import SporaxValueError
from sporax.cluster.environment import RankEnvironment
from sporax.ir.variables import JOB, SERVERS, TEXT, VARIABLES, check, without_effect
from sporax.launch import cli
from sporax.ps.environment import PsEnvironment

NAME = re.compile(r"""["']((?:MS|SPORAX|RANK|DEVICE|LOCAL|GLOG|OMPI|PMIX)_[A-Za-z_]+)["']""")
WORDS = {"MS_WORKER", "MS_PSERVER", "MS_SERVER", "MS_SCHED", "MS_NOT_PS", "MS_SCHED_", "MS_PS_", "SPORAX_"}
"""Roles and parts of names, which are no variables."""
WRONG = [(name, text) for name, variable in VARIABLES.items() for text in variable.kind.outside]


def test_every_variable_that_a_module_names_is_in_the_table():
    root = Path(sporax.__file__).parent
    named = {name: path.name for path in root.rglob("*.py") for name in NAME.findall(path.read_text())}
    assert {name: place for name, place in named.items() if name not in WORDS and name not in VARIABLES} == {}


def test_what_is_no_text_has_examples_of_what_is_refused():
    assert [
        name for name, variable in VARIABLES.items() if variable.kind is not TEXT and not variable.kind.outside
    ] == []


@pytest.mark.parametrize(("name", "text"), WRONG)
def test_a_wrong_value_is_refused_with_name_range_and_value(name, text):
    with pytest.raises(SporaxValueError, match=rf"^For '{name}', the value must be .+, but got '{re.escape(text)}'\.$"):
        VARIABLES[name].read({name: text})
    with pytest.raises(SporaxValueError, match=f"^For '{name}'"):
        check({name: text})


@pytest.mark.parametrize(("name", "text"), [entry for entry in WRONG if VARIABLES[entry[0]].subject in (JOB, SERVERS)])
def test_processes_of_a_job_check_all_their_variables_before_they_wait_for_another(name, text):
    place = {"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "2", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": "8118"}
    with pytest.raises(SporaxValueError, match=f"^For '{name}'"):
        PsEnvironment.read({**place, name: text})
    if VARIABLES[name].subject == JOB:
        with pytest.raises(SporaxValueError, match=f"^For '{name}'"):
            RankEnvironment.from_environ({**place, name: text})


@pytest.mark.parametrize(("name", "text"), WRONG)
def test_the_launcher_checks_all_variables_before_it_starts_anything(name, text, monkeypatch, capsys):
    monkeypatch.setenv(name, text)
    assert cli.main(["run", "--worker_num", "2", "nothing.py"]) == 2
    assert f"For '{name}', the value must be" in capsys.readouterr().err


def test_each_server_has_a_slot():
    with pytest.raises(
        SporaxValueError, match=r"'MS_PS_SLOTS', the value must be at least MS_SERVER_NUM, which is 4, but got '2'"
    ):
        PsEnvironment.read({"MS_SERVER_NUM": "4", "MS_PS_SLOTS": "2"})


def test_the_scheduler_of_servers_needs_the_next_port():
    with pytest.raises(SporaxValueError, match="'MS_SCHED_PORT', the value must be less than 65535"):
        PsEnvironment.read({"MS_SCHED_PORT": "65535"})


def test_variables_without_effect_are_named():
    environ = {
        "MS_PS_SLOTS": "8",
        "MS_PS_SLOT": "8",
        "SPORAX_NO_CASH": "1",
        "MS_PS_KEYS": "here",
        "MS_DEV_SOMETHING": "1",
    }
    assert set(without_effect(environ, with_servers=True)) == {"MS_PS_SLOT", "SPORAX_NO_CASH"}
    assert set(without_effect(environ, with_servers=False)) == {"MS_PS_SLOT", "SPORAX_NO_CASH", "MS_PS_SLOTS"}


def test_a_job_without_servers_says_that_their_settings_have_no_effect(tmp_path, monkeypatch, capsys):
    script = tmp_path / "script.py"
    script.write_text("")
    monkeypatch.setenv("MS_PS_LEASE", "5")
    monkeypatch.setenv("SPORAX_NO_CASH", "1")
    # A second mistake, so that nothing is started.
    assert cli.main(["run", "--worker_num", "2", "--master_port", "1", str(script)]) == 2
    output = capsys.readouterr().err
    assert "MS_PS_LEASE has no effect here: the job has no parameter servers" in output
    assert "SPORAX_NO_CASH has no effect here: Sporax knows no variable of this name" in output
