"""Workers and servers are added, removed and killed at random moments, on a simulated network: every sample counts once, and the job
ends. The workers run the real `Store` and `ServerConnection`; thousands of such runs take minutes (`soak`)."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from elastic_simulation import ElasticJob
from simulation import Faults

from sporax.ps.client import store as store_module
from sporax.ps.protocol.messages import Members, Options
from sporax.ps.slots.slot import SlotState

NETWORKS = (Faults(), Faults(delay=0.05), Faults(delay=0.3), Faults(drop=0.05, repeat=0.1, delay=0.2))
EVENTS = ("workers", "kill", "servers", "crash", "restart")


@pytest.fixture(autouse=True)
def _real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation replaces the clock of the store; afterwards the real one is there again."""
    monkeypatch.setattr(store_module, "time", store_module.time)


def elastic_run(
    seed: int, kinds: tuple[str, ...], *, staleness: int = 0, worker_lease: float = 60.0, faults: Faults | None = None
) -> ElasticJob:
    """A job with up to twelve events of some kinds, run to its end."""
    draw = random.Random(seed)
    options = Options(
        staleness,
        draw.choice(["replica", "replica", "process"]),
        3,
        lease_seconds=draw.choice([1.0, 10.0]),
        heartbeat_seconds=0.1,
        worker_lease_seconds=worker_lease,
    )
    faults = faults or draw.choice(NETWORKS)
    steps, pause = draw.choice([10, 30]), draw.choice([0.02, 0.2])
    job = ElasticJob(seed, draw.randint(1, 3), draw.randint(1, 3), options, faults, steps=steps, pause=pause)
    job.restart_seconds = draw.choice([0.1, 1.0, 3.0])
    for _ in range(draw.randint(1, 12)):
        until = job.now + draw.choice([0.1, 1.0, 6.0]) * draw.random()
        while job.now < until and not job.is_over:
            job.step(until)
        if not job.is_over:
            happen(job, draw, draw.choice(kinds))
    job.run_to_end()
    return job


def happen(job: ElasticJob, draw: random.Random, kind: str) -> None:
    match kind:
        case "workers":
            job.scale(workers=draw.randint(1, 4))
        case "servers":
            job.scale(servers=draw.randint(1, 4))
        case "kill":
            job.kill_worker(draw.randrange(4))
        case "crash":
            index = draw.randrange(len(job.servers))
            if not job.servers[index].paused:
                job.log.append(f"{job.now:.2f} crash {index}")
                job.crash(index)
        case "restart":
            job.log.append(f"{job.now:.2f} restart")
            job.restart_scheduler()


@pytest.mark.parametrize(
    "kinds", [*(pytest.param(EVENTS[:count], marks=pytest.mark.soak) for count in (1, 2, 3)), EVENTS], ids="-".join
)
@given(seed=st.integers(0, 10**9), staleness=st.sampled_from([0, 0, 2, -1]))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_sample_counts_once_while_workers_come_and_go(kinds: tuple[str, ...], seed: int, staleness: int) -> None:
    job = elastic_run(seed, kinds, staleness=staleness)
    np.testing.assert_allclose(job.counts(), 1, atol=1e-4, err_msg=str(job.log))


