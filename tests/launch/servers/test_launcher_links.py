"""How launchers of jobs with parameter servers notice each other's end: over sockets of this machine, without processes."""

import socket
import threading
import time

import pytest

from sporax.cluster import membership, messages, ports
from sporax.launch.servers import ps_job
from sporax.launch.servers.ps_cluster import NodeShare

SECONDS = 30
"""In which a word over a socket of this machine arrives, on a busy computer, too."""


class OtherLaunchers(ps_job.OtherLaunchers):
    """Remembers what has happened."""

    said, exit_code = "", None

    def failure(self):
        for event in self.events():
            self.said, self.exit_code = event.failure, event.exit_code
        return self.said


@pytest.fixture
def variables():
    return {
        "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": str(ports.two_free_ports()), "MS_WORKER_NUM": "2",
        "SPORAX_TOKEN": "0123456789abcdef0123456789abcdef",
    }  # fmt: skip


@pytest.fixture
def first(variables):
    """The launcher of the first of three machines."""
    launcher = OtherLaunchers(NodeShare(0, 3), variables, SECONDS)
    yield launcher
    launcher.link.close()


def until(fact, link):
    """Let a link work until something is so; gives what it says then."""
    end = time.monotonic() + SECONDS
    while not fact(said := link.failure()):
        assert time.monotonic() < end, said
        time.sleep(0.001)
    return said


def others(first, variables, count=2):
    """Launchers of other machines that the first one has let in; each has to be answered while it connects."""
    made = [OtherLaunchers(NodeShare(1, 3), variables, SECONDS) for _ in range(count)]
    threads = [threading.Thread(target=link.failure) for link in made]
    for thread in threads:
        thread.start()
    said = until(lambda _: first.link.num_others == count, first)
    for thread in threads:
        thread.join()
    assert [said, *(link.failure() for link in made)] == [""] * (count + 1)
    return made


def test_launchers_that_leave_in_good_order_are_no_failure(first, variables):
    one, other = others(first, variables)
    one.link.close()
    assert until(lambda _: first.link.num_others == 1, first) == ""
    assert other.failure() == ""
    first.link.close()
    assert until(lambda _: other.link._stream is None, other) == ""


def test_a_launcher_that_is_gone_is_named_to_all_others(first, variables):
    """Its connection ends without a word."""
    one, other = others(first, variables)
    one.link._stream.shutdown(socket.SHUT_RDWR)
    reason = f"the launcher on {socket.gethostname()} ended without saying goodbye (killed, or its machine is gone)"
    assert until(bool, first) == reason
    assert until(bool, other) == reason
    # Queried again the first one says the same; the other one has ended its connection.
    assert first.failure() == reason
    one.link.close()


def test_what_a_launcher_says_of_its_end_is_sent_to_all_others(first, variables):
    one, other = others(first, variables)
    membership.leave_as_launcher(one.link._stream, messages.Leave("got SIGTERM (signal 15)"))
    reason = f"the launcher on {socket.gethostname()} got SIGTERM (signal 15)"
    assert until(bool, first) == reason
    assert until(bool, other) == reason


@pytest.mark.parametrize("speaks", ["first", "other"])
def test_launchers_are_notified_with_which_code_another_ends(first, variables, speaks):
    one, other = others(first, variables)
    (first if speaks == "first" else one).report("has ended its processes: worker 1 ended with exit code 3", 3)
    reason = f"the launcher on {socket.gethostname()} has ended its processes: worker 1 ended with exit code 3"
    links = [one, other] if speaks == "first" else [first, other]
    assert [until(bool, link) for link in links] == [reason, reason]
    assert [link.exit_code for link in links] == [3, 3]


def test_a_first_launcher_that_is_gone_is_named(first, variables):
    one, other = others(first, variables)
    for connection in first.link._scheduler._connections.values():
        connection.stream.shutdown(socket.SHUT_RDWR)
    reason = f"the scheduler at 127.0.0.1:{variables['MS_SCHED_PORT']} is gone"
    assert [until(bool, link) for link in (one, other)] == [reason, reason]


def test_a_rank_that_is_lost_is_no_failure_of_launchers(first, variables):
    """It is started again by the launcher of its machine."""
    (one, other) = others(first, variables)
    first.link._scheduler.fail("rank 1 ended with exit code 9")
    assert first.failure() == ""
    assert until(lambda _: one.link._stream is None, one) == ""
    other.link.close()


def test_launchers_that_never_come_end_the_job(variables):
    first = OtherLaunchers(NodeShare(0, 3), variables, 0.0)
    address = f"127.0.0.1:{variables['MS_SCHED_PORT']}"
    assert first.failure() == f"only 0 of 2 launchers of other machines came to the scheduler at {address} within 0 s"
    first.link.close()


def test_a_first_launcher_that_never_comes_is_named(variables):
    other = OtherLaunchers(NodeShare(1, 3), variables, 0.0)
    address = f"127.0.0.1:{variables['MS_SCHED_PORT']}"
    assert other.failure() == f"the scheduler at {address} could not be reached within 0 s"
    other.link.close()


def test_a_launcher_with_another_token_does_not_count(first, variables):
    stranger = OtherLaunchers(NodeShare(1, 3), {**variables, "SPORAX_TOKEN": "f" * 32}, SECONDS)
    received = []
    thread = threading.Thread(target=lambda: received.append(stranger.failure()))
    thread.start()
    until(lambda _: bool(first.link._scheduler._refused), first)
    thread.join()
    assert not first.link._cluster.watchers
    # The thread may have received the answer already, which comes once.
    assert "its token is another one" in (received[0] or until(bool, stranger))
