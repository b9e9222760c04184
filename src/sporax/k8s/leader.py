"""Several operators, of which one works: the holder of a Lease of the API server.

Problem: a second operator takes over quickly where the first one's machine is lost, but two at work would do everything
twice. Method: that of client-go's leader election. The holder writes the time into the Lease every few seconds. Others watch
it change, and take it once it has not changed for as long as it is valid, by their own clock: clocks of machines may differ.
Each write names the version that it has read, so of two that try at once one is refused. A holder that could not write for
`renew_seconds`, which is shorter than the Lease is valid, stops its work before anybody else begins.

Reference: k8s.io/client-go/tools/leaderelection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import uuid
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any

import httpx2
from lightkube import AsyncClient
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType
from msgspec import Struct, field

from sporax.base.errors import SporaxRuntimeError
from sporax.k8s.api.cluster import CONFLICT, NOT_FOUND, unless

Body = dict[str, Any]
_log = logging.getLogger(__name__)
_LEASE: Any = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")


def own_identity() -> str:
    """A name that no other operator has, and no earlier one in this pod."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class LeaseOptions(Struct, frozen=True):
    """Which Lease, and how it is kept.

    Attributes:
        namespace: of the Lease.
        name: of the Lease.
        valid_seconds: how long others wait after the holder's last word.
        renew_seconds: how long the holder works without being able to write; less than `valid_seconds`.
        pause_seconds: between two attempts.
        identity: of this operator.
    """

    namespace: str
    name: str
    valid_seconds: int = 15
    renew_seconds: float = 10.0
    pause_seconds: float = 2.0
    identity: str = field(default_factory=own_identity)


class LeaseLostError(SporaxRuntimeError):
    """This operator may not work any more: another one does, or will soon."""


class LeaderLease:
    """This operator's part in the election."""

    def __init__(self, client: AsyncClient, options: LeaseOptions) -> None:
        self._client = client
        self._options = options
        self._seen: tuple[object, ...] = ()  # what the Lease said when it last changed
        self._seen_at = 0.0
        self._held_until = 0.0

    async def acquire(self, stop: asyncio.Event | None) -> bool:
        """Wait until this operator holds the Lease; False where it is stopped before."""
        _log.info("%s waits for the lease %s.", self._options.identity, self._name)
        while stop is None or not stop.is_set():
            if await self._attempt(self._options.renew_seconds):
                _log.info("%s holds the lease %s and works.", self._options.identity, self._name)
                return True
            await asyncio.sleep(self._options.pause_seconds)
        return False

    async def lead(self, work: Awaitable[None]) -> None:
        """Work while the Lease is held; then give it back, so that another operator need not wait.

        Raises:
            LeaseLostError: it was lost; the work is stopped.
        """
        working, holding = asyncio.ensure_future(work), asyncio.create_task(self._hold())
        try:
            await asyncio.wait({working, holding}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise LeaseLostError(
                    f"For 'sporax k8s operator', the lease {self._name} must be held, but it could not be renewed for "
                    f"{self._options.renew_seconds:g} s or another operator has it; this one ends."
                )
            await working
        finally:
            for task in (working, holding):
                task.cancel()
            await asyncio.gather(working, holding, return_exceptions=True)
        await self._release()

    @property
    def is_held(self) -> bool:
        """Whether this operator may work: no other can have the Lease yet."""
        return time.monotonic() < self._held_until

    @property
    def _name(self) -> str:
        return f"{self._options.namespace}/{self._options.name}"

    async def _hold(self) -> None:
        """Renew the Lease; returns when it is lost."""
        while self.is_held:
            await asyncio.sleep(min(self._options.pause_seconds, self._held_until - time.monotonic()))
            # A call without an answer must not last longer than the right to work.
            is_held = await self._attempt(self._held_until - time.monotonic())
            if not is_held and self._seen and self._seen[0] not in ("", self._options.identity):
                self._held_until = 0.0
                return

    async def _attempt(self, seconds: float) -> bool:
        """Take or renew the Lease if that is allowed; whether it is held now. No answer in time counts as no."""
        begin = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                is_held = await self._take()
        except (httpx2.HTTPError, TimeoutError) as error:
            _log.warning("The lease %s cannot be read or written: %r", self._name, error)
            return False
        if is_held:
            # From the beginning of the call: the API server has written it later.
            self._held_until = begin + self._options.renew_seconds
        return is_held

    async def _take(self) -> bool:
        options = self._options
        lease: Body | None = await unless(
            self._client.get(_LEASE, options.name, namespace=options.namespace), NOT_FOUND
        )
        if lease is None:
            new = {"metadata": {"name": options.name, "namespace": options.namespace}, "spec": self._spec(_now(), 0)}
            return await unless(self._client.create(_LEASE(new)), CONFLICT) is not None
        spec = lease.get("spec") or {}
        holder, valid = spec.get("holderIdentity") or "", spec.get("leaseDurationSeconds") or options.valid_seconds
        seen = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, time.monotonic()
        if holder not in ("", options.identity) and time.monotonic() < self._seen_at + valid:
            return False
        changes = int(spec.get("leaseTransitions") or 0) + (holder != options.identity)
        acquired = spec.get("acquireTime") if holder == options.identity else _now()
        return await self._write(lease, self._spec(acquired, changes))

    def _spec(self, acquired: str | None, changes: int) -> Body:
        return {
            "holderIdentity": self._options.identity,
            "leaseDurationSeconds": self._options.valid_seconds,
            "acquireTime": acquired,
            "renewTime": _now(),
            "leaseTransitions": changes,
        }

    async def _write(self, lease: Body, spec: Body) -> bool:
        """Change the Lease as it was read; whether it still was so."""
        metadata = {key: lease["metadata"][key] for key in ("uid", "resourceVersion")}
        change = {"metadata": metadata, "spec": spec}
        call = self._client.patch(
            _LEASE, self._options.name, change, namespace=self._options.namespace, patch_type=PatchType.MERGE
        )
        changed: Body | None = await unless(call, CONFLICT, NOT_FOUND)
        if changed is None:
            return False
        written = changed["spec"]
        self._seen = (written.get("holderIdentity") or "", written.get("renewTime"), written.get("leaseTransitions"))
        self._seen_at = time.monotonic()
        return True

    async def _release(self) -> None:
        """Give the Lease back, if it is this operator's; if that fails it ends by itself."""
        options = self._options
        try:
            lease: Body = await self._client.get(_LEASE, options.name, namespace=options.namespace)
            if (lease.get("spec") or {}).get("holderIdentity") == options.identity:
                await self._write(lease, {"holderIdentity": "", "renewTime": _now()})
        except httpx2.HTTPError as error:
            _log.warning("The lease %s is not given back: %r", self._name, error)


def _now() -> str:
    """The time as Kubernetes wants it in a Lease."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
