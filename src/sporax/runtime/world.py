"""This process among the ranks of its job: start, stop, and the devices of all ranks.

One rank is one process with one device. `start` finds out who this process is (`sporax.cluster`), starts JAX's own distributed
service, and keeps the result as the *world*. Everything else about ranks builds on it: `ranks.joint_arrays` lays arrays and
programs over the devices of all ranks, `ranks.groups` names sets of ranks, `ranks.collectives` moves data between them.

JAX has to be given the other processes before its backend starts. Programs may make tensors before they call
`init`, so `start` carries the values of arrays that are alive over to the new backend (`carry_over`).
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax import cluster
from sporax.base.errors import SporaxRuntimeError
from sporax.base.identity import ByIdentity
from sporax.cluster import ports
from sporax.cluster.environment import ProcessRole, RankEnvironment
from sporax.runtime.process import dry_run
from sporax.runtime.process.host_allocator import tracked_objects
from sporax.runtime.session import SESSION, World
from sporax.runtime.state import frames

if TYPE_CHECKING:
    from sporax.cluster.watchdog import Watchdog

_PREEMPTION_SERVICE = "jax_enable_preemption_service"


def world() -> World | None:
    """The world, or None before `start`."""
    return SESSION.world


def has_peers() -> bool:
    """Whether there are other ranks."""
    return has_other_processes() or num_ranks_here() > 1


def has_other_processes() -> bool:
    """Whether other processes take part in the job."""
    return SESSION.world is not None and SESSION.world.size > 1


def has_reduce_scatter() -> bool:
    """Whether programs may contain XLA's reduce-scatter; else an all-to-all trades the parts and each device adds its own.

    gloo's reduce-scatter (`ReduceScatterHalvingDoubling`) overwrites the buffer that it is still sending, so sums are wrong at
    random: https://github.com/jax-ml/jax/issues/40830. XLA uses gloo on CPUs once `jax.distributed` is initialized, also
    between devices of one process. `tools/soaks/collectives.py` has the versions of jaxlib that are known to have the defect.
    """
    # In this order: the question for a backend would start one, which must not be before `jax.distributed`.
    return not (jax.distributed.is_initialized() and jax.default_backend() == "cpu")


def num_ranks_here() -> int:
    """How many ranks this process acts for: as many as the parallel mode makes of its devices."""
    return 1 if SESSION.world is None or dry_run.active() else max(SESSION.acts_for() // SESSION.world.size, 1)


def num_feeders() -> int:
    """Processes that bring data to the devices of the job: one for each rank, also when the others are simulated."""
    return SESSION.world.size if SESSION.world is not None and dry_run.active() else jax.process_count()


def drives(device: jax.Device) -> bool:
    """Whether this rank brings data to a device of the job."""
    if SESSION.world is not None and dry_run.active():
        return bool(device == SESSION.world.devices[SESSION.world.rank])
    return bool(device.process_index == jax.process_index())


def num_devices() -> int:
    """Devices that all processes of the job drive together; 1 before `start`."""
    return 1 if SESSION.world is None else jax.device_count()


def start(environ: Mapping[str, str] = os.environ) -> World:
    """Take this process's place in its job; waits until all ranks are there. Calling it again changes nothing.

    A process with the role of the scheduler serves here until the job is over, then exits.

    Raises:
        SporaxRuntimeError: the other ranks did not come in time, or this process is not welcome.
        SporaxValueError: the environment variables make no sense.
    """
    if SESSION.world is not None:
        return SESSION.world
    environment = RankEnvironment.from_environ(environ)
    # MindSpore's scheduler runs the user's script as the ranks do, and leaves it here.
    if environment.role is ProcessRole.SCHEDULER:
        cluster.serve_cluster(environment, recovers=cluster.recovers(environ))
        sys.exit()
    SESSION.membership = membership = cluster.join(environment)
    place = membership.environment
    assert place.rank is not None
    if place.simulation_level is not None:
        # JAX fixes the number of CPU devices when its backend starts, so the backend has to start again.
        with carry_over():
            dry_run.start(place)
    elif place.size > 1:
        SESSION.watchdog = cluster.Watchdog(membership)
        # Before the connection, which may hang as well when a rank is lost.
        SESSION.watchdog.start()
        _connect(place, SESSION.watchdog)
    # One rank drives one device, however many its process sees.
    devices = _devices_by_rank(place.size) if place.size > 1 else (jax.local_devices()[0],)
    if SESSION.watchdog is not None:
        SESSION.watchdog.computes_on(devices[0].platform)
        if devices[0].platform == "cpu" and place.local_size < place.size:
            _check_gloo(place)
    SESSION.world = World(place.rank, place.size, place.local_rank, place.local_size, devices)
    finish_before_exit()
    # Programs that were traced for one rank may be wrong for several.
    frames.touch()
    return SESSION.world


def stop() -> None:
    """Leave the job; later collectives are errors. Harmless when nothing was started."""
    if dry_run.active():
        dry_run.stop()
    elif SESSION.world is not None and SESSION.world.size > 1:
        with carry_over():
            # First of all: a rank that leaves would look like one that is lost.
            if SESSION.watchdog is not None:
                SESSION.watchdog.stop()
            jax.distributed.shutdown()
    if SESSION.membership is not None:
        SESSION.membership.leave()
    SESSION.world = SESSION.membership = SESSION.watchdog = SESSION.reported_size = None
    SESSION.agreed.clear()
    frames.touch()


def finish_before_exit() -> None:
    """Let what was started come to its end before the exit handlers that are registered until now, as links to others are closed.

    XLA's threads would go on with a step that nothing has read, in a backend that JAX's exit handler destroys: SIGSEGV at random.
    """
    atexit.unregister(_finish)
    atexit.register(_finish)


def _finish() -> None:
    # Only where there is an array, or the question would start a backend.
    if SESSION.executables or next(_held_arrays(), None) is not None:
        for array in jax.live_arrays():
            with suppress(Exception):  # of a step that nothing reads
                array.block_until_ready()


def _connect(place: RankEnvironment, watchdog: Watchdog) -> None:
    """Start JAX's distributed service and a backend that sees the devices of all ranks."""
    with carry_over():
        # XLA:CPU needs a transport named for exchanges between processes; GPUs and TPUs ignore it.
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        # JAX's service for preemption swallows SIGTERM: a rank that Kubernetes or Slurm ends would train on until it is killed.
        if _PREEMPTION_SERVICE.upper() not in os.environ:
            jax.config.update(_PREEMPTION_SERVICE, False)
        try:
            jax.distributed.initialize(
                place.coordinator_address,
                place.size,
                place.rank,
                _own_device(place, os.environ),
                # Everything is known: JAX would query Open MPI by mpi4py, and take all ranks of a launcher below srun for one.
                "deactivate",
                coordinator_bind_address=_bind_address(place),
                initialization_timeout=int(place.timeout_seconds),
                heartbeat_timeout_seconds=cluster.HEARTBEAT_SECONDS,
                shutdown_timeout_seconds=cluster.SHUTDOWN_SECONDS,
            )
        except (RuntimeError, jax.errors.JaxRuntimeError) as error:
            raise SporaxRuntimeError(
                f"For 'init', rank {place.rank} must reach the coordinator at {place.coordinator_address}, but got: "
                f"{str(error).splitlines()[0]}"
            ) from error
    # Exit handlers run last to first, so this one runs before JAX closes its service.
    atexit.register(watchdog.say_goodbye)


