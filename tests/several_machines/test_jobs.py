"""Jobs on several machines: numbers of one machine, failures that are named on every node, networks that misbehave."""

import re
import shlex
from pathlib import Path

import machines
import pytest

STEPS = Path(__file__).parent / "programs" / "steps.py"
RANKS = Path(__file__).parents[1] / "mindspore" / "communication" / "programs"
SECONDS = 60
"""In which every rank ends after a machine is gone, on a busy computer, too: 8 s until that is noticed, and some for the ranks."""


def losses(output: str) -> list[str]:
    return sorted(re.findall(r"step \d+ of rank \d+: \S+", output))


@pytest.mark.full
def test_a_pulled_cable_changes_no_number(make_machines, start_job):
    """Of four seconds; the same job on one machine has the same losses."""
    alone = start_job(make_machines(1), 2, STEPS, 12, 0, -1)
    assert alone.codes() == [0], alone.output()
    made = make_machines(2)
    job = start_job(made, 2, STEPS, 12, 0.1, -1)
    job.wait_for("step 2 of")
    made.unplug(1)
    with pytest.raises(AssertionError, match="was not printed"):
        job.wait_for("step 11 of", 4)
    made.plug(1)
    assert job.codes() == [0, 0], job.output()
    assert losses(job.output()) == losses(alone.output())
    assert len(losses(job.output())) == 24
    assert not any(machine.processes() for machine in made)


@pytest.mark.full
def test_a_partition_ends_all_ranks_with_a_named_cause(make_machines, start_job):
    made = make_machines(2)
    job = start_job(made, 2, STEPS, 10_000, 0.1, -1)
    job.wait_for("step 2 of")
    made.partition({0}, {1})
    assert job.codes(SECONDS) == [1, 1], job.output()
    gone = "has not answered for 8 s (its machine is gone, or the network to it)"
    assert re.search(rf"(rank 1 .* on 10.77.0.11|the launcher on node1) {re.escape(gone)}", job.headline(0))
    assert f"the scheduler at 10.77.0.10:8118 {gone}" in job.headline(1)
    assert "stack trace" not in job.output()
    assert not any(machine.processes() for machine in made)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("latency", [0.0, 150.0])
def test_a_rank_that_raises_is_named_on_every_machine(make_machines, start_job, latency):
    """Also where its process has ended before the scheduler's word is back."""
    made = make_machines(2, link=machines.Link(latency=latency))
    job = start_job(made, 2, STEPS, 10_000, 0.1, 1)
    codes = job.codes()
    assert 0 not in codes, job.output()
    assert "ValueError: the data is spoiled" in "".join(job.lines[1])
    for number in range(2):
        assert re.search(r"rank 1 \(.*\) on 10\.77\.0\.11 ended with an exception", job.headline(number)), job.output()
    assert not any(machine.processes() for machine in made)


@pytest.mark.soak
@pytest.mark.parametrize(
    "programs",
    [
        ["data_parallel.py equal", "data_parallel.py rest", "golden_curves.py", "fusion.py"],
        ["messages.py", "layers.py", "thor.py", "mint_layers.py", "first_values.py"],
    ],
)
def test_programs_equal_one_device(make_machines, start_job, programs):
    """Each program compares itself with one device."""
    job = start_job(make_machines(2), 2, RANKS / "in_turn.py", *programs)
    assert job.codes(600) == [0, 0], job.output()
    assert job.output().count("all is well") == 2 * len(programs)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
def test_networks_of_all_kinds(make_machines, start_job, seed):
    """What the network does is drawn; training goes on with the same numbers, or every rank ends with a named cause."""
    draw = machines.random.Random(seed)
    made = make_machines(2, seed=seed)
    job = start_job(made, 4, STEPS, 60, 0.1, -1)
    job.wait_for("step 2 of", 300)
    kind = draw.choice(["unplug", "loss", "latency", "rate", "oneway", "partition", "vanish"])
    if kind == "unplug":
        made.unplug(1)
        machines.time.sleep(draw.choice([1, 5, 30]))
        made.plug(1)
    elif kind == "oneway":
        made.set_link(machines.Link(up=False), [seed % 2], [1 - seed % 2])
    elif kind == "partition":
        made.partition({0}, {1})
    elif kind == "vanish":
        made.unplug(1)
        made[1].vanish()
    else:
        made.set_link(machines.Link(**{kind: {"loss": 0.05, "latency": 100.0, "rate": 1.25e6}[kind]}))
    codes = job.codes(300)
    if codes == [0, 0]:
        alone = start_job(make_machines(1), 4, STEPS, 60, 0, -1)
        assert alone.codes(300) == [0], alone.output()
        assert losses(job.output()) == losses(alone.output())
        assert len(losses(job.output())) == 240
    else:
        assert kind in ("unplug", "oneway", "partition", "vanish"), shlex.join([kind, job.output()])
        assert "has not answered for 8 s" in job.headline(0), job.output()
    assert not any(machine.processes() for machine in made if machine.is_up)
