"""The scheduler's decisions, without a socket."""

import random

import pytest
from hypothesis import given, strategies as st

from invariants import check_cluster
from sporax.cluster.environment import ProcessRole
from sporax.cluster.messages import Awaited, Ended, Leave, Numbered, Refused, Register, Wait, Watch, Welcomed
from sporax.cluster.ports import UNANSWERED
from sporax.cluster.rendezvous import Cluster, ClusterPhase, natural_key


def member(
    name: str, rank: int | None = None, *, size: int = 3, host: str = "h", role: ProcessRole = ProcessRole.WORKER
) -> Register:
    return Register(role, name, rank, size, host, 1000 + (rank or 0))


def gathered(*members: Register, server_num: int = 0) -> tuple[Cluster, dict[str, Welcomed]]:
    """A cluster that all of `members` have joined, and what each was sent."""
    cluster = Cluster(len(members) - server_num, server_num, 60)
    for connection, newcomer in enumerate(members):
        said = cluster.handle(connection, newcomer)
        check_cluster(cluster)
        assert bool(said) == (connection == len(members) - 1)
    return cluster, {members[connection].node_id: welcome for connection, welcome in said}


def test_everyone_is_welcomed_when_the_last_has_come():
    cluster, welcomes = gathered(member("a", 2), member("b", 0), member("c", 1))
    assert cluster.phase is ClusterPhase.RUNNING
    assert {name: welcome.rank for name, welcome in welcomes.items()} == {"a": 2, "b": 0, "c": 1}
    assert {welcome.coordinator for welcome in welcomes.values()} == {"h:1000"}


@given(st.permutations([f"worker-{number}" for number in range(12)]))
def test_numbers_follow_names_whatever_the_order_of_arrival(names: list[str]):
    _, welcomes = gathered(*(member(name, size=12) for name in names))
    assert {name: welcome.rank for name, welcome in welcomes.items()} == {f"worker-{n}": n for n in range(12)}


def test_workers_are_awaited_when_all_of_other_machines_wait():
    cluster, _ = gathered(
        *(member(name, rank, size=4, host=name[0]) for rank, name in enumerate(["x0", "x1", "y2", "y3"]))
    )
    report = []
    for connection, waits in ((0, True), (1, True), (3, True), (0, False), (2, True), (0, True)):
        report.append(cluster.handle(connection, Wait(waits)))
        check_cluster(cluster)
    assert report == [
        [],  # two machines are busy
        [(2, Awaited((0, 1))), (3, Awaited((0, 1)))],
        [(2, Awaited((0, 1, 3))), (3, Awaited(()))],
        [(2, Awaited(()))],
        [(0, Awaited((1, 2, 3)))],
        [(0, Awaited(()))],  # nobody is left
    ]
    assert cluster.handle(0, Leave(None)) == []
    check_cluster(cluster)


def test_those_without_a_number_fill_the_gaps():
    _, answers = gathered(member("z", 1), member("b"), member("a"))
    assert {name: welcome.rank for name, welcome in answers.items()} == {"z": 1, "a": 0, "b": 2}


def test_local_ranks_count_along_each_host():
    _, notified = gathered(
        member("a", 3, size=4, host="x"),
        member("b", 1, size=4, host="x"),
        member("c", 0, size=4, host="y"),
        member("d", 2, size=4, host="y"),
    )
    assert {name: (w.local_rank, w.local_size) for name, w in notified.items()} == {
        "a": (1, 2), "b": (0, 2), "c": (0, 2), "d": (1, 2),
    }  # fmt: skip
    assert notified["a"].coordinator == "y:1000"


def test_servers_are_numbered_apart():
    _, notified = gathered(
        member("w0", size=2), member("s0", size=2, role=ProcessRole.SERVER), member("w1", size=2), server_num=1
    )
    assert {name: welcome.rank for name, welcome in notified.items()} == {"w0": 0, "w1": 1, "s0": 0}


@pytest.mark.parametrize(
    ("newcomer", "reason"),
    [
        (member("b", 1, size=4), "MS_WORKER_NUM must be the scheduler's, 3, but got 4"),
        (member("a", 1), "MS_NODE_ID must differ between processes, but got 'a' twice"),
        (member("b", 0), "RANK_ID must differ between processes, but got 0 twice"),
        (member("b", 3), r"RANK_ID must be in [0, 3), but got 3"),
        (member("b", role=ProcessRole.SERVER), "already has all of its 0 members with the role MS_PSERVER"),
    ],
)
def test_who_does_not_fit_is_sent_the_reason_and_the_others_go_on_waiting(newcomer: Register, reason: str):
    cluster = Cluster(3, 0, 60)
    cluster.handle(0, member("a", 0))
    ((notified, refusal),) = cluster.handle(1, newcomer)
    assert notified == 1
    assert isinstance(refusal, Refused)
    assert reason in refusal.reason
    assert cluster.phase is ClusterPhase.GATHERING
    assert list(cluster.members) == [0]


