"""The process of the scheduler, set up by the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.environment import PsEnvironment
from sporax.ps.scheduler.journal import journal_path
from sporax.ps.scheduler.scheduler import ServerScheduler
from sporax.ps.slots.slot_files import read_manifest
from sporax.ps.sockets.security import is_loopback, keys_for


def run(place: PsEnvironment, environ: Mapping[str, str]) -> None:
    """Be the scheduler."""
    journal = None
    if place.recovery_path:
        Path(place.recovery_path).mkdir(parents=True, exist_ok=True)
        journal = journal_path(Path(place.recovery_path), place.port)
    if place.options.restore:
        _check_restore(place)
    keys = keys_for(place.host, environ)
    # As servers do: a job of this machine is closed to others; with keys every interface may be open.
    address = f"{'*' if keys is not None and not is_loopback(place.host) else place.host}:{place.port}"
    ServerScheduler(address, place.options, place.worker_num, place.server_num, journal, keys).run()


def _check_restore(place: PsEnvironment) -> None:
    """Raise unless the checkpoint fits the job.

    Raises:
        SporaxRuntimeError: another number of slots, or another kind of staleness.
    """
    manifest = read_manifest(place.options.restore)
    # A checkpoint is of numbered slots, and clocks exist in synchronous mode only.
    for name, there, here in (
        ("MS_PS_SLOTS", manifest.num_slots, place.options.num_slots),
        ("synchronous mode (MS_PS_STALENESS=0)", manifest.staleness == 0, place.options.staleness == 0),
    ):
        if there != here:
            raise SporaxRuntimeError(
                f"For 'sporax.ps', {name} must be what the checkpoint '{place.options.restore}' was taken with, {there}, but "
                f"got {here}."
            )
