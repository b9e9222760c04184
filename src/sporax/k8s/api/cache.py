"""What the API server last said of jobs and their pods, found by job.

Problem: to list one job's pods, an API server walks over all pods of the namespace, so a look at one of 200 jobs would cost
200 times as much as a look at the only one. Method: the cache with an index of controllers in Go (client-go's informers).
Watches and the answers to the operator's own writes both enter it; for each name the newest resource version wins, so late
and doubled notices do no harm and the operator sees what it has written itself. What a watch lost is found by comparing with
a full list now and then (`replace`).

Resource versions are compared as integers, which all API servers give (stated by Kubernetes since KEP-5504).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sporax.k8s.decide.observed import Pod, read_pod
from sporax.k8s.resource import names

Body = dict[str, Any]
Content = Mapping[str, Any]  # a body that is only read


class JobKey(NamedTuple):
    """A job's place."""

    namespace: str
    name: str


class CachedVersion(NamedTuple):
    """An object at a version; None where it was deleted at that version."""

    version: int
    value: Any


class JobCache:
    """Jobs as the API server holds them, and for each what decisions need of its pods."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, CachedVersion] = {}
        self._pods: dict[JobKey, dict[str, CachedVersion]] = {}
        self._shared: dict[JobKey, dict[str, CachedVersion]] = {}  # by kind and name
        # The version of the last full list: an unknown object that is older was deleted before it.
        self._complete_since = 0

    def job(self, key: JobKey) -> Body | None:
        """A job; None if there is none."""
        entry = self._jobs.get(key)
        return None if entry is None else entry.value

    def pods(self, key: JobKey) -> list[Pod]:
        """Every pod with a job's label."""
        return [entry.value for entry in self._pods.get(key, {}).values() if entry.value is not None]

    def put_job(self, body: Content) -> None:
        """Enter a job that was seen or written."""
        # The field is long, and nothing reads it.
        metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
        self._enter(self._jobs, key_of_job(body), _version(body), {**body, "metadata": metadata})

    def put_pod(self, body: Content) -> None:
        """Enter a pod that was seen or written."""
        pods = self._pods.setdefault(key_of_pod(body), {})
        self._enter(pods, body["metadata"]["name"], _version(body), read_pod(body))

    def shared(self, key: JobKey) -> list[Body]:
        """Services, budgets and network policies with a job's label, as they are."""
        return [entry.value for entry in self._shared.get(key, {}).values() if entry.value is not None]

    def put_shared(self, kind: str, body: Content) -> None:
        """Enter what a job's pods share, when it was seen or written."""
        entries = self._shared.setdefault(key_of_pod(body), {})
        self._enter(entries, f"{kind}/{body['metadata']['name']}", _version(body), {**body, "kind": kind})

    def remove_shared(self, kind: str, body: Content) -> None:
        """Something that a job's pods share was deleted."""
        key = key_of_pod(body)
        self._enter(self._shared.setdefault(key, {}), f"{kind}/{body['metadata']['name']}", _version(body), None)
        if self.job(key) is None and not self.shared(key):
            self._shared.pop(key, None)

    def remove_job(self, body: Content) -> None:
        """A job was deleted, and was this then."""
        # A deletion has a version, too, so a notice of an earlier change cannot revive the object.
        self._enter(self._jobs, key_of_job(body), _version(body), None)
        self._drop_if_empty(key_of_job(body))

    def remove_pod(self, body: Content) -> None:
        """A pod was deleted, and was this then."""
        key = key_of_pod(body)
        self._enter(self._pods.setdefault(key, {}), body["metadata"]["name"], _version(body), None)
        self._drop_if_empty(key)

    def miss_job(self, key: JobKey) -> None:
        """A job was asked for and is not there."""
        if (entry := self._jobs.get(key)) is not None:
            # It was deleted later than it was seen.
            self._jobs[key] = CachedVersion(entry.version + 1, None)
            self._drop_if_empty(key)

    def replace(self, jobs: Iterable[Body], pods: Iterable[Body], version: int) -> set[JobKey]:
        """Compare with everything there was at a version; returns the jobs to look at: all of them, and those gone."""
        keys = set(self._jobs) | set(self._pods)
        listed_jobs, listed_pods = list(jobs), list(pods)
        present = {(key_of_job(body), "") for body in listed_jobs}
        present |= {(key_of_pod(body), body["metadata"]["name"]) for body in listed_pods}
        # Objects that were written after the list was made may be missing in it.
        for key in [key for key, entry in self._jobs.items() if entry.version <= version and (key, "") not in present]:
            del self._jobs[key]
        for key, entries in list(self._pods.items()):
            for name in [n for n, entry in entries.items() if entry.version <= version and (key, n) not in present]:
                del entries[name]
            if not entries:
                # Looked at last: an empty table of a job without pods would stay for ever.
                del self._pods[key]
        for body in listed_jobs:
            self.put_job(body)
        for body in listed_pods:
            self.put_pod(body)
        self._complete_since = max(self._complete_since, version)
        return keys | set(self._jobs) | set(self._pods)

    def _enter(self, entries: dict[Any, CachedVersion], key: Any, version: int, value: Any) -> None:
        """Enter an object unless something newer is known."""
        entry = entries.get(key)
        # An unknown object is news only if it is newer than the last full list.
        is_news = version > self._complete_since if entry is None else version >= entry.version
        if is_news:
            entries[key] = CachedVersion(version, value)

    def _drop_if_empty(self, key: JobKey) -> None:
        """Keep nothing of pods once a job and all of them are gone."""
        if self.job(key) is None and not self.pods(key):
            self._pods.pop(key, None)


def key_of_job(body: Content) -> JobKey:
    """A job's place."""
    return JobKey(str(body["metadata"]["namespace"]), body["metadata"]["name"])


def key_of_pod(body: Content) -> JobKey:
    """The place of the job that a pod belongs to."""
    metadata = body["metadata"]
    return JobKey(str(metadata["namespace"]), metadata["labels"][names.LABEL_JOB])


def _version(body: Content) -> int:
    """Which edition of an object this is."""
    return int(body["metadata"]["resourceVersion"])
