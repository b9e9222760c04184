"""Servers keep the rows of ids that a script chooses by `EmbeddingLookup.set_row_policy`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sporax.mindspore as ms
from sporax.mindspore import nn

SCRIPT = """
import json, sys
import numpy as np
import mindspore as ms
from mindspore import nn
from mindspore.communication import init, get_rank
from sporax.runtime.session import SESSION

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_ps_context(enable_ps=True)
init()
lookup = nn.EmbeddingLookup(1000, 1, "zeros", target="DEVICE", vocab_cache_size=64)
lookup.set_row_policy(**json.loads(sys.argv[1]))
optimizer = nn.SGD(lookup.trainable_params(), 1.0)
grad = ms.value_and_grad(lambda ids: -lookup(ids).sum(), None, lookup.trainable_params())

@ms.jit
def step(ids):
    loss, grads = grad(ids)
    optimizer(grads)
    return loss

for ids in json.loads(sys.argv[2]):
    step(ms.Tensor(ids, ms.int32))
servers, table = SESSION.servers, lookup.embedding_table.server_rows
rows = servers.fetch({table.key: np.arange(1000)})[1][table.key]
print("rows", json.dumps({int(number): float(rows[number, 0]) for number in np.flatnonzero(rows[:, 0])}))
"""
ALWAYS = list(range(10))


def rows_after(
    run_job: Callable[..., str], folder: Path, policy: dict[str, float], steps: list[list[int]], workers: int = 1
) -> dict[int, float]:
    """The rows that are not zero after steps that each add 1 to the rows of the ids, per worker."""
    out = run_job(SCRIPT, folder, json.dumps(policy), json.dumps(steps), servers=1, workers=workers, MS_PS_SLOTS="2")
    last = next(line for line in out.splitlines() if "rows {" in line)
    return {int(number): value for number, value in json.loads(last.split("rows ", 1)[1]).items()}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_id_gets_a_row_when_enough_steps_have_looked_it_up(
    tmp_path: Path, run_job: Callable[..., str], workers: int
) -> None:
    # Gradients of the steps before are dropped; those of two workers are summed, and their steps are one.
    steps = [[1, 2], [1, 3], [1, 2], [1, 4]]
    found = rows_after(run_job, tmp_path, {"admit_count": 2}, steps, workers)
    scale = found[2]
    assert found == {1: 3 * scale, 2: scale}
    assert scale in (1, workers)


def test_a_share_of_the_ids_gets_rows(tmp_path: Path, run_job: Callable[..., str]) -> None:
    steps = [list(range(first, first + 50)) for first in range(0, 1000, 50)]
    assert 150 < len(rows_after(run_job, tmp_path, {"admit_probability": 0.25}, steps)) < 350


def test_the_rows_whose_update_is_longest_ago_go(tmp_path: Path, run_job: Callable[..., str]) -> None:
    steps = [ALWAYS + [number] for number in range(100, 160)]
    found = rows_after(run_job, tmp_path, {"max_rows": 40}, steps)
    assert len(found) <= 40
    assert {number: found[number] for number in ALWAYS} == dict.fromkeys(ALWAYS, 60)
    assert 159 in found and 100 not in found


def test_rows_without_an_update_go_after_their_time(tmp_path: Path, run_job: Callable[..., str]) -> None:
    steps = [ALWAYS + [500, 501, 502], *[ALWAYS] * 12]
    assert rows_after(run_job, tmp_path, {"ttl": 8}, steps) == dict.fromkeys(ALWAYS, 13)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[nn.EmbeddingLookup]:
    ms.set_ps_context(enable_ps=True)
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    yield nn.EmbeddingLookup(10, 2, "zeros", target="DEVICE", vocab_cache_size=4)
    ms.reset_ps_context()


@pytest.mark.parametrize(
    ("policy", "error", "words"),
    [
        ({"admit_count": -1}, ValueError, "'admit_count' must be >= 0, but got -1"),
        ({"max_rows": 2.0}, TypeError, "'max_rows' must be an int, but got float"),
        ({"ttl": True}, TypeError, "'ttl' must be an int, but got bool"),
        ({"admit_probability": 0}, ValueError, "'admit_probability'"),
    ],
)
def test_settings_out_of_range_are_refused(
    served: nn.EmbeddingLookup, policy: dict[str, float], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        served.set_row_policy(**policy)


def test_a_table_that_is_not_served_or_has_an_optimizer_is_refused(served: nn.EmbeddingLookup) -> None:
    served.embedding_table.server_rows.key = 32
    for lookup in (served, nn.EmbeddingLookup(10, 2)):
        with pytest.raises(
            RuntimeError, match="For 'EmbeddingLookup.set_row_policy', the table must be on parameter servers"
        ):
            lookup.set_row_policy(ttl=1)
