"""A fake cluster with an operator at work, in this process."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from sporax.k8s.metrics import Metrics
from sporax.k8s.operator import OperatorOptions, serve
from sporax.k8s.resource.job_status import read_status

from .fake_api import FakeApi


def point_at(api: Any, folder: Path, monkeypatch: Any) -> None:
    """Let clients of this process find an API server."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
    }  # fmt: skip
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))


@asynccontextmanager
async def cluster(folder: Path, monkeypatch: Any) -> AsyncIterator[tuple[FakeApi, Playground]]:
    """A fake cluster with a kubelet, in which a test starts operators."""
    async with FakeApi() as api:
        point_at(api, folder, monkeypatch)
        playground = Playground(api)
        kubelet = asyncio.create_task(playground.play_kubelet())
        try:
            yield api, playground
        finally:
            kubelet.cancel()


class Playground:
    """A fake cluster with an operator at work, and a kubelet that lets every pod run."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.metrics = Metrics()

    async def until(self, holds: Callable[[], Any], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"did not come true: {self.api.objects}"
            await asyncio.sleep(0.02)

    def status(self, name: str = "job"):
        body = self.api.get("msjobs", name)
        return read_status(body.get("status") if body else None)

    def is_in(self, state: str, name: str = "job") -> Callable[[], bool]:
        return lambda: self.status(name).is_true(state)

    async def play_kubelet(self) -> None:
        while True:
            for name in self.api.names("pods"):
                body = self.api.get("pods", name)
                if body is not None and "status" not in body:
                    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
                    self.api.put("pods", body | {"status": {"phase": "Running", "podIP": "127.0.0.1", **ready}})
            await asyncio.sleep(0.02)

    def end(self, pod: str, code: int) -> None:
        body = self.api.get("pods", pod)
        details = {"image": "i", "imageID": "i", "ready": False}
        state = {"name": "mindspore", "restartCount": 0, "state": {"terminated": {"exitCode": code}}, **details}
        phase = "Failed" if code else "Succeeded"
        self.api.put("pods", body | {"status": {"phase": phase, "containerStatuses": [state]}})


class OperatorProcess:
    """An operator in a loop of its own: where it ends, kopf ends all tasks of its loop, the API server's as well."""

    def __init__(self, options: OperatorOptions, **arguments: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._serving: asyncio.Task[None] | None = self._loop.create_task(serve(options, **arguments))
        self._thread = threading.Thread(target=self._run, args=(self._serving,), daemon=True)
        self._thread.start()

    def _run(self, serving: asyncio.Task[None]) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(serving)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def kill(self) -> None:
        """End it; it gives nothing back."""
        if self._serving is None:
            return
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._serving.cancel)
        await asyncio.to_thread(self._thread.join)
        self._serving = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who is killed closes no connection and awaits nothing
            gc.collect()
