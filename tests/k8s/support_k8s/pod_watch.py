"""All pods of a cluster, kept up to date by a watch in a thread of its own: a kubelet must not burden the API server."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx2

Body = dict[str, Any]


class PodWatch:
    """`bodies` gives what is known now, by uid; `changed` is set when that changes."""

    def __init__(self, client: httpx2.Client) -> None:
        self.changed = threading.Event()
        self._client = client
        self._bodies: dict[str, Body] = {}
        self._lock = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True

    def bodies(self) -> dict[str, Body]:
        with self._lock:
            return dict(self._bodies)

    def _serve(self) -> None:
        while not self._stopping:
            try:
                self._watch(self._list())
            except (httpx2.HTTPError, ValueError, KeyError, RuntimeError):
                time.sleep(0.1)  # the API server is away, or the client was closed

    def _list(self) -> str:
        answer = self._client.get("/api/v1/pods")
        answer.raise_for_status()
        content = answer.json()
        with self._lock:
            self._bodies = {body["metadata"]["uid"]: body for body in content["items"]}
        self.changed.set()
        return str(content["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> None:
        options = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "60"}
        with self._client.stream("GET", "/api/v1/pods", params=options, timeout=70) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR" or self._stopping:
                    return
                body = event["object"]
                with self._lock:
                    if event["type"] == "DELETED":
                        self._bodies.pop(body["metadata"]["uid"], None)
                    else:
                        self._bodies[body["metadata"]["uid"]] = body
                self.changed.set()
