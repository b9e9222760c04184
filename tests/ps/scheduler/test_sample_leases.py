"""Leases of samples: each is done once, whatever happens to workers."""

import pytest

pytest.importorskip("zmq")

from sporax.ps.protocol.messages import LeaseSamples
from sporax.ps.scheduler.journal import Journal
from sporax.ps.scheduler.sample_leases import SampleLeases


def request(rank, incarnation=1):
    return LeaseSamples(0, rank, incarnation, total=10, size=4)


@pytest.fixture
def leases():
    return SampleLeases(Journal("job", worker_num=3, server_num=1))


def test_leases_cover_all_samples_once(leases):
    leased = []
    for _ in range(3):
        leased.append(leases.lend(request(0)))
        assert leases.finish(leased[-1])
    assert [leases.samples_of(lease) for lease in leased] == [(0, 4), (4, 8), (8, 10)]
    assert leases.lend(request(0)) is None
    assert not leases.has_open_leases


def test_a_worker_that_repeats_its_request_gets_the_lease_that_it_has(leases):
    assert leases.lend(request(0)) == leases.lend(request(0)) == 0
    assert leases.lend(request(1)) == 1


def test_what_a_restarted_worker_had_not_finished_is_leased_again(leases):
    first, second = leases.lend(request(0)), leases.lend(request(1))
    leases.finish(second)
    leases.take_back(0, 2)
    leases.take_back(1, 2)
    assert leases.lend(request(2)) == first
    assert leases.lend(request(1, 2)) == 2


def test_a_lease_is_finished_once(leases):
    lease = leases.lend(request(0))
    assert leases.finish(lease)
    assert not leases.finish(lease)
