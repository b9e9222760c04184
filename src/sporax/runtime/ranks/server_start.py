"""This process's role in a job with parameter servers: it becomes a worker, or serves until the job is over.

Needs the extra `ps`: only jobs with parameter servers load this module.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping

from sporax.base.errors import For, SporaxRuntimeError
from sporax.ir.config.placement_config import PsConfig
from sporax.ir.variables import read
from sporax.ps import process as ps_main
from sporax.ps.client.store import ServerStore
from sporax.ps.environment import PsEnvironment, serve_ranks
from sporax.ps.sockets.security import keys_for
from sporax.ps.worker.server_connection import ServerConnection
from sporax.runtime import world
from sporax.runtime.ranks.server_exchange import ROLES
from sporax.runtime.session import SESSION


def start(config: PsConfig, environ: Mapping[str, str] = os.environ, *, with_ranks: bool) -> tuple[int, int]:
    """Take this process's role. Schedulers and servers serve here until the job is over, then exit.

    Args:
        environ: MS_ROLE and its relatives.
        with_ranks: workers also exchange data with each other (parallel modes with collectives).

    Returns:
        Rank and number of workers.

    Raises:
        SporaxRuntimeError: no role, settings that differ from the job's, or no scheduler.
    """
    environ = with_config(config, environ)
    role = environ.get("MS_ROLE", "")
    if role not in ROLES:
        raise SporaxRuntimeError(
            f"For 'init', 'MS_ROLE' must be one of {list(ROLES)} when enable_ps is True, but got '{role}'. Start the job "
            "with `sporax run --server_num=S --worker_num=W`, or set the variables yourself."
        )
    # The scheduler of servers also serves the ranks of a job that has both.
    if role == "MS_SCHED" and with_ranks:
        serve_ranks(environ)
    if role != "MS_WORKER":
        sys.exit(ps_main.main("scheduler" if role == "MS_SCHED" else "server", environ))
    # A second `init` changes nothing.
    if SESSION.servers is not None:
        return SESSION.servers.store.rank, _workers(environ)
    place = PsEnvironment.read(environ)
    rank = int(environ["RANK_ID"]) if environ.get("RANK_ID") else -1
    if with_ranks and place.worker_num > 1:
        # The ranks join by themselves: their scheduler must not wait for the servers.
        rank = world.start({**environ, "MS_SERVER_NUM": "0"}).rank
    timeout = place.receive_timeout
    keys = keys_for(place.host, environ)
    store = ServerStore(place.scheduler, node=place.node, rank=rank, keys=keys, timeout=timeout)
    _check_agrees(config, store)
    # The scheduler knows with how many the job began; a pod that is made later has the job's present size in its environment.
    first_workers = store.first_workers or max(1, place.worker_num)
    SESSION.servers = ServerConnection(store, first_workers=first_workers, step_seconds=timeout)
    atexit.register(SESSION.servers.close)
    world.finish_before_exit()
    return store.rank, _workers(environ)


def _workers(environ: Mapping[str, str]) -> int:
    number: int = read(environ, "MS_WORKER_NUM")
    return max(number, (SESSION.servers.store.rank + 1) if SESSION.servers else 1)


def with_config(config: PsConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, where the settings of `set_ps_context` fill what it leaves open."""
    filled = {
        "MS_ROLE": "" if config.ms_role == "MS_NOT_PS" else config.ms_role,
        "MS_WORKER_NUM": str(config.worker_num or ""),
        "MS_SERVER_NUM": str(config.server_num or ""),
        "MS_SCHED_HOST": config.scheduler_ip,
        "MS_SCHED_PORT": str(config.scheduler_port),
        "MS_PS_STALENESS": "" if config.staleness is None else str(config.staleness),
        "MS_PS_DURABILITY": config.durability,
    }
    # What the environment says wins, since the launcher writes it for the whole job.
    result = {**{name: value for name, value in filled.items() if value}, **environ}
    if config.enable_ssl and not result.get("MS_PS_KEYS"):
        raise For("set_ps_context").state_error(
            "enable_ssl=True needs the keys of the job: make them with `sporax ps keys DIR` and set MS_PS_KEYS=DIR on "
            "every machine. The p12 files of 'config_file_path' are not used; connections are encrypted with CURVE"
        )
    return result


def _check_agrees(config: PsConfig, store: ServerStore) -> None:
    options = store.options
    # The scheduler fixed these settings for the job; a worker with others would wait or read differently.
    for name, expected, there in (
        ("staleness", config.staleness, options.staleness),
        ("durability", config.durability or None, options.durability),
    ):
        if expected is not None and expected != there:
            # The other workers need not wait for this one.
            store.close(finished=False)
            raise SporaxRuntimeError(
                f"For 'set_ps_context', '{name}' must be what the job was started with, {there!r}, but got {expected!r}. "
                f"Start it with `sporax run --{name}={expected}` or MS_PS_{name.upper()}={expected}."
            )
