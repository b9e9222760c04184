"""The protocol under a bad network and crashes, simulated: exact sums, order-independent bits, no split brain."""

from __future__ import annotations

import heapq
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

sys.path.insert(0, str(Path(__file__).parent))

from simulation import Faults, Simulation

from sporax.ps.protocol.messages import Options


def answered(simulation: Simulation, keys: list[tuple[int, int]]) -> bool:
    return all(key in simulation.answers for key in keys)


BAD = Faults(drop=0.1, repeat=0.2, delay=0.2)
SLOTS = 3


def job(
    seed: int, *, staleness: int = -1, durability: str = "replica", servers: int = 3, faults: Faults = BAD
) -> Simulation:
    options = Options(staleness, durability, SLOTS, lease_seconds=1.0, heartbeat_seconds=0.1)
    simulation = Simulation(seed, servers, 2, options, faults)
    simulation.initialise()
    return simulation


@pytest.mark.parametrize("durability", ["memory", "process", "replica"])
@pytest.mark.parametrize("seed", range(4))
def test_each_push_counts_once_over_a_bad_network(durability: str, seed: int) -> None:
    simulation = job(seed, durability=durability)
    keys = [
        simulation.push(rank, slot, seq, seq - 1) for seq in range(1, 9) for slot in range(SLOTS) for rank in (0, 1)
    ]
    simulation.run_until(lambda: all(key in simulation.answers for key in keys))
    for slot in range(SLOTS):
        assert simulation.value_of(0, slot).tolist() == [16.0] * 4
    assert not simulation.failures


@pytest.mark.parametrize("seed", range(6))
def test_that_values_exist_is_known_though_the_scheduler_ended_when_it_was_notified(seed: int) -> None:
    """What says it is lost with the scheduler; a server that comes back empty later is noticed all the same."""
    simulation = job(seed, durability="memory", servers=2)
    simulation.queue = [entry for entry in simulation.queue if entry[2] != "scheduler"]
    heapq.heapify(simulation.queue)
    simulation.restart_scheduler()
    assert not simulation.journal.initialised
    simulation.run_until(lambda: simulation.journal.initialised)
    simulation.restart_scheduler()
    assert simulation.journal.initialised
    simulation.run(1.0)
    simulation.crash(1)
    simulation.run_until(lambda: simulation.failures)
    assert "be on server 1, but it has come back without them" in simulation.failures[0]


def after_crashes(durability: str, seed: int) -> Simulation:
    """A job in which two workers pushed 15 times to each slot while servers and the scheduler crashed."""
    simulation = job(seed, durability=durability)
    keys = []
    for seq in range(1, 16):
        keys += [simulation.push(rank, slot, seq, seq - 1) for slot in range(SLOTS) for rank in (0, 1)]
        simulation.run(simulation.rng.random() * 0.5)
        victim = simulation.rng.randrange(6)
        if victim < 3:
            simulation.crash(victim)
        elif victim == 3:
            simulation.restart_scheduler()
    simulation.run_until(lambda: all(key in simulation.answers for key in keys), 300)
    return simulation


@pytest.mark.parametrize("durability", ["process", "replica"])
@pytest.mark.parametrize("seed", range(10))
def test_no_acknowledged_push_is_lost_when_servers_and_scheduler_crash(durability: str, seed: int) -> None:
    simulation = after_crashes(durability, seed)
    for slot in range(SLOTS):
        assert simulation.value_of(0, slot).tolist() == [30.0] * 4
    assert not simulation.failures


def test_a_follower_that_requested_twice_a_slot_replays_what_was_on_its_way() -> None:
    """Records on their way when the second image is sent are of an earlier epoch than the view; a restart keeps them."""
    simulation = after_crashes("replica", 283)
    for slot in range(SLOTS):
        assert simulation.value_of(0, slot).tolist() == [30.0] * 4
    assert not simulation.failures


