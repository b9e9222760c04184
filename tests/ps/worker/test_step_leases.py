"""Samples of a worker's steps: shares of a clock, or ranges that the scheduler leases."""

from types import SimpleNamespace

import pytest

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.worker.server_connection import StepLeases

SECONDS = 10.0


def worker(rank=0, first_workers=1, members=(), clock=0, staleness=0, leased=(), parts=1):
    """A connection with what leases look at."""
    store = SimpleNamespace(rank=rank, members=members, clock=clock, options=SimpleNamespace(staleness=staleness))
    store.requests = []

    def samples(total, size):
        store.requests.append((total, size))
        yield from leased

    store.samples = samples
    return SimpleNamespace(store=store, first_workers=first_workers, parts=[object()] * parts)


def steps(connection, total, size):
    """Ranges and their weights; a step is made for each, and ends its clock."""
    leases = StepLeases(connection)
    seen = []
    for samples in leases.ranges(total, size, SECONDS):
        seen.append((samples, leases.of_push()[1]))
        assert not leases.has_lease
        connection.store.clock += 1
        leases.pushed()
    assert leases.of_push() == (-1, 1.0)
    return seen


def test_the_workers_of_the_start_share_the_samples_of_every_clock():
    assert steps(worker(0, first_workers=2), 10, 3) == [(range(3), 3.0), (range(6, 8), 2.0)]
    assert steps(worker(1, first_workers=2), 10, 3) == [(range(3, 6), 3.0), (range(8, 10), 2.0)]


@pytest.mark.parametrize("members", [(0,), (0, 1, 2), (3, 5, 8, 9, 11), tuple(range(9))])
def test_shares_cover_all_samples_once_however_many_members_there_are(members):
    """A clock is for `size` samples of each worker of the start, also where members have joined or left."""
    seen = [step for rank in members for step in steps(worker(rank, first_workers=2, members=members), 22, 4)]
    assert sorted(sample for samples, _ in seen for sample in samples) == list(range(22))
    assert all(weight == len(samples) for samples, weight in seen)  # gradients are means over shares


def test_the_successor_of_a_killed_worker_begins_with_the_samples_of_its_clock():
    assert steps(worker(clock=2), 10, 3) == [(range(6, 9), 3.0), (range(9, 10), 1.0)]
    assert steps(worker(clock=4), 10, 3) == []


def test_with_staleness_a_push_carries_the_lease_of_its_samples_and_their_number():
    connection = worker(staleness=2, leased=[(0, range(3)), (7, range(3, 5))])
    leases = StepLeases(connection)
    seen = []
    for samples in leases.ranges(5, 3, SECONDS):
        seen.append((samples, leases.has_lease, leases.of_push()))
        leases.pushed()
    assert seen == [(range(3), True, (0, 3.0)), (range(3, 5), True, (7, 2.0))]
    assert connection.store.requests == [(5, 3)]
    assert (leases.has_lease, leases.of_push()) == (False, (-1, 1.0))


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_range_without_a_step_is_an_error_also_behind_one_with_a_step(staleness):
    leases = StepLeases(worker(staleness=staleness, leased=[(4, range(2)), (5, range(2, 4))]))
    ranges = leases.ranges(4, 2, 0.01)
    next(ranges)
    leases.pushed()
    next(ranges)
    with pytest.raises(
        SporaxRuntimeError,
        match=r"^For 'sample_ranges', each range must be used for one training step, but none was made in 0 s\.$",
    ):
        next(ranges)


@pytest.mark.parametrize("parts", [0, 2])
def test_steps_of_several_optimizers_or_of_none_name_no_samples(parts):
    with pytest.raises(SporaxRuntimeError, match=f"one optimizer with parameters on servers, but has {parts}"):
        next(StepLeases(worker(parts=parts)).ranges(4, 2, SECONDS))
