"""What is reported at the end of a script: `--resume` that nothing has read."""

import numpy as np
import pytest

import sporax
from sporax.launch.target import run_and_report
from sporax.runtime.session import SESSION

REQUESTED = {"SPORAX_RESUME": "1"}


@pytest.fixture(autouse=True)
def nothing_looked_for(monkeypatch):
    monkeypatch.setattr(SESSION, "looked_for_checkpoint", False)


def loads(path):
    sporax.save(path, {"w": np.zeros(2)})
    sporax.load(path, {"w": np.zeros(2)})
    return 0


def leaves():
    raise SystemExit(0)


def test_a_loop_of_ones_own_that_loads_nothing_is_reported(capsys):
    assert run_and_report(lambda: 0, REQUESTED) == 0
    assert "`sporax run --resume` had no effect: nothing was resumed." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run_and_report(leaves, REQUESTED)
    assert "nothing was resumed" in capsys.readouterr().err


def test_rank_0_alone_reports(capsys):
    place = {"RANK": "1", "SIZE": "2", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}
    environ = {f"OMPI_COMM_WORLD_{name}": value for name, value in place.items()} | {"PMIX_NAMESPACE": "job"}
    run_and_report(lambda: 0, REQUESTED | environ)
    assert capsys.readouterr().err == ""


def test_scripts_that_load_that_fail_or_that_were_not_requested_to_are_not_reported(capsys, tmp_path):
    assert run_and_report(lambda: 0, {}) == 0
    assert run_and_report(lambda: 1, REQUESTED) == 1
    assert run_and_report(lambda: loads(tmp_path / "save"), REQUESTED) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("verified", "lines"), [(False, 1), (True, 0)])
def test_plans_that_nothing_has_verified_are_reported(capsys, monkeypatch, verified, lines):
    monkeypatch.setattr(SESSION, "verified_plan", verified)
    assert run_and_report(lambda: 0, {"SPORAX_VERIFY_PLAN": "1"}) == 0
    assert capsys.readouterr().err.count("`sporax run --verify-plan` had no effect: no plan was run") == lines
