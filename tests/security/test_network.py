"""Hostile peers at the scheduler's port: they are refused and change nothing, and no message raises anything but MessageError."""

import contextlib
import json
import os
import random
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.cluster import messages, ports, private, token
from sporax.cluster.environment import RankEnvironment
from sporax.cluster.membership import join
from sporax.cluster.rendezvous import Cluster, ClusterPhase
from sporax.cluster.scheduler import Scheduler

SECRET = "0123456789abcdef" * 4
REGISTER = {"say": "register", "role": "MS_WORKER", "node_id": "x", "rank": 0, "size": 2, "host": "h", "port": 1}
DEEP = 60000

LINES = {
    "empty": b"",
    "no JSON": b"GET / HTTP/1.1\r",
    "deep arrays": b"[" * DEEP,
    "closed deep arrays": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP,
    "deep in a known field": b'{"say":"hello","proof":' + b"[" * DEEP,
    "deep in an unknown field": b'{"say":"hello","x":' + b"[" * DEEP,
    "array": b"[]",
    "number": b"1",
    "null": b"null",
    "unknown word": b'{"say":"sing"}',
    "word that is a number": b'{"say":1}',
    "no word": b"{}",
    "two words": b'{"say":"hello","say":"watch","proof":""}',
    "no proof": b'{"say":"hello"}',
    "proof that is a number": b'{"say":"hello","proof":1}',
    "proof that is no digest": b'{"say":"hello","proof":"' + b"z" * 64 + b'"}',
    "long proof": b'{"say":"hello","proof":"' + b"a" * 500 + b'"}',
    "wrong proof": b'{"say":"hello","proof":"' + b"a" * 64 + b'"}',
    "empty proof": b'{"say":"hello","proof":""}',
    "bytes that are no text": b'{"say":"\xff\xfe"}',
    "lone surrogate": b'{"say":"\\ud800"}',
    "zero bytes": b"\x00" * 64,
    "huge number": b'{"say":' + b"9" * 900 + b"}",
    "register first": json.dumps(REGISTER).encode(),
    "leave first": b'{"say":"leave","failure":"I say so"}',
    "watch first": b'{"say":"watch","node":"n"}',
    "wait first": b'{"say":"wait","waits":true}',
    "welcome": b'{"say":"welcome","rank":0,"local_rank":0,"local_size":1,"coordinator":"h:1"}',
    "ended": b'{"say":"ended","well":false,"reason":"I say so"}',
}

FIELDS = {
    "rank": [b"Infinity", b"NaN", b"-1", b"1e400", b"1.5", b"99999999999999999999", b'"0"', b"[]", b"true"],
    "size": [b"0", b"-5", b"Infinity", b"1e9", b"null", b"9" * 400],
    "port": [b"-1", b"65536", b"Infinity", b'"80"', b"null"],
    "host": [b"1", b"null", b'"' + b"h" * 300 + b'"', b"[]"],
    "node_id": [b"{}", b"7", b'"' + b"n" * 300 + b'"'],
    "role": [b'"MS_KING"', b"0", b"null", b"{}"],
    "extra": [b"1", b"[" * DEEP],
}


@contextlib.contextmanager
def scheduler(size: int, secret: str = SECRET) -> Iterator[tuple[int, Cluster, list[str]]]:
    """A scheduler that serves until the block ends; gives port, state and log. Whatever it raises ends the test."""
    cluster, log, problems = Cluster(size, 0, 30), [], []
    listener = ports.listen("127.0.0.1", None)
    server = Scheduler(cluster, listener, secret=secret, starts_at_first=True, log=log.append)
    stop = threading.Event()

    def serve() -> None:
        try:
            while not stop.is_set():
                server.step(0.02)
        except BaseException as error:
            problems.append(error)
        server.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1], cluster, log
    finally:
        stop.set()
        thread.join()
    assert problems == []


@contextlib.contextmanager
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Cluster, list[str]]]:
    """A running job of one member, at whose end the member is still a member."""
    monkeypatch.setenv(token.TOKEN_VARIABLE, SECRET)
    with scheduler(1) as (port, cluster, log):
        member = join(place(port, 1, "a"))
        assert cluster.phase is ClusterPhase.RUNNING
        yield port, cluster, log
        assert cluster.phase is ClusterPhase.RUNNING
        assert [reference.node_id for reference in cluster.members.values()] == ["a"]
        assert not cluster.watchers
        member.leave()


