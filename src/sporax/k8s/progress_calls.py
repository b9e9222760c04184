"""What worker 0 of a job says of its progress, queried by HTTP.

A job is queried every ten seconds. One that does not answer, since it does not train yet or its image has no Sporax, is queried
again after a second, then twice as long each time up to a minute, so that others cost next to nothing.
"""

from __future__ import annotations

import time
from datetime import datetime

import httpx2
import msgspec
from msgspec import structs

from sporax.k8s.api.cache import JobKey
from sporax.k8s.resource import names
from sporax.k8s.resource.job_status import Progress

_PATH = "/progress"
_PAUSE_SECONDS, _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 10.0, 1.0, 60.0
_ANSWER_SECONDS = 0.5  # a process that is up answers in milliseconds; others must not hold up the job
_MOST_BYTES = 4096  # of an answer: an image of somebody else may send anything
_MOST_CHARACTERS = 32
_MOST_STEPS = 2**53  # larger numbers are not exact in JSON


class ProgressClient:
    """Queries how far jobs are.

    Args:
        port: of worker 0.
        pause_seconds: between two questions to a job that answers.
    """

    def __init__(self, port: int = names.PROGRESS_PORT, pause_seconds: float = _PAUSE_SECONDS) -> None:
        self._port = port
        self._pause = pause_seconds
        self._due: dict[JobKey, tuple[float, float]] = {}  # when to query next, and how long the wait was
        self._last: dict[JobKey, Progress] = {}  # a status that says nothing else new is written later

    def seconds_left(self, key: JobKey) -> float:
        """Time until the next question."""
        return max(0.0, self._due.get(key, (0.0, 0.0))[0] - time.monotonic())

    def forget(self, key: JobKey) -> None:
        """A job is gone."""
        self._due.pop(key, None)
        self._last.pop(key, None)

    async def read(self, key: JobKey, address: str, now: datetime) -> Progress | None:
        """What worker 0 has said last, queried again where it is time; None where it did not answer."""
        due, waited = self._due.get(key, (0.0, 0.0))
        if time.monotonic() < due:
            return self._last.get(key)
        progress = await self._query(address)
        wait = min(max(2 * waited, _FIRST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS) if progress is None else 0.0
        self._due[key] = (time.monotonic() + (wait or self._pause), wait)
        # Before the first step there is nothing to say.
        if progress is None or not progress.step:
            self._last.pop(key, None)
            return None
        self._last[key] = structs.replace(progress, time=now)
        return self._last[key]

    async def _query(self, address: str) -> Progress | None:
        host = f"[{address}]" if ":" in address else address
        try:
            async with (
                # The cluster's own proxies are for others, and certificates, which take 40 ms to load, for HTTPS.
                httpx2.AsyncClient(timeout=_ANSWER_SECONDS, trust_env=False, verify=False) as client,
                client.stream("GET", f"http://{host}:{self._port}{_PATH}") as answer,
            ):
                content = b""
                async for part in answer.aiter_bytes():
                    content += part
                    if len(content) > _MOST_BYTES:
                        return None
            progress = msgspec.json.decode(content, type=Progress)
        except (httpx2.HTTPError, msgspec.DecodeError):
            return None
        is_short = max(len(progress.loss), len(progress.samples_per_second)) <= _MOST_CHARACTERS
        is_count = all(0 <= number <= _MOST_STEPS for number in (progress.step, progress.epoch))
        return progress if is_short and is_count else None