def settle(simulation: Simulation) -> None:
    """Until the slots no longer move and each has its backup."""
    epoch = -1
    while epoch != simulation.journal.epoch or not all(holders.synced for holders in simulation.journal.slots):
        epoch = simulation.journal.epoch
        simulation.run(2.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_server_that_was_paused_cannot_answer_for_slots_it_has_lost(seed: int) -> None:
    simulation = job(seed, faults=Faults(delay=0.01))
    simulation.run(2.0)
    keys = []
    for seq in range(1, 7):
        settle(simulation)
        victim = simulation.servers[simulation.rng.randrange(3)]
        victim.paused = True
        keys += [simulation.push(0, slot, seq, seq - 1) for slot in range(SLOTS)]
        simulation.run_until(partial(answered, simulation, keys), 60)
        victim.paused = False
        for slot in range(SLOTS):
            assert simulation.value_of(0, slot).tolist() == [seq] * 4


def test_synchronous_bits_do_not_depend_on_arrival_or_crashes() -> None:
    results = set()
    for seed in range(6):
        simulation = job(seed, staleness=0, faults=BAD if seed else Faults())
        for clock in range(6):
            order = [(rank, slot) for rank in (0, 1) for slot in range(SLOTS)]
            simulation.rng.shuffle(order)
            keys = [simulation.push(rank, slot, clock + 1, clock, 0.1 * (rank + 1) + clock) for rank, slot in order]
            if seed > 2:
                simulation.run(simulation.rng.random() * 0.3)
                simulation.crash(simulation.rng.randrange(3))
            simulation.run_until(partial(answered, simulation, keys), 120)
        results.add(b"".join(simulation.value_of(1, slot, 6).tobytes() for slot in range(SLOTS)))
        assert not simulation.failures
    assert len(results) == 1


def test_the_values_of_the_clock_before_stay_readable_for_a_worker_that_died_in_its_step() -> None:
    simulation = job(0, staleness=0, faults=Faults())
    keys = [simulation.push(rank, 0, 1, 0) for rank in (0, 1)]
    simulation.run_until(lambda: all(key in simulation.answers for key in keys))
    assert simulation.value_of(1, 0, 0).tolist() == [0.0] * 4
    assert simulation.value_of(1, 0, 1).tolist() == [1.0] * 4


def test_bounded_staleness_stops_the_fast_worker() -> None:
    simulation = job(0, staleness=2, faults=Faults())
    for seq in range(1, 4):
        simulation.push(0, 0, seq, seq - 1)
    simulation.run(1.0)
    blocked = simulation.pull(0, 0, 3)
    simulation.run(2.0)
    assert blocked not in simulation.answers
    simulation.push(1, 0, 1, 0)
    simulation.run(2.0)
    assert blocked in simulation.answers


def test_a_lease_of_samples_counts_once_whoever_pushes_it() -> None:
    simulation = job(0, faults=Faults())
    keys = [
        simulation.push(0, 0, 1, 0, lease=7),
        simulation.push(1, 0, 1, 0, lease=7),
        simulation.push(1, 0, 2, 1, lease=8),
    ]
    simulation.run_until(lambda: all(key in simulation.answers for key in keys))
    assert simulation.value_of(0, 0).tolist() == [2.0] * 4


def test_a_replaced_worker_is_fenced() -> None:
    simulation = job(0, faults=Faults())
    simulation.incarnations[0] = 2
    key = simulation.push(0, 0, 1, 0)
    simulation.run_until(lambda: key in simulation.answers)
    simulation.incarnations[0] = 1
    simulation.push(0, 0, 2, 1)
    simulation.run(2.0)
    assert simulation.failures == ["this worker has been replaced"]
    assert simulation.value_of(1, 0).tolist() == [1.0] * 4


def test_losing_every_copy_is_an_error_that_names_the_slots() -> None:
    simulation = job(0, durability="memory", servers=1, faults=Faults())
    simulation.run(1.0)
    simulation.crash(0)
    simulation.run(3.0)
    assert simulation.failures
    assert "slots [0, 1, 2] must be on server 0" in simulation.failures[0]


class AgainstADict(RuleBasedStateMachine):
    """Any sequence of pushes, reads, crashes and pauses gives what a dict of sums gives."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = job(0, faults=Faults(drop=0.02, repeat=0.1, delay=0.05))
        self.model = dict.fromkeys(range(SLOTS), 0.0)
        self.seqs = {(rank, slot): 0 for rank in (0, 1) for slot in range(SLOTS)}

    @rule(rank=st.sampled_from([0, 1]), slot=st.integers(0, SLOTS - 1), value=st.integers(-5, 5), waits=st.booleans())
    def push(self, rank: int, slot: int, value: int, waits: bool) -> None:
        self.seqs[(rank, slot)] += 1
        seq = self.seqs[(rank, slot)]
        key = self.simulation.push(rank, slot, seq, seq - 1, float(value))
        self.model[slot] += value
        if waits:
            self.simulation.run_until(lambda: key in self.simulation.answers)

    @rule(index=st.integers(0, 2))
    def crash(self, index: int) -> None:
        self.simulation.crash(index)

    @rule()
    def restart_scheduler(self) -> None:
        self.simulation.restart_scheduler()

    @rule(index=st.integers(0, 2))
    def pause(self, index: int) -> None:
        self.simulation.servers[index].paused = True
        self.simulation.run(2.0)
        self.simulation.servers[index].paused = False

    @rule(slot=st.integers(0, SLOTS - 1))
    def read(self, slot: int) -> None:
        self.simulation.run_until(lambda: not any(state.open for state in self.simulation.clients), 300)
        assert self.simulation.value_of(0, slot).tolist() == [self.model[slot]] * 4

    @invariant()
    def nothing_failed(self) -> None:
        assert not self.simulation.failures


TestAgainstADict = AgainstADict.TestCase
TestAgainstADict.settings = settings(
    max_examples=12, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_members_change_at_one_clock_for_all_slots() -> None:
    simulation = job(1, staleness=0, faults=Faults(delay=0.02))
    assert np.all(simulation.value_of(0, 0) == 0)
    simulation.journal.worker_num = 1
    keys: list[tuple[int, int]] = []
    for clock in range(30):
        present = simulation.scheduler.view.members
        keys = [
            simulation.push(rank, slot, clock + 1, clock)
            for slot in range(SLOTS)
            for rank in (0, 1)
            if rank in next(entry.ranks for entry in reversed(present) if entry.clock <= clock)
        ]
        simulation.run_until(partial(answered, simulation, keys))
        simulation.run(0.2)
    assert [entry.ranks for entry in simulation.scheduler.view.members] == [[0, 1], [0]]
    assert {tuple(simulation.value_of(0, slot).tolist()) for slot in range(SLOTS)} == {(30.0,) * 4}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_crashes_on_a_bad_network_many_seeds(seed: int) -> None:
    simulation = after_crashes("replica" if seed % 2 else "process", seed)
    for slot in range(SLOTS):
        assert simulation.value_of(0, slot).tolist() == [30.0] * 4
    assert not simulation.failures


def test_a_server_that_stays_away_is_lost_after_its_time() -> None:
    options = Options(0, "process", 4, 1.0, 0.2, lost_seconds=20.0)
    simulation = Simulation(1, servers=2, workers=1, options=options, faults=Faults())
    simulation.initialise()
    simulation.servers[1].paused = True
    simulation.run(15.0)
    assert not simulation.failures
    simulation.run(15.0)
    assert "away for more than 20 s" in simulation.failures[0]
    assert "No checkpoint was taken" in simulation.failures[0]