@given(seed=st.integers(0, 10**9))
@example(seed=10357)
@example(seed=112983743)
@example(seed=520765269)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_job_goes_on_though_silent_workers_lose_their_place(seed: int) -> None:
    """They were away for longer than their lease, so sums may have fewer terms; nothing counts twice, and nobody waits for ever."""
    job = elastic_run(seed, EVENTS, worker_lease=0.7)
    samples_of_clock = job.size * job.first_workers
    # The smallest share stands for all samples of a clock where nobody else's counts.
    assert job.counts().max() < samples_of_clock / (samples_of_clock // len(job.workers)) + 1e-4


@pytest.mark.soak
@pytest.mark.parametrize("block", range(20))
def test_every_sample_counts_once_in_many_runs(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        kinds = (EVENTS[:1], EVENTS[:2], EVENTS[:3], EVENTS)[seed % 4]
        job = elastic_run(seed, kinds, staleness=(0, 0, 0, -1, 2)[seed % 5])
        np.testing.assert_allclose(job.counts(), 1, atol=1e-4, err_msg=f"{seed}: {job.log}")


def quiet_job(workers: int, staleness: int = 0, **options: float) -> ElasticJob:
    settings_of_job = Options(staleness, "process", 3, lease_seconds=10.0, heartbeat_seconds=0.1, **options)
    return ElasticJob(1, 2, workers, settings_of_job, Faults(delay=0.01), steps=40, pause=0.1)


@pytest.mark.parametrize("seconds", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("staleness", [0, 2, -1])
def test_a_worker_that_was_added_and_is_removed_again_leaves(seconds: float, staleness: int) -> None:
    """Also before it has become a member; it waited for its place for ever once, and so did the job."""
    job = quiet_job(2, staleness)
    job.run(1.0)
    job.scale(workers=3)
    job.run(seconds)
    job.scale(workers=2)
    job.run_to_end()
    assert job.workers[2].has_ended
    assert job.journal.workers.get(2, ("", 0, True))[2]
    np.testing.assert_allclose(job.counts(), 1, atol=1e-4)


def test_a_removed_worker_that_is_killed_makes_its_last_steps_all_the_same() -> None:
    job = quiet_job(3, worker_lease_seconds=60.0)
    job.run(1.0)
    job.scale(workers=1)
    for rank in (1, 2):
        assert job.kill_worker(rank)
    job.run_to_end()
    np.testing.assert_allclose(job.counts(), 1, atol=1e-4)


def test_a_removed_worker_that_never_comes_back_is_waited_for_no_longer_than_its_lease() -> None:
    """No supervisor starts it again, and some slots have its last gradient and others not."""
    job = quiet_job(2, worker_lease_seconds=1.0)
    job.run(1.0)
    job.scale(workers=1)
    job.restart_seconds = 1e9
    assert job.kill_worker(1)
    job.run_to_end()
    assert job.journal.members[-1].ranks in ([], [0])


def test_workers_whose_place_comes_later_begin_earlier_where_the_only_member_dies() -> None:
    """They waited for the values of their later clock, and the slots for their gradients of the earlier one."""
    job = quiet_job(1, worker_lease_seconds=1.0)
    job.pause, job.restart_seconds = 0.5, 10.0
    job.run(1.0)
    job.scale(workers=3)
    job.run_until(lambda: job.journal.members[-1].ranks == [0, 1, 2])
    place = job.journal.members[-1].clock
    job.run(0.3)  # they are notified
    assert job.kill_worker(0)
    job.run(5.0)
    assert job.journal.members[-1].ranks == [1, 2]
    assert job.journal.members[-1].clock < place
    job.run_to_end()
    np.testing.assert_allclose(job.counts(), 1, atol=1e-4)


def test_a_worker_that_is_left_out_is_notified_with_the_share_that_does_not_count() -> None:
    job = quiet_job(2, worker_lease_seconds=1.0)
    job.run(1.0)
    job.restart_seconds = 1e9
    assert job.kill_worker(1)
    job.run(20.0)
    (notice,) = job.scheduler.notices
    step = int(re.findall(r"its share of the samples of step (\d+) does not count", notice)[0])
    assert notice.startswith("worker 1 was silent for longer than its lease of 1 s, and the others go on without it")
    # Of each clock 8 samples; the second half was that of worker 1.
    for counts in job.counts().reshape(-1, job.total):
        assert np.flatnonzero(np.abs(counts) < 1e-4).tolist() == list(range(8 * step - 4, 8 * step))


def test_slots_pass_over_clocks_whose_members_have_left() -> None:
    """Both members have finished at clock 10, and a third one was to join at 12."""
    members = [Members(0, [0, 1]), Members(10, []), Members(12, [2])]
    state = SlotState(0, 0, clock=10, members=members)
    state._pass_over_deserted()
    assert state.clock == 12
    for clock in (9, 12):
        state.clock = clock
        state._pass_over_deserted()
        assert state.clock == clock
