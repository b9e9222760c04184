"""Settings of a parameter-server process in its environment: MindSpore's variables and ours.

=====================  =====================================================================================
variable               meaning
=====================  =====================================================================================
MS_ROLE                MS_SCHED, MS_PSERVER (or MS_SERVER), MS_WORKER
MS_SCHED_HOST, _PORT   where the scheduler is; the parameter server listens on the port after it
MS_SERVER_NUM          servers at the start
MS_WORKER_NUM          workers at the start
MS_NODE_ID             name of this process over restarts
MS_RECOVERY_PATH       directory of the scheduler's journal and of the logs (with MS_ENABLE_RECOVERY=1)
MS_NODE_TIMEOUT        seconds of silence after which a process gives up (default 600)
MS_RECEIVE_MSG_TIMEOUT seconds to wait for an answer (default 600)
MS_WORKER_IP           address of this machine for others
MS_PS_INDEX            number of this server
MS_PS_STALENESS        0 synchronous (default), k bounded, -1 unbounded
MS_PS_DURABILITY       memory, process, disk or replica (default: replica with two servers or more, else process)
MS_PS_SLOTS            virtual slots, at least one for each server (default 16)
MS_PS_LEASE            seconds a silent server keeps its slots (default 10)
MS_PS_WORKER_LEASE     seconds a silent worker stays a member (default: MS_PS_LEASE); a worker that is started again before
                       that changes no bit of a synchronous run; `sporax run` speaks for silent workers that run
MS_PS_SNAPSHOT_BYTES   log size after which snapshots are taken
MS_PS_CHECKPOINT_PATH  where global checkpoints go (`sporax ps checkpoint`); the same folder on all machines
MS_PS_CHECKPOINT_SECONDS  pause between checkpoints, 0 (default) for only on request
MS_PS_RESTORE          folder of a checkpoint that the job continues from
MS_PS_METRICS_PORT     port of the Prometheus page
MS_PS_KEYS             directory of keys, see `security`
=====================  =====================================================================================

Mixed mode: where workers that also exchange data with each other meet (`sporax.cluster`), next to the scheduler.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from sporax.base.errors import SporaxError
from sporax.cluster import ports
from sporax.cluster.environment import RankEnvironment, join_address
from sporax.cluster.scheduler import serve_cluster
from sporax.ir.variables import JOB, MAX_PORT, SERVERS, VARIABLES, check, read
from sporax.ps.protocol.messages import Options

DAMAGED_LOGS_VARIABLE = "SPORAX_KEPT_LOGS"
"""Where a launcher wants damaged logs to be kept, when the job's own directory ends with the job."""
SERVING_FILE_VARIABLE = "SPORAX_SERVING_FILE"
"""A file that a server touches while it serves, for a supervisor's probe of readiness."""
REPLACED = 75
"""Exit code of a server that a supervisor should start again."""

ROLES = {"MS_SCHED": "scheduler", "MS_PSERVER": "server", "MS_SERVER": "server", "MS_WORKER": "worker"}


class PsEnvironment(Struct, frozen=True):
    """What the environment says.

    Attributes:
        role: ``scheduler``, ``server``, ``worker`` or "".
        host, port: of the parameter server's scheduler; an IPv6 address without brackets.
        worker_num, server_num: at the start.
        node: name of this process over restarts.
        index: requested number of this server, -1 for any.
        own_host: how others reach this machine.
        recovery_path: where state survives, "" for a temporary directory.
        node_timeout, receive_timeout: seconds.
        metrics_port: 0 for no page.
        options: settings of the job.
    """

    role: str
    host: str
    port: int
    worker_num: int
    server_num: int
    node: str
    index: int
    own_host: str
    recovery_path: str
    node_timeout: float
    receive_timeout: float
    metrics_port: int
    options: Options

    @property
    def scheduler(self) -> str:
        """Address of the scheduler."""
        return join_address(self.host, self.port)

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> PsEnvironment:
        """Read the variables.

        Raises:
            SporaxValueError: a value that is not allowed.
        """
        check(environ, JOB, SERVERS)
        if read(environ, "MS_SCHED_PORT") == MAX_PORT:
            raise VARIABLES["MS_SCHED_PORT"].wrong(
                f"less than {MAX_PORT}, since the servers' scheduler takes the next", MAX_PORT
            )
        servers = read(environ, "MS_SERVER_NUM")
        # A single server has no other one that could hold copies.
        durability = read(environ, "MS_PS_DURABILITY") or ("replica" if servers > 1 else "process")
        host = environ.get("MS_SCHED_HOST", "").strip("[]") or "127.0.0.1"
        # Both names of this machine must lead to the same loopback address.
        host = "127.0.0.1" if host == "localhost" else host
        lease = read(environ, "MS_PS_LEASE")
        # The launcher of servers sets its own variable, since MindSpore's also changes how training starts.
        recovers = read(environ, "MS_ENABLE_RECOVERY") == "1" or "MS_PS_RECOVERY" in environ
        return cls(
            role=ROLES.get(environ.get("MS_ROLE", ""), ""),
            host=host,
            # MindSpore's port belongs to the rendezvous of ranks; the store takes the next one.
            port=read(environ, "MS_SCHED_PORT") + 1,
            worker_num=read(environ, "MS_WORKER_NUM"),
            server_num=servers,
            node=environ.get("MS_NODE_ID", "") or uuid.uuid4().hex,
            index=read(environ, "MS_PS_INDEX"),
            own_host=environ.get("MS_WORKER_IP", "").strip("[]") or _own_host(host),
            recovery_path=environ.get("MS_RECOVERY_PATH", "") if recovers else "",
            node_timeout=read(environ, "MS_NODE_TIMEOUT"),
            receive_timeout=read(environ, "MS_RECEIVE_MSG_TIMEOUT"),
            metrics_port=read(environ, "MS_PS_METRICS_PORT"),
            options=Options(
                staleness=read(environ, "MS_PS_STALENESS"),
                durability=durability,
                num_slots=read(environ, "MS_PS_SLOTS"),
                lease_seconds=lease,
                # Five heartbeats per lease, so that one that is lost does no harm.
                heartbeat_seconds=min(0.5, lease / 5),
                lost_seconds=read(environ, "MS_NODE_TIMEOUT"),
                checkpoint_path=environ.get("MS_PS_CHECKPOINT_PATH", ""),
                checkpoint_seconds=read(environ, "MS_PS_CHECKPOINT_SECONDS"),
                restore=environ.get("MS_PS_RESTORE", ""),
                worker_lease_seconds=read(environ, "MS_PS_WORKER_LEASE"),
                snapshot_bytes=read(environ, "MS_PS_SNAPSHOT_BYTES"),
            ),
        )


def _own_host(scheduler: str) -> str:
    """The address of this machine that the scheduler's machine can reach."""
    with socket.socket(ports.preferred_family(scheduler), socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only chooses the interface.
            probe.connect((scheduler, 1))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def serve_ranks(variables: Mapping[str, str]) -> None:
    """Let workers that exchange data with each other meet, in a thread; in other jobs no one comes."""
    place = RankEnvironment.from_environ({**variables, "MS_ROLE": "MS_SCHED", "MS_SERVER_NUM": "0"})

    def serve() -> None:
        with suppress(SporaxError, OSError):  # the ranks report to their users what was wrong
            serve_cluster(place, log=lambda _: None)

    threading.Thread(target=serve, name="sporax-rendezvous", daemon=True).start()
