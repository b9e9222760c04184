"""The operator queries rank 0 how far a job is, and says it in the job's status and in its figures."""

import asyncio
import ssl
from datetime import UTC, datetime

import pytest
from support_k8s.jobs import job
from support_k8s.playground import OperatorProcess, cluster

from sporax.base.text_pages import TextPages
from sporax.cluster.job_progress import PATH, ProgressReport, ProgressServer
from sporax.k8s.api.cache import JobKey
from sporax.k8s.operator import OperatorOptions
from sporax.k8s.progress_calls import ProgressClient
from sporax.k8s.view import progress_line

KEY, NOW, HERE = JobKey("default", "job"), datetime(2026, 1, 1, tzinfo=UTC), "127.0.0.1"


@pytest.fixture
def rank_0():
    server = ProgressServer(0, HERE)
    yield server
    server.close()


def test_the_status_and_the_figures_follow_rank_0(rank_0, tmp_path, monkeypatch):
    async def story():
        async with cluster(tmp_path, monkeypatch) as (api, playground):
            client = ProgressClient(rank_0.port, pause_seconds=0.1)
            options = OperatorOptions(resync_seconds=60.0)
            serving = OperatorProcess(options, metrics=playground.metrics, progress=client)
            api.put("msjobs", job())
            await playground.until(playground.is_in("Running"))
            assert playground.status().progress is None  # nothing has been trained
            rank_0.last = ProgressReport(step=40, epoch=2, loss="0.25", samples_per_second="812")
            await playground.until(lambda: playground.status().progress is not None)
            progress = playground.status().progress
            assert progress_line(progress, progress.time) == "epoch 2, step 40, loss 0.25, 812 samples/s (0s ago)"
            value, labels = playground.metrics.registry.get_sample_value, {"namespace": "default", "job": "job"}
            figures = lambda: [value(f"sporax_operator_job_{name}", labels) for name in ("step", "loss", "epoch")]
            await playground.until(lambda: figures() == [40.0, 0.25, 2.0])
            assert value("sporax_operator_job_ready_pods", labels | {"role": "Worker"}) == 2.0
            rank_0.last = ProgressReport(step=50, loss="nan")
            await playground.until(lambda: playground.status().progress.step == 50)
            await playground.until(lambda: str(value("sporax_operator_job_loss", labels)) == "nan")
            api.remove("msjobs", "job")
            await playground.until(lambda: value("sporax_operator_job_step", labels) is None)
            await serving.kill()

    asyncio.run(story())


def test_a_job_is_queried_seldom_and_one_that_is_silent_more_and_more_seldom(rank_0):
    async def story():
        client = ProgressClient(rank_0.port)
        rank_0.last = ProgressReport(step=1)
        first = await client.read(KEY, HERE, NOW)
        assert (first.step, first.time) == (1, NOW)
        rank_0.last = ProgressReport(step=2)
        assert await client.read(KEY, HERE, NOW) is first  # not queried again
        assert 5 < client.seconds_left(KEY) <= 10
        silent = ProgressClient(1)  # no program listens there
        waits = []
        for _ in range(9):
            assert await silent.read(KEY, HERE, NOW) is None
            waits.append(round(silent.seconds_left(KEY)))
            silent._due[KEY] = (0.0, silent._due[KEY][1])
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        silent.forget(KEY)
        assert silent.seconds_left(KEY) == 0

    asyncio.run(story())


def test_a_question_loads_no_certificates(rank_0, monkeypatch):
    """It takes 40 ms, more than all else that a look at a job costs."""
    loaded = []
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *places, **more: loaded.append(more))
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *places, **more: loaded.append(more))
    rank_0.last = ProgressReport(step=1)
    assert asyncio.run(ProgressClient(rank_0.port).read(KEY, HERE, NOW)).step == 1
    assert loaded == []


@pytest.mark.parametrize(
    "words",
    [
        "ok",
        "[]",
        '{"step": "many"}',
        '{"step": -1}',
        '{"step": 1%s}' % ("0" * 30),
        '{"step": 1, "loss": "%s"}' % ("9" * 99),
        "x" * 10**6,
    ],
)
def test_what_a_foreign_image_answers_is_no_progress(words):
    async def story():
        pages = TextPages(0, {PATH: lambda: words})
        assert await ProgressClient(pages.port).read(KEY, HERE, NOW) is None
        pages.close()

    asyncio.run(story())
