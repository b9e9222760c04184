"""Several machines on one: each has its own network, host name, `/tmp`, shared memory and processes.

    python tools/machines.py --count 2 [--latency 5] [--loss 0.01] [--rate 1e6] -- \\
        sporax msrun --worker_num 4 --local_worker_num 2 --node_rank {rank} --master_addr {master} train.py

runs a command on each of them, with ``{rank}``, ``{name}``, ``{address}`` and ``{master}`` replaced, and ends with the first exit
code that is not 0. It needs Linux and root.

Problem: jobs of several machines fail in ways that several processes of one machine never show, and few developers have
machines to try them on. Method: a machine is a set of Linux namespaces (network, host name, mounts, shared memory, processes)
that a first process holds; when that process ends, the kernel ends all others of the machine, so nothing is left behind. Machines
are connected by Ethernet: each has a TAP device, whose other end is a switch, a process that forwards frames. The switch delays
and drops frames, limits the rate and takes links down, also in one direction only, as `tc netem` would; many kernels are built
without that. Its own limit is some 100 MB/s.

See namespaces(7), and Documentation/networking/tuntap.rst of Linux.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import heapq
import json
import math
import os
import random
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

MTU = 9000
"""Bytes of a frame: fewer of them cost the switch less."""
_FRAME_BYTES = 65_536
_QUEUE_SECONDS = 0.5
"""A link that is limited in rate drops what would wait longer; that is how senders learn of the rate."""
_BURST_BYTES = 256 << 10
"""What passes a cable at once: some frames as large as the kernel makes them (64 KiB)."""
_START_SECONDS = 20.0
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_NAMESPACES = ("--net", "--uts", "--mount", "--ipc", "--pid")


class MachinesUnavailableError(Exception):
    """Machines cannot be had here; the message says why."""


# ---------------------------------------------------------------------------------------------------------------- the network


@dataclass(frozen=True, slots=True)
class Link:
    """What a network does to the frames between two machines, in one direction.

    Attributes:
        latency: milliseconds.
        loss: share of the frames that is lost, 0 to 1.
        rate: bytes a second.
        up: nothing passes where it is False.
    """

    latency: float = 0.0
    loss: float = 0.0
    rate: float = math.inf
    up: bool = True


PERFECT = Link()


@dataclass(slots=True)
class _Port:
    """One end of a cable: a TAP device; `free` is when what was sent to it so far will have passed."""

    descriptor: int
    free: float = 0.0


class Switch:
    """Forwards Ethernet frames between TAP devices.

    Args:
        descriptors: the devices of the machines, which have the hardware addresses of `hardware_address`.
        seed: of the losses.
    """

    def __init__(self, descriptors: Sequence[int], seed: int) -> None:
        self._ports = [_Port(descriptor) for descriptor in descriptors]
        self._links: dict[tuple[int, int], Link] = {}
        self._random = random.Random(seed)
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def set_links(self, links: Iterable[tuple[int, int, Link]]) -> None:
        """Change what happens between two machines: sender, receiver, link."""
        self._links.update({(sender, receiver): link for sender, receiver, link in links})

    def run(self, control: IO[bytes]) -> None:
        """Forward until `control` ends; its lines are JSON: lists of sender, receiver and the fields of a link."""
        with selectors.DefaultSelector() as selector:
            selector.register(control, selectors.EVENT_READ)
            for number, port in enumerate(self._ports):
                selector.register(port.descriptor, selectors.EVENT_READ, number)
            while True:
                for key, _ in selector.select(self._wait()):
                    if key.data is not None:
                        self._receive(key.data)
                    elif line := control.readline():
                        self.set_links(
                            (sender, receiver, Link(**fields)) for sender, receiver, fields in json.loads(line)
                        )
                        print("done", flush=True)
                    else:
                        return
                self._deliver()

    def _wait(self) -> float | None:
        return max(self._waiting[0][0] - time.monotonic(), 0.0) if self._waiting else None

    def _receive(self, sender: int) -> None:
        # Some frames at once: each look at all devices costs as much as a frame.
        for _ in range(64):
            try:
                frame = os.read(self._ports[sender].descriptor, _FRAME_BYTES)
            except OSError:  # none is left, or the device is down
                return
            receivers = range(len(self._ports)) if frame[0] & 1 else [frame[5] - 1]
            for receiver in receivers:
                if receiver != sender and 0 <= receiver < len(self._ports):
                    self._send(sender, receiver, frame)

    def _send(self, sender: int, receiver: int, frame: bytes) -> None:
        link, port = self._links.get((sender, receiver), PERFECT), self._ports[receiver]
        if not link.up or (link.loss and self._random.random() < link.loss):
            return
        if link.latency == 0 and link.rate == math.inf:
            _write(port.descriptor, frame)
            return
        now = time.monotonic()
        start = max(now, port.free)
        if start - now > _QUEUE_SECONDS:
            return
        port.free = start + len(frame) / link.rate
        self._count += 1  # frames of equal time stay in order
        heapq.heappush(self._waiting, (port.free + link.latency / 1e3, self._count, receiver, frame))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            *_, receiver, frame = heapq.heappop(self._waiting)
            _write(self._ports[receiver].descriptor, frame)


def _write(descriptor: int, frame: bytes) -> None:
    with suppress(OSError):  # a device that is down or full loses frames, as cables do
        os.write(descriptor, frame)


def hardware_address(number: int) -> str:
    """The Ethernet address of a machine; the switch reads its number out of it."""
    return f"02:00:00:00:00:{number + 1:02x}"


def _tap(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH14x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return descriptor


# --------------------------------------------------------------------------------------------------------------- the machines


@dataclass(slots=True)
class Machine:
    """One machine.

    Attributes:
        number: 0 for the first.
        name: its host name.
        address: its IPv4 address.
        address_6: its IPv6 address.
        folder: what it has for itself, seen from outside: its `/tmp` is ``tmp`` there, its `/etc/hosts` is ``hosts``.
    """

    number: int
    name: str
    address: str
    address_6: str
    folder: Path
    _holder: subprocess.Popen[bytes] | None = None
    _first: int = 0
    _started: list[subprocess.Popen[Any]] = field(default_factory=list)

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command here. `cwd` and `env` hold as ever; the process that is returned ends with the command.

        Signals go to the command by `send_signal` of this class.
        """
        folder = options.pop("cwd", None) or Path.cwd()
        enter = ["nsenter", f"--target={self._first}", "--net", "--uts", "--mount", "--ipc", "--pid", "--"]
        process = subprocess.Popen([*enter, "env", f"--chdir={folder}", *command], **options)
        self._started.append(process)
        return process

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command here to its end; its output is text."""
        timeout = options.pop("timeout", None)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
        process = self.popen(command, **options)
        output, errors = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(list(command), process.returncode, output, errors)

    @staticmethod
    def send_signal(process: subprocess.Popen[Any], number: signal.Signals) -> None:
        """Send a signal to a command that `popen` has started."""
        for child in _children(process.pid):
            os.kill(child, number)

    def processes(self) -> dict[int, str]:
        """Commands that run here, by their process number outside; without the one that holds the machine."""
        here = _namespace(self._first)
        found = {int(entry.name): entry for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        return {
            number: _command_line(entry)
            for number, entry in found.items()
            if number != self._first and here and _namespace(number) == here
        }

    def set_hosts(self, lines: Iterable[str]) -> None:
        """Replace `/etc/hosts` of the machine: ``address name …`` in each line."""
        (self.folder / "hosts").write_text("".join(f"{line}\n" for line in lines))

    def vanish(self) -> None:
        """End the machine with all its processes at once. Where its cable is not pulled before (`Machines.unplug`), the kernel
        closes its connections in good order, which a power cut does not do.
        """
        left = self.processes()
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()
        for process in self._started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
        # The kernel ends the first process of the machine after its holder, and then all others.
        end = time.monotonic() + 10
        while any(is_running(number) for number in left) and time.monotonic() < end:
            time.sleep(0.01)

    @property
    def _network(self) -> list[str]:
        """The words before a command of this computer that is about the machine's network."""
        return ["nsenter", f"--target={self._first}", "--net"]

    @property
    def is_up(self) -> bool:
        """Whether it has not ended."""
        return self._holder is not None and self._holder.poll() is None


