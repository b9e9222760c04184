"""A program submits a script and follows its job; the API server is a fake one, the operator and the client are real."""

import asyncio

import pytest
from support_k8s.playground import OperatorProcess, cluster

from sporax import k8s
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.cluster.job_progress import ProgressReport, ProgressServer
from sporax.k8s import submitted_job
from sporax.k8s.operator import OperatorOptions
from sporax.k8s.progress_calls import ProgressClient


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr(submitted_job, "_POLL_SECONDS", 0.02)
    path = tmp_path / "train.py"
    path.write_text("print(1)\n")
    return str(path)


@pytest.fixture
def rank_0():
    server = ProgressServer(0, "127.0.0.1")
    yield server
    server.close()


def test_a_script_is_submitted_and_its_log_and_progress_are_followed_to_the_end(script, rank_0, tmp_path, monkeypatch):
    async def story():
        async with cluster(tmp_path, monkeypatch) as (api, playground):
            client = ProgressClient(rank_0.port, pause_seconds=0.05)
            serving = OperatorProcess(OperatorOptions(), metrics=playground.metrics, progress=client)
            options = {"image": "sporax:1", "workers": 2, "arguments": ["--epochs", "3"]}
            job = await asyncio.to_thread(k8s.submit, script, **options)
            body = api.get("msjobs", "train")
            owner = api.get("configmaps", "train")["metadata"]["ownerReferences"][0]
            assert owner["uid"] == body["metadata"]["uid"]
            container = body["spec"]["msReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
            assert container["command"][-2:] == ["--epochs", "3"]
            lines, received = [], []
            following = asyncio.to_thread(job.follow, on_line=lines.append, on_progress=received.append)
            following = asyncio.create_task(following)
            await playground.until(playground.is_in("Running", "train"))
            assert (await asyncio.to_thread(job.look)).state == "Running"
            api.logs["train-worker-0"] = ["step 1", "step 2"]
            await playground.until(lambda: lines == ["step 1", "step 2"])
            rank_0.last = ProgressReport(step=2, loss="0.5")
            await playground.until(lambda: received)
            assert (received[-1].step, received[-1].loss) == (2, "0.5")
            api.logs["train-worker-0"] += ["the end"]
            playground.end("train-worker-0", 0)
            playground.end("train-worker-1", 0)
            assert await following == "Succeeded"
            assert lines == ["step 1", "step 2", "the end"]
            with pytest.raises(SporaxValueError, match="job 'train' is there and has ended .Succeeded."):
                await asyncio.to_thread(k8s.submit, script, image="sporax:1")
            await asyncio.to_thread(job.delete)
            with pytest.raises(SporaxValueError, match="there is no job 'train'"):
                await asyncio.to_thread(job.look)
            job.close()
            await serving.kill()

    asyncio.run(story())


def test_a_job_that_does_not_end_in_time_is_said_to_be_where_it_is(script, tmp_path, monkeypatch):
    async def story():
        async with cluster(tmp_path, monkeypatch):
            job = await asyncio.to_thread(k8s.submit, script, image="sporax:1")
            with pytest.raises(SporaxRuntimeError, match="job 'train' must end within 0.05 s, but it is Pending"):
                await asyncio.to_thread(job.follow, seconds=0.05)
            job.close()

    asyncio.run(story())


def test_what_makes_no_job_is_refused_before_a_cluster_is_queried(script):
    with pytest.raises(SporaxValueError, match="'image' must name an image"):
        k8s.submit(script, image="")
    with pytest.raises(SporaxValueError, match="the script must be a file, but got 'nothing.py'"):
        k8s.submit("nothing.py", image="i")
    with pytest.raises(SporaxValueError, match="Worker.replicas"):
        k8s.submit(script, image="i", workers=-1)
