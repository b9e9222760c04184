"""A machine that is no part of the job: what it can reach, and that it disturbs nothing."""

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
TOKEN = {"SPORAX_TOKEN": "0123456789abcdef0123456789abcdef"}
LISTENS = "0A"
SNIFF = """
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
print("ready", flush=True)
while True:
    frame = wire.recv(65536)
    if frame[12:14] == b"\\x08\\x00" and frame[23] == 6:
        ip = frame[14:]
        tcp = ip[4 * (ip[0] & 15):int.from_bytes(ip[2:4], "big")]
        if int.from_bytes(tcp[2:4], "big") == int(sys.argv[1]) and (payload := tcp[4 * (tcp[12] >> 4):]):
            print(payload.hex(), flush=True)
"""


def losses(output: str) -> list[str]:
    return sorted(re.findall(r"step \d+ of rank \d+: \S+", output))


def open_ports(machine) -> set[tuple[str, int]]:
    """Addresses and ports at which a machine accepts connections of others."""
    found = set()
    for line in machine.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"]).stdout.splitlines():
        fields = line.split()
        if fields[3:4] != [LISTENS]:
            continue
        digits, _, port = fields[1].partition(":")
        words = b"".join(int(digits[start : start + 8], 16).to_bytes(4, "little") for start in range(0, len(digits), 8))
        address = socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words)
        address = address.removeprefix("::ffff:")
        if not address.startswith("127.") and address != "::1":
            found.add((address, int(port, 16)))
    return found


def scanned(stranger, member) -> set[int]:
    """TCP ports of a machine that accept a stranger, of all that there are."""
    found: set[int] = set()
    for address in (member.address, member.address_6):
        done = stranger.run([sys.executable, str(PROGRAMS / "scan.py"), address], timeout=300)
        assert done.returncode == 0, done.stdout
        found |= set(json.loads(done.stdout))
    return found


def udp_sockets(member) -> list[str]:
    lines = member.run(["cat", "/proc/net/udp", "/proc/net/udp6"]).stdout.splitlines()
    return [line for line in lines if "local_address" not in line]


def sniff(machine, file: Path) -> None:
    """Write down what a machine sends to the scheduler."""
    with open(file, "wb") as output:
        machine.popen([sys.executable, "-u", "-c", SNIFF, "8118"], stdout=output)
    end = time.monotonic() + 20
    while not file.read_text() and time.monotonic() < end:
        time.sleep(0.05)


def disturb(machine, made, file: Path, seed: int, count: int) -> dict[str, list[str]]:
    targets = [f"{member.address}:{port}" for member in made for _, port in sorted(open_ports(member))]
    seen = file.with_name("replayed")
    seen.write_text("\n".join(file.read_text().split("\n")[1:]))
    command = [sys.executable, str(PROGRAMS / "stranger.py"), str(seed), str(count), str(seen), *targets]
    return json.loads(machine.run(command, timeout=500, stderr=subprocess.DEVNULL).stdout)


@pytest.mark.full
@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.soak)])
def test_a_stranger_reaches_what_the_page_lists_and_disturbs_nothing(make_machines, start_job, tmp_path, count):
    alone = start_job(make_machines(1), 2, PROGRAMS / "steps.py", 40, 0, -1)
    assert alone.codes() == [0], alone.output()
    *made, stranger = make_machines(3)
    sniff(made[1], tmp_path / "wire")
    job = start_job(made, 2, PROGRAMS / "steps.py", 40, 0.2 if count < 100 else 2.0, -1, **TOKEN)
    job.wait_for("step 1 of")
    # The scheduler, JAX's coordinator and gloo of rank 0; gloo of rank 1.
    first, second = map(open_ports, made)
    assert ("10.77.0.10", 8118) in first
    assert {address for address, _ in first} == {"10.77.0.10"}
    assert (len(first), [address for address, _ in second]) == (3, ["10.77.0.11"])
    answers = disturb(stranger, made, tmp_path / "wire", 1, count)
    assert "welcome" not in str(answers)
    assert answers["10.77.0.10:8118"] == ["challenge"]
    assert job.codes(300) == [0, 0], job.output()
    assert losses(job.output()) == losses(alone.output())
    # What was seen on the wire proves nothing on another connection, and the token was not in it.
    wire = b"".join(bytes.fromhex(line) for line in (tmp_path / "wire").read_text().split()[1:])
    assert b'"say":"hello"' in wire
    assert TOKEN["SPORAX_TOKEN"].encode() not in wire


@pytest.mark.soak
@pytest.mark.parametrize("count", [20, 1000])
def test_a_stranger_reaches_parameter_servers_and_disturbs_nothing(make_machines, start_job, tmp_path, count):
    alone = start_job(make_machines(1), 2, PROGRAMS / "served.py", 40, 0, -1, flags=["--server_num", 2], **TOKEN)
    assert alone.codes() == [0], alone.output()
    *made, stranger = make_machines(3)
    pause = 0.2 if count < 100 else 2.0
    job = start_job(made, 2, PROGRAMS / "served.py", 40, pause, -1, flags=["--server_num", 2], **TOKEN)
    job.wait_for("step 1 of")
    # Where ranks meet, the servers' scheduler and a server; another server.
    first, second = map(open_ports, made)
    assert {("10.77.0.10", 8118), ("0.0.0.0", 8119)} <= first
    assert (len(first), len(second)) == (3, 1)
    (tmp_path / "wire").write_text("")
    answers = disturb(stranger, made, tmp_path / "wire", 2, count)
    assert answers == {"10.77.0.10:8118": ["challenge"]}
    assert job.codes(300) == [0, 0], job.output()
    assert losses(job.output()) == losses(alone.output())


@pytest.mark.soak
@pytest.mark.parametrize(("program", "flags"), [("steps.py", []), ("served.py", ["--server_num", 2])])
def test_of_all_ports_those_of_the_page_alone_answer(make_machines, start_job, program, flags):
    *made, stranger = make_machines(3)
    job = start_job(made, 2, PROGRAMS / program, 100_000, 0.1, -1, flags=flags, **TOKEN)
    job.wait_for("step 1 of")
    listed = [{port for _, port in open_ports(member)} for member in made]
    assert [len(ports) for ports in listed] == [3, 1]
    assert [scanned(stranger, member) for member in made] == listed
    assert not any(map(udp_sockets, made))
    # It goes on: every machine prints a step that none had printed.
    newest = max(map(int, re.findall(r"step (\d+) of rank", job.output())))
    job.wait_for(f"step {newest + 1} of")