def _own_device(place: RankEnvironment, environ: Mapping[str, str]) -> int | None:
    """The GPU of a process that an engine or a rank table has started for one device of its node; None: all that it sees, or
    those of JAX_LOCAL_DEVICE_IDS.
    """
    return None if place.scheduler_address is not None or "JAX_LOCAL_DEVICE_IDS" in environ else place.local_rank


def _bind_address(place: RankEnvironment) -> str | None:
    """Where rank 0 opens JAX's coordinator: at the one address by which the other ranks reach it, which is the loopback address
    when all are on one machine. None, all interfaces, only where that address is another machine's (one that forwards to this) or
    leads this machine to itself and others to it.
    """
    address = place.coordinator_address
    assert address is not None
    host = address.rpartition(":")[0]
    if place.rank != 0 or not ports.is_local(host):
        return None
    # The machine's own name may lead to a loopback address here, and to an interface elsewhere.
    named = not ports.is_address(host.strip("[]"))
    if named and place.local_size < place.size and ports.is_loopback(ports.resolve_host(host)[1]):
        return None
    return address


def _check_gloo(place: RankEnvironment) -> None:
    """Let the user know where gloo offers other machines an address that does not lead to this one, before the first exchange.

    Raises:
        SporaxRuntimeError: it is a loopback address.
    """
    assert place.coordinator_address is not None
    host = place.coordinator_address.rpartition(":")[0].strip("[]")
    # A loopback address, unlike a name that leads to one here, means the same machine to all ranks: there is no other one.
    if ports.is_address(host) and ports.is_loopback(host):
        return
    name, offered = socket.gethostname(), ports.gloo_address()
    reached = place.worker_host or ports.own_address(host)
    if ports.is_loopback(reached):
        reached = next(iter(ports.own_addresses()), reached)
    if ports.is_loopback(offered) and not ports.is_loopback(reached):
        raise SporaxRuntimeError(
            f"For 'init', the name of this machine must lead to an address that the other machines reach, but '{name}' leads to "
            f"{offered}, where gloo (JAX's transport between CPUs) would listen. Write '{reached} {name}' into /etc/hosts of "
            f"this machine, in place of '{offered} {name}'."
        )
    if offered != reached and not place.local_rank and ":" not in reached:
        print(
            f"sporax: rank {place.rank} reaches the job through {reached}, but gloo (JAX's transport between CPUs) listens at "
            f"{offered}, where the name of this machine, '{name}', leads. Where other machines cannot reach that, write "
            f"'{reached} {name}' into /etc/hosts.",
            file=sys.stderr,
        )