class Machines(Sequence[Machine]):
    """Some machines and the network between them; a context manager that removes all of it.

    Args:
        count: how many, 1 to 200.
        link: what the network does from each machine to each other one.
        shared: folders that all machines see under their own paths, also where these are below `/tmp`.
        seed: of losses.

    Raises:
        MachinesUnavailableError: this is no Linux, the user is not root, or the kernel lacks something.

    Example:
        >>> with Machines(2) as machines:  # doctest: +SKIP
        ...     machines[1].run(["python3", "-c", "import socket; print(socket.gethostname())"]).stdout
        'node1\\n'
    """

    def __init__(self, count: int, link: Link = PERFECT, shared: Iterable[Path] = (), seed: int = 0) -> None:
        if not 1 <= count <= 200:
            raise ValueError(f"For 'Machines', 'count' must be in [1, 200], but got {count}.")
        self._count, self._link, self._seed = count, link, seed
        self._shared = [*map(Path, shared), *_installed()]
        self._machines: list[Machine] = []
        self._switch: subprocess.Popen[bytes] | None = None
        self._links: dict[tuple[int, int], Link] = {}
        self._stack = ExitStack()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        return self._machines[number]

    def __enter__(self) -> Machines:
        if reason := why_unavailable():
            raise MachinesUnavailableError(reason)
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        # Not below `/tmp`, which is another one for each machine.
        folder = Path("/run") / f"machines-{os.getpid()}-{time.monotonic_ns()}"
        folder.mkdir()
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        taps = []
        for number in range(self._count):
            machine = Machine(
                number, f"node{number}", f"10.77.0.{number + 10}", f"fd77::{number + 10}", folder / str(number)
            )
            taps.append(self._started(machine))
            self._machines.append(machine)
        self._switch = self._started_switch(taps)
        if self._link != PERFECT:
            self.set_link(self._link)

    def _started(self, machine: Machine) -> int:
        """The TAP device of a machine that is now up."""
        (machine.folder / "tmp").mkdir(parents=True)
        machine.set_hosts(
            ["127.0.0.1 localhost", *(f"10.77.0.{other + 10} node{other}" for other in range(self._count))]
        )
        arguments = json.dumps([machine.name, str(machine.folder), [str(path) for path in self._shared]])
        hold = [sys.executable, str(Path(__file__).resolve()), "hold", arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        holder = subprocess.Popen(["unshare", *_NAMESPACES, "--fork", "--kill-child", *hold], **pipes)
        machine._holder = holder
        self._stack.callback(machine.vanish)
        if holder.stdout is None or holder.stdout.readline() != b"ready\n":
            raise MachinesUnavailableError("a machine could not be made; see the message above")
        (machine._first,) = _children(holder.pid)
        device = f"m{os.getpid() % 1_000_000}n{machine.number}"
        tap = _tap(device)
        self._stack.callback(os.close, tap)
        here = [*machine._network, "ip"]
        _checked(["ip", "link", "set", device, "netns", str(machine._first)])
        _checked(
            [*here, "link", "set", device, "name", "eth0", "address", hardware_address(machine.number), "mtu", str(MTU)]
        )
        for address in (f"{machine.address}/24", f"{machine.address_6}/64"):
            # No search for duplicates, during which an IPv6 address cannot be used.
            extra = ["nodad"] if ":" in address else []
            _checked([*here, "address", "add", address, "dev", "eth0", *extra])
        for name in ("lo", "eth0"):
            _checked([*here, "link", "set", name, "up"])
        return tap

    def _started_switch(self, taps: Sequence[int]) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(Path(__file__).resolve()), "switch", json.dumps([list(taps), self._seed])]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        switch = subprocess.Popen(command, pass_fds=taps, **pipes)

        def stop() -> None:
            switch.kill()
            switch.communicate()

        self._stack.callback(stop)
        return switch

    # ------------------------------------------------------------------------------------------------ what happens to the network

    def set_link(
        self, link: Link, senders: Collection[int] | None = None, receivers: Collection[int] | None = None
    ) -> None:
        """Change what the network does to frames from some machines to others; None means all."""
        every = range(self._count)
        pairs = [
            (sender, receiver)
            for sender in (every if senders is None else senders)
            for receiver in (every if receivers is None else receivers)
            if sender != receiver
        ]
        self._links.update(dict.fromkeys(pairs, link))
        self._report(pairs)

    def unplug(self, number: int) -> None:
        """Pull the cable of a machine."""
        self._change(lambda sender, receiver: number in (sender, receiver), up=False)

    def plug(self, number: int) -> None:
        """Put the cable back."""
        self._change(lambda sender, receiver: number in (sender, receiver), up=True)

    def partition(self, *groups: Collection[int]) -> None:
        """Let only machines of one group see each other; those in no group see no other."""
        group_of = {number: position for position, group in enumerate(groups) for number in group}
        self._change(lambda *pair: len({group_of.get(number, -1 - number) for number in pair}) > 1, up=False)

    def heal(self) -> None:
        """All links are up again."""
        self._change(lambda *pair: True, up=True)

    def _change(self, concerns: Any, up: bool) -> None:
        every = range(self._count)
        pairs = [(one, other) for one in every for other in every if one != other and concerns(one, other)]
        for pair in pairs:
            link = self._links.get(pair, PERFECT)
            self._links[pair] = Link(link.latency, link.loss, link.rate, up)
        self._report(pairs)

    def cable(self, first: int, second: int, rate: float = math.inf, latency: float = 0.0) -> tuple[str, str]:
        """Connect two machines by a cable of the kernel's (veth), which passes what memory passes: for measuring speed.

        Args:
            first, second: numbers of the machines.
            rate: bytes a second in each direction.
            latency: milliseconds in each direction.

        Returns:
            The addresses of their ends. What is sent to them takes the cable; the switch stays as it is.

        Raises:
            MachinesUnavailableError: the kernel has no veth, or cannot shape it: latency needs `netem`, a rate `netem` or `tbf`.
        """
        lower, device = min(first, second), f"cable{min(first, second)}"
        ends = [(self._machines[number], f"10.78.{lower}.{number + 10}") for number in (first, second)]
        names = [f"c{os.getpid() % 1_000_000}n{machine.number}" for machine, _ in ends]
        _checked(["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]])
        # The devices end with their machines.
        for name, (machine, _) in zip(names, ends, strict=True):
            _checked(["ip", "link", "set", name, "netns", str(machine._first)])
            _checked([*machine._network, "ip", "link", "set", name, "name", device, "mtu", str(MTU)])
        try:
            for machine, address in ends:
                _checked([*machine._network, "ip", "address", "add", f"{address}/24", "dev", device])
                _checked([*machine._network, "ip", "link", "set", device, "up"])
                if shape := _shape(rate, latency):
                    _checked([*machine._network, "tc", "qdisc", "add", "dev", device, "root", *shape])
        except MachinesUnavailableError:
            _checked([*ends[0][0]._network, "ip", "link", "delete", device])
            raise
        return ends[0][1], ends[1][1]

    def _report(self, pairs: Iterable[tuple[int, int]]) -> None:
        switch = self._switch
        if switch is None or switch.stdin is None or switch.stdout is None:
            raise RuntimeError("For 'Machines', the machines must have been started by `with`.")
        rows = [(*pair, asdict(self._links.get(pair, PERFECT))) for pair in pairs]
        switch.stdin.write(json.dumps(rows).encode() + b"\n")
        switch.stdin.flush()
        switch.stdout.readline()  # from now on it holds


def _shape(rate: float, latency: float) -> list[str]:
    """The words of `tc` for a rate in bytes a second and a latency in milliseconds."""
    bits = [] if rate == math.inf else ["rate", f"{rate * 8:.0f}bit"]
    if latency:
        return ["netem", "delay", f"{latency * 1000:.0f}us", *bits]
    return ["tbf", *bits, "burst", str(_BURST_BYTES), "latency", "5ms"] if bits else []


def why_unavailable() -> str:
    """The reason why machines cannot be had here; "" where they can."""
    if sys.platform != "linux":
        return "machines are namespaces of Linux, and this is none"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} (iproute2, util-linux) must be installed"
    if not Path("/dev/net/tun").exists():
        return "the kernel has no TAP devices (/dev/net/tun)"
    tried = subprocess.run(["unshare", *_NAMESPACES, "--fork", "true"], capture_output=True, text=True)
    return f"namespaces cannot be made: {tried.stderr.strip()}" if tried.returncode else ""


def _installed() -> list[Path]:
    """Where Python, its packages and this repository are."""
    paths = {Path(sys.prefix), Path(sys.base_prefix), Path(__file__).resolve().parents[1]}
    return sorted(path.resolve() for path in paths)


def _checked(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MachinesUnavailableError(f"`{' '.join(command)}`: {done.stderr.strip()}")


def _children(process: int) -> list[int]:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with suppress(OSError):
            if found := Path(f"/proc/{process}/task/{process}/children").read_text().split():
                return [int(number) for number in found]
        time.sleep(0.005)
    return []


def is_running(number: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _namespace(process: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{process}/ns/pid")
    return ""


def _command_line(entry: Path) -> str:
    with suppress(OSError):
        return (entry / "cmdline").read_text().replace("\0", " ").strip()
    return ""


def _hold(name: str, folder: Path, shared: Sequence[Path]) -> None:
    """Be the first process of a machine until standard input ends: the kernel ends all others with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # processes whose parents are gone end without a trace
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _checked(["hostname", name])
    _checked(["mount", "--make-rprivate", "/"])
    own = folder / "tmp"
    for path in shared:
        if path.is_relative_to("/tmp"):
            seen = own / path.relative_to("/tmp")
            seen.mkdir(parents=True, exist_ok=True)
            _checked(["mount", "--rbind", str(path), str(seen)])
    _checked(["mount", "--rbind", str(own), "/tmp"])
    _checked(["mount", "--bind", str(folder / "hosts"), "/etc/hosts"])
    _checked(["mount", "-t", "tmpfs", "shm", "/dev/shm"])
    _checked(["mount", "-t", "proc", "proc", "/proc"])
    print("ready", flush=True)
    sys.stdin.buffer.read()


# ---------------------------------------------------------------------------------------------------------------- the command


def _replaced(command: Sequence[str], machine: Machine, machines: Machines) -> list[str]:
    values: Mapping[str, object] = {
        "{rank}": machine.number, "{name}": machine.name, "{address}": machine.address, "{master}": machines[0].address,
    }  # fmt: skip
    for old, new in values.items():
        command = [word.replace(old, str(new)) for word in command]
    return list(command)


def _forward(output: IO[str], name: str) -> None:
    for line in output:
        print(f"{name}: {line}", end="", flush=True)


def _on_all(machines: Machines, command: Sequence[str]) -> int:
    """Run the command on every machine; the first exit code that is not 0."""
    jobs, readers = [], []
    for machine in machines:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        job = machine.popen(_replaced(command, machine, machines), **pipes)
        reader = threading.Thread(target=_forward, args=(job.stdout, machine.name))
        reader.start()
        jobs.append(job)
        readers.append(reader)
    codes = [job.wait() for job in jobs]
    for reader in readers:
        reader.join()
    return next((code for code in codes if code), 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="In the command, {rank}, {name}, {address} and {master} (the first machine's address) are replaced.",
    )
    parser.add_argument("--count", type=int, default=2, help="how many machines (2)")
    parser.add_argument("--latency", type=float, default=0.0, metavar="MS", help="of each link, in milliseconds (0)")
    parser.add_argument(
        "--loss", type=float, default=0.0, metavar="SHARE", help="of the frames that are lost, 0 to 1 (0)"
    )
    parser.add_argument(
        "--rate", type=float, default=math.inf, metavar="BYTES", help="bytes a second of each link (no limit)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the losses (0)")
    parser.add_argument(
        "--shared",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder that all see (the current one)",
    )
    parser.add_argument("command", nargs="+", help="what runs on each machine, after --")
    return parser


def main() -> int:
    """Run a command on several machines."""
    match sys.argv[1:]:
        case ["hold", arguments]:
            name, folder, shared = json.loads(arguments)
            _hold(name, Path(folder), [Path(path) for path in shared])
            return 0
        case ["switch", arguments]:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it never outlives who started it
            Switch(*json.loads(arguments)).run(sys.stdin.buffer)
            return 0
    options = _parser().parse_args()
    link = Link(options.latency, options.loss, options.rate)
    try:
        with Machines(options.count, link, [*options.shared, Path.cwd()], options.seed) as machines:
            return _on_all(machines, options.command)
    except MachinesUnavailableError as error:
        print(f"Machines cannot be had here: {error}.", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
