"""The machines themselves: what they share, what they do not, and what a network does between them."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import machines
import pytest

Link = machines.Link
LISTEN = """
import socket
server = socket.create_server(("::", 5000), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    server.accept()
"""
CONNECT = """
import socket, sys, time
start = time.monotonic()
try:
    socket.create_connection((sys.argv[1], 5000), timeout=float(sys.argv[2])).close()
except OSError as error:
    print(type(error).__name__)
else:
    print(time.monotonic() - start)
"""


def connect(machine, host: str, seconds: float = 30.0) -> str:
    return machine.run([sys.executable, "-c", CONNECT, host, str(seconds)], timeout=60).stdout.strip()


def start_ready(machine, code: str) -> None:
    """Start a program that says when it is ready."""
    process = machine.popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with process.stdout:
        assert process.stdout.readline() == "ready\n"


def test_a_machine_has_a_name_a_network_and_folders_of_its_own(make_machines, tmp_path):
    (tmp_path / "shared").write_text("seen by all")
    made = make_machines(2)
    for machine in made:
        machine.run(["sh", "-c", f"echo {machine.name} > /tmp/own; echo {machine.name} > /dev/shm/own"])
    for machine in made:
        assert machine.run(["hostname"]).stdout == f"{machine.name}\n"
        assert machine.run(["cat", "/tmp/own", "/dev/shm/own"]).stdout == f"{machine.name}\n" * 2
        assert machine.run(["cat", str(tmp_path / "shared")]).stdout == "seen by all"
        addresses = machine.run(["ip", "-o", "address", "show", "eth0"]).stdout
        assert machine.address in addresses
        assert machine.address_6 in addresses
        # No way leads out.
        assert "default" not in machine.run(["ip", "route"]).stdout
    assert socket.gethostname() != made[0].name
    assert not Path("/tmp/own").exists()


def test_links_delay_lose_limit_and_end(make_machines):
    made = make_machines(3)
    start_ready(made[0], LISTEN)
    assert float(connect(made[1], "node0"))
    assert float(connect(made[1], made[0].address_6))
    made.set_link(Link(latency=150.0))
    # SYN and its answer.
    assert float(connect(made[1], "node0")) >= 0.3
    made.set_link(Link())
    made.set_link(Link(up=False), senders=[0], receivers=[1])
    assert connect(made[1], "node0", 0.5) == "TimeoutError"
    assert float(connect(made[2], "node0"))
    made.heal()
    assert float(connect(made[1], "node0"))
    made.partition({0, 2}, {1})
    assert connect(made[1], "node0", 0.5) == "TimeoutError"
    assert float(connect(made[2], "node0"))
    made.heal()
    made.unplug(2)
    assert connect(made[2], "node0", 0.5) == "TimeoutError"
    made.plug(2)
    assert float(connect(made[2], "node0"))
    made.set_link(Link(loss=1.0))
    assert connect(made[1], "node0", 0.5) == "TimeoutError"


def test_the_rate_of_a_link_holds(make_machines):
    made = make_machines(2, link=Link(rate=1e6))
    receive = (
        "import socket; s = socket.create_server(('', 5000)); print('ready', flush=True); c, _ = s.accept()\n"
        "while c.recv(65536): pass\n"
        "c.sendall(b'!')"
    )
    start_ready(made[0], receive)
    send = (
        "import socket, time; s = socket.create_connection(('node0', 5000)); start = time.monotonic()\n"
        "s.sendall(bytes(1_000_000)); s.shutdown(socket.SHUT_WR); s.recv(1); print(time.monotonic() - start)"
    )
    assert (
        float(made[1].run([sys.executable, "-c", send], timeout=60).stdout) > 0.7
    )  # a megabyte at 1 MB/s; queues hold some


def last_words(machine) -> list[str]:
    """Of the command of each process of a machine."""
    return sorted(command.split()[-1] for command in machine.processes().values() if command)


def test_processes_are_the_machines_own_and_end_with_it(make_machines):
    made = make_machines(2)
    first, second = (machine.popen(["sleep", "100"]) for machine in made)
    sleeper = made[0].popen(["sh", "-c", "setsid sleep 200 & wait"])
    end = time.monotonic() + 20
    while last_words(made[0]) != ["100", "200", "wait"] and time.monotonic() < end:
        time.sleep(0.05)
    assert last_words(made[0]) == ["100", "200", "wait"]
    made[1].send_signal(second, signal.SIGTERM)
    assert second.wait(20) == -signal.SIGTERM
    left = list(made[0].processes())
    made[0].vanish()
    assert not made[0].is_up
    assert made[1].is_up
    assert first.returncode == sleeper.returncode == -signal.SIGKILL
    # An orphan is dead at once; who reaps it, and when, is a matter of the system outside.
    assert not any(machines.is_running(number) for number in left)


def test_nothing_is_left_behind(make_machines, tmp_path):
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import machines\n"
        "made = machines.Machines(2); made.__enter__(); made[1].popen(['sleep', '321'])\n"
        "print(made[0].folder.parent, flush=True); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(Path(machines.__file__).parent)], capture_output=True, text=True, cwd=tmp_path
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    end = time.monotonic() + 20
    while "sleep\x00321" in all_commands() and time.monotonic() < end:
        time.sleep(0.05)
    assert "sleep\x00321" not in all_commands()
    # Only a folder of a process that was killed can stay.
    assert Path(ended.stdout.strip()).is_relative_to("/run")


def all_commands() -> str:
    texts = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                texts.append((entry / "cmdline").read_text())
            except OSError:
                continue
    return "\n".join(texts)


def test_the_command_runs_on_every_machine(make_machines, tmp_path):
    command = [sys.executable, machines.__file__, "--count", "2", "--"]
    greeted = subprocess.run(
        [*command, "sh", "-c", "echo I am {name}, number {rank}, and {master} is first; exit {rank}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert sorted(greeted.stdout.splitlines()) == [
        "node0: I am node0, number 0, and 10.77.0.10 is first",
        "node1: I am node1, number 1, and 10.77.0.10 is first",
    ]
    assert greeted.returncode == 1


@pytest.mark.parametrize("count", [0, 201])
def test_a_wrong_count_is_refused(count):
    with pytest.raises(ValueError, match=f"'count' must be in \\[1, 200\\], but got {count}"):
        machines.Machines(count)


SPEED = """
import socket, sys, time
server = socket.create_server((sys.argv[1], 5001))
print("ready", flush=True)
connection, _ = server.accept()
while connection.recv(1 << 20):
    pass
"""
SEND = """
import socket, sys, time
data = bytes(1 << 20)
with socket.create_connection((sys.argv[1], 5001), timeout=30) as connection:
    begin = time.monotonic()
    for _ in range(int(sys.argv[2])):
        connection.sendall(data)
print(time.monotonic() - begin)
"""


def test_a_cable_has_its_rate_and_does_not_pass_the_switch(make_machines):
    made = make_machines(2)
    addresses = made.cable(0, 1, rate=50e6)
    assert addresses == ("10.78.0.10", "10.78.0.11")
    made.unplug(0)  # the cable of the switch; the other one stays
    process = made[1].popen([sys.executable, "-c", SPEED, addresses[1]], stdout=subprocess.PIPE, text=True)
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
        done = made[0].run([sys.executable, "-c", SEND, addresses[1], "40"], timeout=60)
    assert 0.6 < float(done.stdout) < 30, done.stdout


def test_a_kernel_that_cannot_delay_says_so_and_leaves_no_cable(make_machines):
    made = make_machines(2)
    if "netem" in made[0].run(["sh", "-c", "tc qdisc add dev lo root netem delay 1ms && tc qdisc show dev lo"]).stdout:
        assert made.cable(0, 1, latency=1.0) == ("10.78.0.10", "10.78.0.11")
        return
    with pytest.raises(machines.MachinesUnavailableError, match="netem delay 1000us"):
        made.cable(0, 1, latency=1.0)
    assert made.cable(0, 1) == ("10.78.0.10", "10.78.0.11")
