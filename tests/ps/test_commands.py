"""`sporax ps`, metrics, keys, and strangers at the door."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zmq

from background_cluster import background
from forked_commands import run_forked
from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.launch import cli
from sporax.launch.commands import ps_command
from sporax.launch.commands.ps_command import table
from sporax.ps.client.store import Dense, ServerStore
from sporax.ps.environment import PsEnvironment
from sporax.ps.metrics import expositions, metrics_page
from sporax.ps.protocol.messages import Acked, GetStatus, OptimizerSpec, Wanted
from sporax.ps.protocol.wire import encode
from sporax.ps.sockets import security


def test_a_job_with_keys_serves_its_workers_and_nobody_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "keys"
    assert cli.main(["ps", "keys", str(directory)]) == 0
    keys = security.read_keys(directory)
    with background(1, 1, None, MS_PS_STALENESS="-1", MS_PS_KEYS=str(directory)) as cluster:
        context = zmq.Context()
        with context.socket(zmq.DEALER) as stranger:
            stranger.linger = 0
            stranger.connect(f"tcp://{cluster.cluster.address}")
            stranger.send_multipart(encode(GetStatus()))
            assert not stranger.poll(1000), "the scheduler must not answer without keys"
        context.term()
        store = ServerStore(cluster.cluster.address, keys=keys, timeout=30.0)
        store.declare([Dense("w", 3, 0)], [OptimizerSpec("sgd")])
        store.initialise([np.zeros(3)])
        store.wait(store.push([np.ones(3, np.float32)], [1.0]))
        assert store.pull(newest=True)[0][0].tolist() == [-1, -1, -1]
        store.close()


def test_nonsense_is_counted_and_harms_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with background(1, 1, None, MS_PS_STALENESS="-1") as cluster:
        store = ServerStore(cluster.cluster.address, timeout=30.0)
        store.declare([Dense("w", 3, 0)], [OptimizerSpec("sgd")])
        store.initialise([np.zeros(3)])
        context = zmq.Context()
        for address in (store.link.view.servers[0].tcp, cluster.cluster.address):
            with context.socket(zmq.DEALER) as stranger:
                stranger.linger = 500
                stranger.connect(f"tcp://{address}")
                for parts in ([b"hello"], [b""] * 5, [os.urandom(200)], encode(Acked(1, 2, 3))):
                    stranger.send_multipart(parts)
            with socket.create_connection(("127.0.0.1", int(address.rsplit(":")[1]))) as raw:
                raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        context.term()
        for _ in range(3):
            store.wait(store.push([np.ones(3, np.float32)], [1.0]))
        assert store.pull(newest=True)[0][0].tolist() == [-3, -3, -3]
        assert cli.main(["ps", "status", "--scheduler", cluster.cluster.address]) == 0
        assert "asynchronous" in capsys.readouterr().out
        bad = 0.0
        for _ in range(50):
            assert cli.main(["ps", "status", "--json", "--scheduler", cluster.cluster.address]) == 0
            bad = json.loads(capsys.readouterr().out)["servers"][0]["bad_messages"]
            if bad >= 3:
                break
            store.wait(store.push([np.ones(3, np.float32)], [0.0]))
            time.sleep(0.05)
        assert bad >= 3
        store.close()


def test_keys_are_the_owners_alone_and_never_printed(tmp_path: Path) -> None:
    security.write_keys(tmp_path)
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600
    keys = security.read_keys(tmp_path)
    assert keys.server_secret not in repr(keys)
    assert keys.client_secret not in repr(keys)
    with pytest.raises(SporaxValueError, match="must not exist yet"):
        security.write_keys(tmp_path)
    with pytest.raises(SporaxValueError, match="must be a file made by"):
        security.read_keys(tmp_path / "nowhere")


def test_off_loopback_keys_are_required() -> None:
    assert security.keys_for("127.0.0.1", {}) is None
    assert security.keys_for("192.0.2.1", {"MS_PS_INSECURE": "1"}) is None
    with pytest.raises(SporaxRuntimeError, match="must be encrypted"):
        security.keys_for("192.0.2.1", {})


def test_the_metrics_page_speaks_prometheus() -> None:
    assert (
        expositions([({"server": "1"}, {"bytes": 2.5})])
        == '# TYPE sporax_ps_bytes gauge\nsporax_ps_bytes{server="1"} 2.5\n'
    )
    several = expositions([({"server": "0"}, {"bytes": 1.0}), ({"server": "1"}, {"bytes": 2.0, "clock": 3.0})])
    assert several.splitlines() == [
        "# TYPE sporax_ps_bytes gauge",
        'sporax_ps_bytes{server="0"} 1',
        'sporax_ps_bytes{server="1"} 2',
        "# TYPE sporax_ps_clock gauge",
        'sporax_ps_clock{server="1"} 3',
    ]
    page = metrics_page(0, lambda: {"clock": 7.0})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics") as answer:
            assert b"sporax_ps_clock 7" in answer.read()
    finally:
        page.close()


def test_the_status_table_shows_servers_and_workers() -> None:
    server = {"index": 0, "live": True, "primary": 16, "backup": 0, "clock": 4, "bytes": 12.0}
    status = {"job": "j", "epoch": 3, "staleness": 2, "durability": "disk", "note": "", "servers": [server]}
    text = table({**status, "workers": [{"rank": 0, "live": False, "ended": True, "incarnation": 2}]})
    assert "at most 2 steps apart" in text
    assert "16" in text
    assert text.count("yes") == 2


@pytest.mark.parametrize(
    ("finished", "error", "why"), [(True, "", "all its workers have finished"), (False, "rank 1 ended", "rank 1 ended")]
)
def test_a_job_that_has_ended_is_not_scaled(finished, error, why, monkeypatch, capsys) -> None:
    answer = Wanted(2, 1, [], finished, error)
    monkeypatch.setattr(ps_command.Requester, "request", lambda *_: answer)
    assert cli.main(["ps", "scale", "--workers", "3", "--scheduler", "127.0.0.1:1"]) == 2
    assert f"the job must be running, but it has ended: {why}." in capsys.readouterr().err


def test_the_last_port_has_no_next_one(monkeypatch, capsys) -> None:
    monkeypatch.setenv("MS_SCHED_PORT", "65535")
    assert cli.main(["ps", "status"]) == 2
    assert "MS_SCHED_PORT must be less than 65535" in capsys.readouterr().err


def test_wrong_questions_are_refused() -> None:
    assert cli.main(["ps", "scale", "--scheduler", "127.0.0.1:1"]) == 2
    assert cli.main(["ps", "scale", "--servers", "0", "--scheduler", "127.0.0.1:1"]) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("MS_PS_STALENESS", "x"), ("MS_PS_DURABILITY", "paper"), ("MS_PS_LEASE", "y")]
)
def test_wrong_variables_are_named(name: str, value: str) -> None:
    with pytest.raises(SporaxValueError, match=name):
        PsEnvironment.read({name: value})
    assert PsEnvironment.read({"MS_SERVER_NUM": "2"}).options.durability == "replica"


def test_a_worker_without_the_token_of_the_job_is_notified() -> None:
    token = "0123456789abcdef"
    with background(1, 1, None, MS_PS_STALENESS="-1", SPORAX_TOKEN=token) as cluster:
        for keys in (None, security.keys_of_token("fedcba9876543210")):
            with pytest.raises(SporaxRuntimeError, match="refuses the connection"):
                ServerStore(cluster.cluster.address, keys=keys, timeout=20.0)
        store = ServerStore(cluster.cluster.address, keys=security.keys_of_token(token), timeout=30.0)
        store.close()


def test_a_job_leaves_no_folders_behind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "from sporax.ps.sockets import security\n"
        "from sporax.ps.environment import PsEnvironment\n"
        "from sporax.ps.client.store import ServerStore\n"
        "place = PsEnvironment.read()\n"
        "keys = security.keys_for(place.host)\n"
        "assert keys is not None\n"
        "store = ServerStore(place.scheduler, keys=keys, timeout=30.0)\n"
        "directory = os.environ['SPORAX_JOB_DIRECTORY']\n"
        "assert os.stat(directory).st_mode & 0o777 == 0o700\n"
        "assert store.link.view.servers[0].ipc.startswith(directory)\n"
        "store.close()\n"
        "print('worked')\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "sporax", "run", "--server_num=1", "--worker_num=1", str(script)]
    with tempfile.TemporaryDirectory() as folder:  # with a short name: the paths of sockets have at most 107 characters
        environ = {**os.environ, "TMPDIR": folder}
        ran = run_forked(command, env=environ, cwd=tmp_path, timeout=90)
        assert "worked" in ran.stdout, ran
        assert os.listdir(folder) == []


@pytest.mark.parametrize("ending", ["sys.exit(3)", "os._exit(3)"])
def test_the_exit_code_of_a_worker_is_the_launchers(tmp_path: Path, ending: str) -> None:
    (tmp_path / "script.py").write_text(f"import os, sys\n{ending}\n", encoding="utf-8")
    command = [sys.executable, "-m", "sporax", "run", "--server_num=1", "--worker_num=1", "script.py"]
    ran = run_forked(command, cwd=tmp_path, timeout=90)
    assert ran.returncode == 3, ran
    assert "sporax run: worker 0 ended with exit code 3\n" in ran.stderr


def listening_addresses(process: int) -> set[str]:
    """Interfaces on which a process takes TCP connections."""
    sockets = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            sockets.add(os.readlink(descriptor))
    found = set()
    for line in [line for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:  # a listening one
            found.add(fields[1].partition(":")[0])
    return found


def test_a_job_of_one_machine_listens_on_loopback_alone() -> None:
    """Also with keys, which the launcher gives to all of its jobs."""
    with background(2, 1, SPORAX_TOKEN="x" * 64) as cluster:
        store = ServerStore(cluster.cluster.address, keys=security.keys_of_token("x" * 64), timeout=60.0)
        for role, index in cluster.cluster.children:
            process = cluster.cluster.process_of(role, index)
            assert process is not None
            assert listening_addresses(process.pid) == {"0100007F"}, (role, index)
        assert listening_addresses(os.getpid()) <= {"0100007F"}
        store.close()