def place(port: int, size: int, name: str) -> RankEnvironment:
    return RankEnvironment(
        rank=None, size=size, scheduler_address=("127.0.0.1", port), node_id=name, timeout_seconds=30
    )


def say(port: int, *lines: bytes) -> list[str]:
    """What the scheduler answers to these lines, by word."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer, contextlib.suppress(OSError):
        with contextlib.suppress(OSError):  # it may refuse before all is sent
            peer.sendall(b"".join(line + b"\n" for line in lines))
            peer.shutdown(socket.SHUT_WR)
        return [json.loads(line)["say"] for line in peer.makefile()]
    return ["gone"]


def hello(port: int, *lines: bytes, secret: str = SECRET) -> list[str]:
    """As `say`, from a peer that knows the token."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer, contextlib.suppress(OSError):
        answers = peer.makefile()
        nonce = json.loads(answers.readline())["nonce"]
        with contextlib.suppress(OSError):
            peer.sendall(messages.encode(messages.Hello(token.proof(secret, nonce))))
            peer.sendall(b"".join(line + b"\n" for line in lines))
            peer.shutdown(socket.SHUT_WR)
        return [json.loads(line)["say"] for line in answers]
    return ["gone"]


def test_strangers_are_refused_whatever_they_say(monkeypatch):
    with job(monkeypatch) as (port, _, _log):
        for name, line in LINES.items():
            assert set(say(port, line)) <= {"challenge", "refused", "gone"}, name
            assert set(say(port, line, json.dumps(REGISTER).encode())) <= {"challenge", "refused", "gone"}, name


def test_random_bytes_are_refused(monkeypatch):
    generator = random.Random(7)
    with job(monkeypatch) as (port, _, _log):
        for _ in range(60):
            line = generator.randbytes(generator.randrange(1, 1500))
            assert set(say(port, line)) <= {"challenge", "refused", "gone"}


@pytest.mark.parametrize("field", FIELDS)
def test_a_member_with_a_field_out_of_range_is_refused(monkeypatch, field):
    """Also one that knows the token: a faulty program must not take the launcher down."""
    with job(monkeypatch) as (port, _, _log):
        for value in FIELDS[field]:
            words = [
                f'"{key}":'.encode() + json.dumps(other).encode() for key, other in REGISTER.items() if key != field
            ]
            line = b"{" + b",".join([*words, f'"{field}":'.encode() + value]) + b"}"
            assert set(hello(port, line)) <= {"refused", "gone"}, value


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_no_line_is_anything_but_a_message_or_a_message_error(line):
    for decoder in (messages.TO_SCHEDULER, messages.FROM_SCHEDULER):
        outcome: object
        try:
            outcome = messages.decode(decoder, line)
        except messages.MessageError as error:
            outcome = str(error)
        assert isinstance(outcome, msgspec.Struct) or outcome


@pytest.mark.parametrize("failure", [None, "I say so"])
def test_a_launcher_without_the_token_cannot_end_the_job(monkeypatch, failure):
    line = json.dumps({"say": "leave", "failure": failure}).encode()
    with job(monkeypatch) as (port, _, _log):
        watch = b'{"say":"watch","node":"n"}'
        assert set(say(port, b'{"say":"hello","proof":""}', watch, line)) <= {"challenge", "refused", "gone"}
        assert set(hello(port, watch, line, secret="another token of the same sort")) <= {"refused", "gone"}


def test_an_overheard_answer_is_of_no_use(monkeypatch):
    with job(monkeypatch) as (port, _, _log):
        greeting = messages.encode(messages.Hello(token.proof(SECRET, token.new_nonce()))).strip()
        assert set(say(port, greeting, json.dumps(REGISTER).encode())) <= {"challenge", "refused", "gone"}


