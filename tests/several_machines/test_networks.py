"""What networks do to jobs: ten of the cases that `make soak` draws from its seed, and what the drawing promises."""

import textwrap
from collections import Counter

import machines
import pytest
import soak
from soaks import network

NUMBERS = {
    4: ("cable pulled for 1 s", "ranks", "went on"),
    14: ("cable pulled for 5 s", "ranks", "went on"),
    23: ("one direction only", "ranks", "ended"),
    25: ("5 % lost", "ranks", "went on"),
    21: ("200 ms there and back", "ranks", "went on"),
    15: ("10 Mbit/s", "ranks", "went on"),
    16: ("machine without power", "ranks", "ended"),
    154: ("machine shut down", "servers", "ended"),
    12: ("partition", "servers", "ended"),
    170: ("two partitions in turn, 2 s each", "ranks", "went on"),
}
"""Of seed 0, with how each must end."""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """What all jobs run: those of one size have the same losses on one machine, which are computed once."""
    path = tmp_path_factory.mktemp("networks") / "job.py"
    path.write_text(textwrap.dedent(network.PROGRAM))
    return path, {}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_job_goes_on_with_the_same_numbers_or_names_the_cause_everywhere(program, number):
    if reason := machines.why_unavailable():
        pytest.skip(f"machines cannot be had here: {reason}")
    case = network.case_of(0, number)
    kind, job, outcome = NUMBERS[number]
    assert (case.kind, case.job) == (kind, job)
    assert network.tried(case, *program) == outcome


def test_cases_are_drawn_from_the_seed_and_cover_all_kinds():
    cases = [network.case_of(0, number) for number in range(200)]
    assert cases == [network.case_of(0, number) for number in range(200)]
    assert cases != [network.case_of(1, number) for number in range(200)]
    kinds = Counter(case.kind for case in cases)
    assert set(kinds) == set(network.KINDS)
    assert {case.job for case in cases} == {"ranks", "servers"}
    assert 20 <= sum(case.step < 0 for case in cases) <= 60
    assert all(0 <= case.victim < case.num_machines for case in cases)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            "sporax run: the launcher on node1 has not answered for 8 s (its machine is gone, or the network to it)\n",
            True,
        ),
        ("sporax run: rank 3 (process 7) was killed by SIGKILL (signal 9)\n", True),
        ("sporax run: 2 of 4 ranks of `job.py`, logs in /tmp/logs\n", False),
        ("[3] rank 3 says something\n", False),
        ("sporax run: something went wrong\n", False),
    ],
)
def test_a_cause_is_named_by_the_launcher_alone(line, named):
    assert network.names_a_cause([line]) == named


def test_the_list_of_the_tool_names_all_kinds(capsys):
    assert soak.main(["network", "--list"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert [kind for kind in network.KINDS if kind not in text] == []