def test_latecomers_are_refused():
    cluster, _ = gathered(member("a"), member("b"), member("c"))
    assert cluster.handle(9, member("d")) == [(9, Refused("the cluster is already running and takes no new members"))]


def test_time_up_names_who_is_missing():
    cluster = Cluster(4, 0, 60)
    cluster.handle(0, member("a", 0, size=4))
    cluster.handle(1, member("c", 2, size=4))
    refusals = cluster.time_up()
    assert [connection for connection, _ in refusals] == [0, 1]
    assert "2 of 4 workers joined ('a', 'c'); ranks [1, 3] never did" in cluster.failure
    check_cluster(cluster)


def test_time_up_without_numbers_counts_who_is_missing():
    cluster = Cluster(2, 1, 60)
    cluster.handle(0, member("a", size=2))
    cluster.time_up()
    assert "1 of 2 workers joined ('a'); 1 of them never did" in cluster.failure
    assert "0 of 1 servers joined (none)" in cluster.failure


def test_time_is_of_no_matter_once_all_are_there():
    cluster, _ = gathered(member("a"), member("b"), member("c"))
    assert cluster.time_up() == []


def test_all_leave_in_good_order():
    cluster, _ = gathered(member("a"), member("b"), member("c"))
    cluster.handle(9, Watch("node1"))
    assert cluster.handle(0, Leave(None)) == cluster.handle(2, Leave(None)) == []
    assert cluster.handle(1, Leave(None)) == [(9, Ended(True, ""))]
    check_cluster(cluster)


def test_a_lost_member_is_named_to_everyone():
    cluster, _ = gathered(member("a"), member("b"), member("c"))
    cluster.handle(9, Watch("node1"))
    said = cluster.lost(1, "is gone")
    assert [(connection, end.well) for connection, end in said] == [(0, False), (2, False), (9, False)]
    assert cluster.failure == "rank 1 (worker 'b') on h is gone"


def test_leaving_while_gathering_makes_room_again():
    cluster = Cluster(2, 0, 60)
    cluster.handle(0, member("a", 0, size=2))
    assert cluster.lost(0, "is gone") == []
    cluster.handle(1, member("a", 0, size=2))
    assert len(cluster.handle(2, member("b", 1, size=2))) == 2


def test_a_launchers_failure_ends_the_job_even_before_its_ranks_joined():
    cluster = Cluster(2, 0, 60)
    cluster.handle(0, member("a", 0, size=2))
    cluster.handle(9, Watch("node1"))
    assert cluster.handle(9, Leave("ended its ranks: why")) == [
        (0, Refused("the launcher on node1 ended its ranks: why"))
    ]


def test_a_launcher_that_comes_too_late_is_notified_how_it_ended():
    cluster = Cluster(2, 0, 60)
    cluster.time_up()
    (said,) = cluster.handle(9, Watch("node1"))
    assert said == (9, Ended(False, cluster.failure))


def test_a_launcher_receives_the_ranks_of_its_processes_once_all_are_there():
    cluster = Cluster(2, 0, 60)
    assert cluster.handle(9, Watch("node1", ("b",))) == []
    cluster.handle(0, member("b", size=2))
    said = cluster.handle(1, member("a", size=2))
    assert said[2:] == [(9, Numbered((1,)))]
    # One that requests them later is answered at once; one that requests none, or those of a stranger, gets nothing.
    assert cluster.handle(8, Watch("node1", ("b", "a"))) == [(8, Numbered((1, 0)))]
    assert cluster.handle(7, Watch("node1")) == cluster.handle(6, Watch("node1", ("c",))) == []
    check_cluster(cluster)


def test_a_stranger_who_hangs_up_is_no_loss():
    cluster, _ = gathered(member("a"), member("b"), member("c"))
    assert cluster.lost(77, "is gone") == []
    assert cluster.phase is ClusterPhase.RUNNING


@given(st.integers(0, 2**32 - 1))
def test_no_sequence_of_events_breaks_the_cluster(seed: int):
    """Whatever comes in whatever order: the invariants hold, nobody is notified of the end twice, ranks stay distinct."""
    dice = random.Random(seed)
    cluster = Cluster(3, 1, 60)
    received: set[int] = set()
    for connection in range(25):
        connections = [*cluster.members, *cluster.watchers, 99]
        newcomer = member(
            f"n{dice.randrange(6)}",
            dice.choice([None, None, 0, 1, 2]),
            role=dice.choice([ProcessRole.WORKER, ProcessRole.SERVER]),
        )
        what, leaver = dice.randrange(6), dice.choice(connections)
        if what < 2 or (what == 5 and dice.random() < 0.9):
            said = cluster.handle(connection, newcomer)
        elif what == 5:
            said = cluster.time_up()
        elif what == 2:
            said = cluster.handle(connection, Watch("n"))
        else:
            said = cluster.lost(leaver, "is gone") if what == 3 else cluster.handle(leaver, Leave(None))
        for notified, message in said:
            if isinstance(message, Ended):
                assert notified not in received
                received.add(notified)
        check_cluster(cluster)


