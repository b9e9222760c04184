"""`Model.train` reports its progress on request."""

import json
import urllib.request

import numpy as np
import pytest

from sporax.cluster import job_progress
from sporax.mindspore import dataset, nn
from sporax.mindspore.train import Callback, Model
from sporax.mindspore.train.callback import _progress


@pytest.fixture
def rank_0(monkeypatch):
    server = job_progress.ProgressServer(0, "127.0.0.1")
    monkeypatch.setattr(job_progress, "_PROCESS", job_progress._OfProcess())
    monkeypatch.setattr(job_progress, "_open", lambda: server)
    yield server
    server.close()


def test_training_says_its_step_loss_and_rate_after_the_first_step_and_at_the_end(rank_0, monkeypatch):
    received = []

    class Query(Callback):
        def on_train_step_end(self, run_context):
            received.append(progress_of(rank_0))

    monkeypatch.setattr(_progress, "REPORT_SECONDS", 3600.0)
    net = nn.Dense(8, 2)
    model = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1))
    data = dataset.NumpySlicesDataset((np.ones((32, 8), np.float32), np.zeros(32, np.int32)), shuffle=False).batch(8)
    model.train(2, data, callbacks=[Query()], dataset_sink_mode=False)
    # This callback comes before the one that reports.
    assert received[0] == {"step": 0}
    assert [report["step"] for report in received[1:]] == [1] * 7
    last = progress_of(rank_0)
    assert (last["step"], last["epoch"]) == (8, 2)
    assert 0 < float(last["loss"]) < float(received[1]["loss"])
    assert float(last["samplesPerSecond"]) > 0


def progress_of(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{job_progress.PATH}") as answer:
        return json.load(answer)