def test_who_is_refused_often_is_logged_once(monkeypatch):
    with job(monkeypatch) as (port, _, log):
        for _ in range(20):
            say(port, b'{"say":"hello","proof":""}')
        assert sum("refuses a peer at 127.0.0.1: it has no token" in line for line in log) == 1


def test_peers_that_say_nothing_do_not_keep_members_out(monkeypatch):
    monkeypatch.setattr("sporax.cluster.scheduler._MAX_STRANGERS", 8)
    monkeypatch.setenv(token.TOKEN_VARIABLE, SECRET)
    with scheduler(1) as (port, _, log), contextlib.ExitStack() as silent:
        for _ in range(30):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        join(place(port, 1, "a")).leave()
        assert any("have said nothing" in line for line in log)


def test_a_peer_that_says_nothing_is_sent_away_in_time(monkeypatch, wait_until):
    monkeypatch.setattr("sporax.cluster.scheduler._HELLO_SECONDS", 0.1)
    with job(monkeypatch) as (port, _, log), socket.create_connection(("127.0.0.1", port)):
        wait_until(lambda: any("it has said nothing" in line for line in log))
        assert sum("it has said nothing" in line for line in log) == 1


def test_a_member_without_the_token_is_notified(monkeypatch):
    monkeypatch.delenv(token.TOKEN_VARIABLE, raising=False)
    with scheduler(1) as (port, _, _log), pytest.raises(SporaxRuntimeError, match="it has no token"):
        join(place(port, 1, "a"))


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_false_scheduler_is_an_error_that_says_so(line):
    with ports.listen("127.0.0.1", None) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                peer.sendall(line + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SporaxRuntimeError, match="For 'init', the scheduler must let this process join"):
            join(place(listener.getsockname()[1], 1, "a"))
        thread.join()


# ------------------------------------------------------------------------------------------------- tokens and directories


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o604, 0o606, 0o666])
def test_a_token_file_that_others_can_open_is_refused(tmp_path: Path, mode: int):
    path = tmp_path / "token"
    path.write_text(SECRET)
    path.chmod(mode)
    with pytest.raises(SporaxValueError, match=r"For '--token-file', only its owner .* chmod 600"):
        token.read_token(str(path), "--token-file")


@pytest.mark.parametrize("content", [b"", b"short", b" " * 100, b"\xff" * 64])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(SporaxValueError, match="For 'SPORAX_TOKEN_FILE'"):
        token.token_from_environ({token.TOKEN_FILE_VARIABLE: str(path)})


def test_a_token_is_written_for_its_owner_alone(tmp_path: Path):
    path = str(tmp_path / "token")
    token.write_token(path, SECRET)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert token.token_from_environ({token.TOKEN_FILE_VARIABLE: path}) == SECRET
    with pytest.raises(FileExistsError):
        token.write_token(path, SECRET)


def test_no_two_tokens_are_the_same():
    assert len({token.new_token() for _ in range(100)}) == 100


def test_a_jobs_directory_is_private_and_its_name_cannot_be_predicted(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second = private.make_job_directory(), private.make_job_directory()
    assert first != second
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    assert first.exists()  # its launcher, this process, still lives


def test_directories_of_killed_launchers_are_removed_and_others_are_not(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, odd, alive = private.make_job_directory(), tmp_path / "sporax-job-odd", private.make_job_directory()
    (dead / "launcher").write_text(f"{os.getpid()} another start")
    odd.mkdir()
    (tmp_path / "sporax-job-link").symlink_to(alive)
    private.make_job_directory()
    assert not dead.exists()
    assert odd.exists()
    assert alive.exists()


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o755), lambda path: path.chmod(0o770)])
def test_a_directory_that_others_can_enter_is_refused(tmp_path: Path, spoil: Callable[[Path], None]):
    private.shared_directory({"XDG_RUNTIME_DIR": str(tmp_path)})
    spoil(tmp_path / "sporax")
    with pytest.raises(SporaxRuntimeError, match="must belong to this user alone"):
        private.shared_directory({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_a_link_in_the_place_of_a_directory_is_refused(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "sporax").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SporaxRuntimeError, match="must belong to this user alone"):
        private.shared_directory({"XDG_RUNTIME_DIR": str(tmp_path)})