def test_natural_order():
    assert sorted(["w10", "w9", "w1", "v2", "w"], key=natural_key) == ["v2", "w", "w1", "w9", "w10"]


def failed_with_launchers(failure: str, *, is_own_word: bool) -> Cluster:
    """Of three ranks the last one, on the machine of the second launcher, has failed; launchers are connections 7 and 8."""
    cluster, _ = gathered(member("a", 0, host="x"), member("b", 1, host="x"), member("c", 2, host="y"))
    for connection, node in ((7, "x"), (8, "y")):
        cluster.handle(connection, Watch(node))
    if is_own_word:
        cluster.handle(2, Leave(failure))
    else:
        cluster.lost(2, failure)
    check_cluster(cluster)
    return cluster


@pytest.mark.parametrize(
    ("failure", "is_own_word", "said"),
    [
        ("ended without saying goodbye", False, "rank 2 (worker 'c') on y ended with exit code 3"),
        ("ended by sys.exit", True, "rank 2 (worker 'c') on y ended by sys.exit (ended with exit code 3)"),
    ],
)
def test_launchers_learn_from_the_ranks_launcher_how_it_ended(failure: str, is_own_word: bool, said: str):
    cluster = failed_with_launchers(failure, is_own_word=is_own_word)
    assert cluster.is_open
    notified = cluster.handle(8, Leave("ended its ranks", 2, "ended with exit code 3", exit_code=3))
    assert notified == [(7, Ended(False, said, "c", exit_code=3, is_own_word=is_own_word))]
    check_cluster(cluster)
    # One that comes now receives the same; and there is only one such word.
    assert cluster.handle(9, Watch("z")) == [(9, Ended(False, said, "c", exit_code=3, is_own_word=is_own_word))]
    assert cluster.handle(7, Leave("ended its ranks", 2, "ended with exit code 4", exit_code=4)) == []


def test_what_a_launcher_says_of_another_rank_than_the_cause_is_no_news():
    cluster = failed_with_launchers("ended without saying goodbye", is_own_word=False)
    assert cluster.handle(7, Leave("ended its ranks", 0, "ended with exit code 1", exit_code=1)) == []
    assert cluster.is_open


def test_the_launcher_of_a_machine_that_does_not_answer_is_not_waited_for():
    cluster = failed_with_launchers(UNANSWERED, is_own_word=False)
    assert not cluster.is_open
    assert cluster.failure == f"rank 2 (worker 'c') on y {UNANSWERED}"


@pytest.mark.parametrize("failure", ["ended without saying goodbye", UNANSWERED])
def test_a_launcher_that_was_stopped_ends_the_job_for_good_also_behind_the_loss_of_its_rank(failure: str):
    cluster = failed_with_launchers(failure, is_own_word=False)
    said = "the launcher on y ended its ranks: got SIGTERM"
    stopped = Leave("ended its ranks: got SIGTERM", final=True)
    assert cluster.handle(8, stopped) == [(7, Ended(False, said, "c", final=True))]
    assert (cluster.is_final, cluster.is_open, cluster.failure) == (True, False, said)
    # One that was stopped, too, has nothing to add; nor has one that ends because of it.
    assert cluster.handle(7, Leave("ended its ranks: got SIGINT", final=True)) == []
    assert cluster.failure == said


def test_a_launcher_that_is_stopped_after_the_end_of_a_job_that_went_well_says_nothing():
    done = Cluster(1, 0, 60.0)
    assert done.close() == []
    assert done.fail("the launcher on x ended its ranks: got SIGTERM", Leave("", final=True)) == []
    assert not done.is_final


def test_a_launcher_that_speaks_before_its_rank_is_missed_names_the_rank():
    cluster, _ = gathered(member("a", 0, host="x"), member("b", 1, host="x"), member("c", 2, host="y"))
    cluster.handle(8, Watch("y"))
    notified = cluster.handle(8, Leave("ended its ranks", 2, "ended with exit code 3", exit_code=3))
    reason = "rank 2 (worker 'c') on y ended with exit code 3: the launcher on y ended its ranks"
    assert notified == [(connection, Ended(False, reason, "c")) for connection in range(3)]
    assert cluster.exit_code == 3
