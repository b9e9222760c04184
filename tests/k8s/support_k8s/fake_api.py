"""An API server in this process, for faults that a real one has too rarely: conflicts, expired watches, throttling, cuts.

It stores objects with resource versions, answers lists, gets, creates, merge patches and deletes, and streams watches. It
knows preconditions and dry runs; it checks no schema, knows no defaults, collects no garbage: the real control plane of `control_plane` does.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Body = dict[str, Any]
Key = tuple[str, str, str]  # plural, namespace, name

_RESOURCES = {
    "v1": [("namespaces", "Namespace"), ("pods", "Pod"), ("services", "Service"), ("events", "Event"), ("persistentvolumeclaims", "PersistentVolumeClaim"), ("configmaps", "ConfigMap")],
    "mindspore.gitee.com/v1": [("msjobs", "MSJob")],
    "apiextensions.k8s.io/v1": [("customresourcedefinitions", "CustomResourceDefinition")],
    "coordination.k8s.io/v1": [("leases", "Lease")],
    "networking.k8s.io/v1": [("networkpolicies", "NetworkPolicy")],
    "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget")],
}  # fmt: skip

_PRECONDITIONS = ("uid", "resourceVersion")
_GLOBAL = ("namespaces", "customresourcedefinitions")


@dataclass
class Faults:
    """What goes wrong. `answers` are status codes given instead of an answer, in turn, by method and plural."""

    answers: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    refuse: Callable[[str, Body], tuple[int, str] | None] = lambda plural, body: None
    watch_seconds: float = 3600.0
    watch_delay: float = 0.0
    expire_watches: bool = False

    def next_answer(self, method: str, plural: str) -> int | None:
        codes = self.answers.get((method, plural))
        return codes.pop(0) if codes else None


class FakeApi:
    """The server; `async with` starts and stops it."""

    def __init__(self) -> None:
        self.objects: dict[Key, Body] = {}
        self.faults = Faults()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.hidden: set[str] = set()
        self.logs: dict[str, list[str]] = {}  # what pods write
        self.url = ""
        self._versions = itertools.count(1)
        self._watchers: list[tuple[str, asyncio.Queue[Body]]] = []
        self._history: list[tuple[str, int, Body]] = []

    async def __aenter__(self) -> FakeApi:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for _, queue in self._watchers:
            queue.put_nowait({})
        await self._runner.cleanup()

    def put(self, plural: str, body: Body) -> Body:
        """Create or replace an object, as somebody else would."""
        metadata = body["metadata"]
        key = (plural, metadata.setdefault("namespace", "default"), metadata["name"])
        kind = "MODIFIED" if key in self.objects else "ADDED"
        metadata["resourceVersion"] = str(next(self._versions))
        metadata.setdefault("uid", f"uid-{metadata['resourceVersion']}")
        self.objects[key] = copy.deepcopy(body)
        self._notify(plural, kind, body)
        return body

    def remove(self, plural: str, name: str, *, silently: bool = False) -> None:
        """Delete an object; silently: no watch reports it."""
        body = self.objects.pop((plural, "default", name))
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        if not silently:
            self._notify(plural, "DELETED", body)

    def get(self, plural: str, name: str) -> Body | None:
        return self.objects.get((plural, "default", name))

    def names(self, plural: str) -> list[str]:
        return sorted(name for kind, _, name in self.objects if kind == plural)

    def hide(self, plural: str) -> None:
        """A definition is deleted, with all of its objects; who watched them is notified."""
        for kind, _, name in list(self.objects):
            if kind == plural:
                self.remove(plural, name)
        self.hidden.add(plural)
        for watched, queue in self._watchers:
            if watched == plural:
                queue.put_nowait({})

    def cut_watches(self) -> None:
        """Every open watch ends, as when a proxy restarts."""
        for _, queue in self._watchers:
            queue.put_nowait({})

    def _notify(self, plural: str, kind: str, body: Body) -> None:
        event = {"type": kind, "object": copy.deepcopy(body)}
        self._history.append((plural, int(body["metadata"]["resourceVersion"]), event))
        for watched, queue in self._watchers:
            if watched == plural:
                queue.put_nowait(event)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if parts in (["api"], ["apis"]) or len(parts) < 3 or (parts[0] == "apis" and len(parts) == 3):
            return self._discover(parts)
        group = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = "default"
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name = rest[0], rest[1] if len(rest) > 1 else ""
        if rest[2:] == ["log"]:
            return await self._log(request, name)
        if plural in self.hidden or plural not in [item for item, _ in _RESOURCES.get(group, [])]:
            return _failure(404, "the server could not find the requested resource")
        self.calls[request.method, plural] += 1
        if "watch" in request.query:
            return await self._watch(request, plural)
        if (code := self.faults.next_answer(request.method, plural)) is not None:
            return _failure(code, "injected")
        return await self._answer(request, (plural, namespace, name))

    async def _answer(self, request: web.Request, key: Key) -> web.Response:
        plural, namespace, name = key
        match request.method:
            case "GET" if not name:
                return self._list(request, plural)
            case "POST":
                body = await request.json()
                metadata = body["metadata"]
                if (refused := self.faults.refuse(plural, body)) is not None:
                    return _failure(*refused)
                if request.query.get("dryRun") == "All":
                    return web.json_response(body, status=201)
                metadata.setdefault("name", f"{metadata.get('generateName', '')}{next(self._versions)}")
                if (plural, namespace, metadata["name"]) in self.objects:
                    return _failure(409, "AlreadyExists")
                metadata["namespace"] = namespace
                return web.json_response(self.put(plural, body), status=201)
        if request.method == "PATCH" and "apply" in request.content_type:
            return web.json_response(self._apply(key, await request.json()))
        if key not in self.objects:
            return _failure(404, "NotFound")
        stored = self.objects[key]
        if request.method == "PATCH":
            patch = await request.json()
            if not _holds({key: patch.get("metadata", {}).pop(key, None) for key in _PRECONDITIONS}, stored):
                return _failure(409, "Conflict")
            return web.json_response(self.put(plural, _merge(stored, patch)))
        if request.method == "DELETE":
            options = await request.json() if request.can_read_body else {}
            if not _holds(options.get("preconditions", {}), stored):
                return _failure(409, "Conflict")
            self.remove(plural, name)
        return web.json_response(stored)

    def _apply(self, key: Key, body: Body) -> Body:
        """Server-side apply, as far as one manager goes: what is there is merged with what is sent."""
        plural, namespace, _ = key
        body["metadata"]["namespace"] = namespace
        return self.put(plural, _merge(self.objects.get(key, {}), body))

    async def _log(self, request: web.Request, pod: str) -> web.StreamResponse:
        """What a pod has written; with `follow` until it is gone or has ended."""
        response = web.StreamResponse()
        await response.prepare(request)
        sent = 0
        while True:
            body = self.get("pods", pod)
            has_ended = body is None or body.get("status", {}).get("phase") in ("Succeeded", "Failed")
            for line in self.logs.get(pod, [])[sent:]:
                await response.write(f"{line}\n".encode())
                sent += 1
            if has_ended or request.query.get("follow") != "true":
                return response
            await asyncio.sleep(0.01)

    def _list(self, request: web.Request, plural: str) -> web.Response:
        expected = dict(item.split("=") for item in request.query.get("labelSelector", "").split(",") if "=" in item)
        items = [
            body for (kind, _, _), body in sorted(self.objects.items())
            if kind == plural and expected.items() <= body["metadata"].get("labels", {}).items()
        ]  # fmt: skip
        version = str(next(self._versions))
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": version}, "items": items})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[Body] = asyncio.Queue()
        since = int(request.query.get("resourceVersion", "0"))
        if self.faults.expire_watches:
            self.faults.expire_watches = False
            error = {
                "type": "ERROR",
                "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"},
            }
            await response.write(json.dumps(error).encode() + b"\n")
            return response
        for kind, version, event in self._history:
            if kind == plural and version > since:
                queue.put_nowait(event)
        self._watchers.append((plural, queue))
        try:
            async with asyncio.timeout(self.faults.watch_seconds):
                while event := await queue.get():
                    await asyncio.sleep(self.faults.watch_delay)
                    await response.write(json.dumps(event).encode() + b"\n")
        except (TimeoutError, ConnectionError):
            pass
        finally:
            with suppress(ValueError):
                self._watchers.remove((plural, queue))
        return response

    def _discover(self, parts: list[str]) -> web.Response:
        groups = [version.split("/") for version in _RESOURCES if "/" in version]
        if parts == ["api"]:
            return web.json_response({"versions": ["v1"]})
        if parts == ["apis"]:
            versions = [{"groupVersion": f"{group}/{version}", "version": version} for group, version in groups]
            listed = [
                {"name": group, "versions": [entry], "preferredVersion": entry}
                for (group, _), entry in zip(groups, versions, strict=True)
            ]
            return web.json_response({"groups": listed})
        version = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
        if version not in _RESOURCES:
            return _failure(404, "no such group")
        verbs = ["create", "delete", "get", "list", "patch", "watch"]
        resources = [
            {
                "name": plural,
                "kind": kind,
                "singularName": kind.lower(),
                "namespaced": "extensions" not in version,
                "verbs": verbs,
            }
            for plural, kind in _RESOURCES[version]
            if plural not in self.hidden
        ]
        return web.json_response({"groupVersion": version, "resources": resources})


def _holds(preconditions: dict[str, str | None], stored: Body) -> bool:
    """Whether an object is the one that a call means."""
    return all(value in (None, stored["metadata"][key]) for key, value in preconditions.items())


def _merge(stored: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = copy.deepcopy(stored) if isinstance(stored, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _failure(code: int, message: str) -> web.Response:
    headers = {"Retry-After": "0"} if code == 429 else None
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return web.json_response(body, status=code, headers=headers)
