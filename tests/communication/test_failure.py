"""A rank that is killed, raises, stands still or hangs ends the job, which says which rank it was. One that works does not."""

import time

import pytest

SECONDS = 15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "expected", "variables"),
    [
        ("killed", "rank 1 (process", {}),
        ("raises", "ValueError: the data is spoiled", {}),
        ("stops", "for rank 1, which is stopped", {}),
        ("sleeps", "rank 1 ends because rank 0 waits for it in an exchange, and it has done nothing for 7 s", {}),
        ("waits", "lock.acquire()", {"SPORAX_IDLE_TIMEOUT": "2"}),
        ("leaves", "rank 1 has left after exchange 4", {"SPORAX_IDLE_TIMEOUT": "2"}),
        ("loops", "rank 1 ends because rank 0 waits for it in an exchange, and it has gone in circles for 7 s", {}),
        ("counts", "for rank 1 for longer than SPORAX_EXCHANGE_TIMEOUT=3 s", {"SPORAX_EXCHANGE_TIMEOUT": "3"}),
    ],
)
def test_the_job_ends_soon_and_names_the_rank(run_ranks, how, expected, variables):
    job = run_ranks("failing.py", 2, how, **variables)
    ended = time.time()
    output = job.stdout + job.stderr
    assert job.returncode != 0
    assert expected in output
    assert "rank 1" in output
    begun = next(float(line.split()[-1]) for line in output.splitlines() if "the end begins at" in line)
    assert ended - begun < SECONDS, output


@pytest.mark.slow
def test_a_rank_that_works_or_sleeps_while_nobody_waits_is_left_alone(check_ranks):
    check_ranks("patient.py", 2, SPORAX_IDLE_TIMEOUT="1")
