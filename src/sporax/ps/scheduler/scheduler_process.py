"""The process of the scheduler, set up by the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sporax.base.errors import SporaxRuntimeError
from sporax.ps.environment import PsEnvironment
from sporax.ps.scheduler.journal import journal_path
from sporax.ps.scheduler.scheduler import ServerScheduler
from sporax.ps.slots.slot_files import read_manifest
from sporax.ps.sockets.security import keys_for
from sporax.ps.sockets.transport import listening_address


def run(place: PsEnvironment, environ: Mapping[str, str]) -> None:
    """Be the scheduler."""
    journal = None
    if place.recovery_path:
        Path(place.recovery_path).mkdir(parents=True, exist_ok=True)
        journal = journal_path(Path(place.recovery_path), place.port)
    if place.options.restore:
        _check_restore(place)
    keys = keys_for(place.host, environ)
    address = listening_address(place.host, place.port, keys)
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