def _devices_by_rank(size: int) -> tuple[jax.Device, ...]:
    """The first device of each process; in a dry run, where one process has them all, a device for each rank."""
    if dry_run.active():
        return tuple(jax.devices()[:size])
    first: dict[int, jax.Device] = {}
    for device in jax.devices():
        # JAX orders devices by process, but the first of each one is all that counts here.
        first.setdefault(device.process_index, device)
    return tuple(first[rank] for rank in range(size))


class carry_over:  # noqa: N801 - a context manager used like a verb
    """Context in which JAX's backend is replaced; Tensors, Parameters and generators keep their values through it.

    What is sharded over processes is lost: no rank has all of it, and it may be too large for one of them.
    """

    def __enter__(self) -> None:
        self._saved = [
            (holder, array, np.asarray(array) if array.is_fully_addressable or array.is_fully_replicated else None)
            for holder, array in _held_arrays()
        ]
        if lost := [getattr(holder, "name", "a Tensor") for holder, _, values in self._saved if values is None]:
            warnings.warn(
                f"For 'release', what is sharded over processes is lost: {len(lost)} values such as '{lost[0]}'. Save it before.",
                stacklevel=2,
            )
        for entry in self._saved:
            # An array that is alive when its backend goes would be a dangling buffer.
            del entry[0].raw
            if entry[2] is None and not entry[1].is_deleted():
                entry[1].delete()
        from jax.extend import backend  # takes long to load, and most processes replace no backend

        backend.clear_backends()

    def __exit__(self, *_: object) -> None:
        renewed = {
            ByIdentity(array): array if values is None else jnp.asarray(values, values.dtype)
            for _, array, values in self._saved
        }
        for holder, array, _values in self._saved:  # several holders may share one array, and do so afterwards
            holder.raw = renewed[ByIdentity(array)]


def _held_arrays() -> Iterator[tuple[Any, jax.Array]]:
    """All objects with a slot called ``raw`` that holds an array, whatever their class, and the array."""
    has_slot: dict[type, bool] = {}
    # A registry of all Tensors would cost every creation; this runs once per job.
    for holder in tracked_objects():
        kind = type(holder)
        if kind not in has_slot:
            has_slot[kind] = isinstance(getattr(kind, "raw", None), MemberDescriptorType)
        # A lazy tensor has no array yet, and what lies in a file stays there.
        if has_slot[kind] and not getattr(holder, "has_init", False) and frames.slot(holder, "filed") is None:
            array = getattr(holder, "raw", None)  # absent where the constructor raised
            if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer) and not array.is_deleted():
                yield holder, array


# After JAX is loaded, whose handler thus runs later.
finish_before_exit()
