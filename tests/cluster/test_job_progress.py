"""Rank 0 says how far it is on request."""

import json
import urllib.request

import pytest

import sporax
from sporax.base.errors import SporaxTypeError, SporaxValueError
from sporax.cluster import job_progress

SCHEDULER = (("MS_SCHED_HOST", "127.0.0.1"), ("MS_SCHED_PORT", "2222"))


@pytest.fixture
def process(monkeypatch):
    """This process, as if nothing had requested its progress yet."""
    fresh = job_progress._OfProcess()
    monkeypatch.setattr(job_progress, "_PROCESS", fresh)
    yield fresh
    if fresh._server is not None:
        fresh._server.close()


@pytest.fixture
def rank_0(process, monkeypatch):
    server = job_progress.ProgressServer(0, "127.0.0.1")
    monkeypatch.setattr(job_progress, "_open", lambda: server)
    return server


def progress_of(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{job_progress.PATH}") as answer:
        return json.load(answer)


def test_the_last_report_is_served(rank_0):
    assert progress_of(rank_0) == {"step": 0}
    sporax.report_progress(40, loss=0.25, samples_per_second=812.3456, epoch=2)
    assert progress_of(rank_0) == {"step": 40, "epoch": 2, "loss": "0.25", "samplesPerSecond": "812.346"}
    sporax.report_progress(41, loss=float("nan"))
    assert progress_of(rank_0) == {"step": 41, "loss": "nan"}


def test_nothing_is_served_where_no_port_is_requested_or_by_another_rank(process, monkeypatch):
    monkeypatch.delenv("SPORAX_PROGRESS_PORT", raising=False)
    assert job_progress._open() is None
    monkeypatch.setenv("SPORAX_PROGRESS_PORT", "1")
    for name, value in (
        ("RANK_ID", "1"),
        ("RANK_SIZE", "2"),
        ("MS_WORKER_NUM", "2"),
        ("MS_ROLE", "MS_WORKER"),
        *SCHEDULER,
    ):
        monkeypatch.setenv(name, value)
    assert job_progress._open() is None


def test_a_port_that_is_taken_is_said_and_training_goes_on(process, monkeypatch):
    other = job_progress.ProgressServer(0, "127.0.0.1")
    monkeypatch.setenv("SPORAX_PROGRESS_PORT", str(other.port))
    with pytest.warns(
        UserWarning, match=f"For 'SPORAX_PROGRESS_PORT', .* port {other.port} of 127.0.0.1 cannot be used"
    ):
        sporax.report_progress(1)
    other.close()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"step": 1.5}, SporaxTypeError, "'step' must be a whole number, but got float"),
        ({"step": True}, SporaxTypeError, "'step' must be a whole number, but got bool"),
        ({"step": -1}, SporaxValueError, "'step' must be at least 0, but got -1"),
        ({"step": 1, "epoch": -2}, SporaxValueError, "'epoch' must be at least 0, but got -2"),
    ],
)
def test_what_is_no_count_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        sporax.report_progress(**arguments)
