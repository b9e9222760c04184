"""Parameter servers on a Ray cluster: Ray places the processes, starts them again, and notices dead nodes.

The actors only host `sporax.ps.server.server.Server` and the scheduler: data goes through their own sockets, never through
Ray's object store. Servers are spread over the nodes, so that a slot and its backup are on different ones. An actor that dies
is started again by Ray, on another node if its own is gone, and gets its slots from the backups (durability ``replica``) or
from its log.

    with RayServers(servers=2, workers=2, host="10.0.0.1", port=8118) as job:
        ...  # workers connect to job.address, with `job.variables` in their environment
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from sporax.base.errors import For, SporaxImportError, SporaxRuntimeError
from sporax.cluster.environment import join_address
from sporax.cluster.token import TOKEN_VARIABLE, new_token, token_from_environ
from sporax.ps.client.scheduler_link import Requester
from sporax.ps.environment import REPLACED
from sporax.ps.process import main
from sporax.ps.protocol.messages import GetStatus, StatusReply
from sporax.ps.sockets.security import is_loopback, keys_for

_START_SECONDS = 60.0
"""Ray starts a Python process for each actor, and each imports Sporax."""


class RayServers:
    """The scheduler and the servers of a job as Ray actors.

    Args:
        servers, workers: numbers at the start.
        host: address of the machine that calls this, where the scheduler runs.
        port: as MS_SCHED_PORT; the parameter server's scheduler listens on the next one.
        variables: of the environment of all actors, e.g. ``{"MS_PS_STALENESS": "-1"}``; see `sporax.ps.environment`.
        resources: Ray resources of one server, e.g. ``{"memory": 4e9}``.
        start_seconds: in which the scheduler must answer; a busy machine needs more.

    Raises:
        SporaxImportError: Ray is not installed.
        SporaxRuntimeError: the scheduler does not answer in time.
    """

    def __init__(
        self,
        servers: int,
        workers: int,
        *,
        host: str = "127.0.0.1",
        port: int,
        variables: Mapping[str, str] | None = None,
        resources: Mapping[str, float] | None = None,
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self._ray = _ray()
        if not self._ray.is_initialized():
            # Without an address a Ray of this machine is started.
            self._ray.init(address=os.environ.get("RAY_ADDRESS") or None, log_to_driver=False)
        own = dict(variables or {})
        # Other nodes need keys, and a token that all actors get makes them.
        if not own.get("MS_PS_KEYS") and not is_loopback(host) and own.get("MS_PS_INSECURE") != "1":
            own.setdefault(TOKEN_VARIABLE, token_from_environ(os.environ) or new_token())
        host = host.strip("[]")
        self.address = join_address(host, port + 1)
        self.variables = {
            **own,
            "MS_SCHED_HOST": host,
            "MS_SCHED_PORT": str(port),
            "MS_SERVER_NUM": str(servers),
            "MS_WORKER_NUM": str(workers),
        }
        self._resources = dict(resources or {})
        self.actors: dict[tuple[str, int], Any] = {}
        self._runs: dict[Any, tuple[str, int]] = {}
        try:
            here = self._ray.get_runtime_context().get_node_id()
            self._start("scheduler", 0, _on_node(here, soft=False))  # its address does not move
            # Round the nodes, so that the slots' copies are on different ones.
            for index, node in zip(range(servers), itertools.cycle(self._nodes()), strict=False):
                self._start("server", index, _on_node(node, soft=True))
            self._await_scheduler(start_seconds)
        except BaseException:
            self.close()
            raise

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the job; False when it still runs after so many seconds.

        Raises:
            SporaxRuntimeError: an actor failed for good.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self._runs:
            left = None if until is None else max(0.0, until - time.monotonic())
            ready, _ = self._ray.wait(list(self._runs), num_returns=1, timeout=left)
            if not ready:
                return False
            role, index = self._runs.pop(ready[0])
            try:
                code = self._ray.get(ready[0])
            except self._ray.exceptions.RayError as error:
                raise SporaxRuntimeError(f"For 'sporax.ps.ray', {role} {index} must run, but got: {error}.") from error
            For("sporax.ps.ray").refuse_state(code, f"{role} {index} must end well, but its exit code is {code}")
        return True

    def node_of(self, role: str, index: int) -> str:
        """The Ray node that an actor is on."""
        return str(self._ray.get(self.actors[(role, index)].node.remote()))

    def process_of(self, role: str, index: int) -> int:
        """The process of an actor."""
        return int(self._ray.get(self.actors[(role, index)].process.remote()))

    def close(self) -> None:
        """End all actors that still run."""
        for actor in self.actors.values():
            self._ray.kill(actor, no_restart=True)
        self.actors.clear()
        self._runs.clear()

    def __enter__(self) -> RayServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, role: str, index: int, place: Any) -> None:
        # Restarts without end: a job ends by its scheduler's word or by `close`. The call is repeated after a restart, too,
        # and a second thread answers questions while the first serves.
        options: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1, "max_concurrency": 2, "num_cpus": 0}
        options |= {"scheduling_strategy": place}
        if role == "server":
            # Ray takes these two by their own names, and all others as custom resources.
            options |= {name: self._resources[name] for name in ("num_cpus", "memory") if name in self._resources}
            options["resources"] = {n: v for n, v in self._resources.items() if n not in ("num_cpus", "memory")}
        variables = {**self.variables, "MS_NODE_ID": f"ray-{role}-{index}", "MS_PS_INDEX": str(index)}
        actor = self._ray.remote(**options)(_Process).remote(role, variables)
        self.actors[(role, index)] = actor
        self._runs[actor.run.remote()] = (role, index)

    def _nodes(self) -> list[str]:
        """The nodes that servers are dealt out to in turn; Ray's own "SPREAD" may put two servers on one."""
        return sorted(str(node["NodeID"]) for node in self._ray.nodes() if node["Alive"])

    def _await_scheduler(self, seconds: float) -> None:
        requester = Requester(self.address, keys_for(self.variables["MS_SCHED_HOST"], self.variables))
        try:
            if requester.request(GetStatus(), StatusReply, seconds) is None:
                raise For("sporax.ps.ray").state_error(
                    f"the scheduler at {self.address} must answer, but did not in {seconds:.0f} s (start_seconds)"
                )
        finally:
            requester.close()


class _Process:
    """One role inside an actor."""

    def __init__(self, role: str, variables: dict[str, str]) -> None:
        self._role = role
        self._variables = {**os.environ, **variables}
        # Other servers must reach this one at the node's address.
        if not is_loopback(variables["MS_SCHED_HOST"]):
            self._variables.setdefault("MS_WORKER_IP", _own_address())

    def run(self) -> int:
        """Serve until the job is over; a server that another one has replaced begins again as a new one."""
        code: Any = REPLACED
        while code == REPLACED:
            try:
                code = main(self._role, self._variables)
            except SystemExit as end:
                code = end.code
        return int(code or 0)

    def process(self) -> int:
        """Its number."""
        return os.getpid()

    def node(self) -> str:
        """The node it is on."""
        return str(_ray().get_runtime_context().get_node_id())


def _on_node(node: str, *, soft: bool) -> Any:
    """Placement on a node; with `soft`, on another one when that is gone."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=soft)


def _own_address() -> str:
    """How other nodes reach this one, as Ray knows it."""
    address = str(_ray().util.get_node_ip_address())
    return address or socket.gethostbyname(socket.gethostname())


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise SporaxImportError(
            "For 'sporax.ps.ray', the package 'ray' must be there. Install it with `pip install 'sporax[ray]'`."
        ) from error
    return ray
