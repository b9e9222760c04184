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
POD = "Pod"
SHARED = ("Service", "PodDisruptionBudget", "NetworkPolicy")  # kinds of what a job's pods share


class JobKey(NamedTuple):
    """A job's place."""

    namespace: str
    name: str


class CachedVersion(NamedTuple):
    """An object at a version; None where it was deleted at that version."""

    version: int
    value: Any


class JobCache:
    """Jobs as the API server holds them, what decisions need of their pods, and what these share, as it is."""

    def __init__(self) -> None:
        # By job, then by kind and name.
        self._objects: dict[JobKey, dict[tuple[str, str], CachedVersion]] = {}
        # The version of the last full list: an unknown object that is older was deleted before it.
        self._complete_since = 0

    def job(self, key: JobKey) -> Body | None:
        """A job; None if there is none."""
        entry = self._objects.get(key, {}).get((names.KIND, key.name))
        return None if entry is None else entry.value

    def pods(self, key: JobKey) -> list[Pod]:
        """Every pod with a job's label."""
        return self._there(key, POD)

    def shared(self, key: JobKey) -> list[Body]:
        """Services, budgets and network policies with a job's label, as they are."""
        return [body for kind in SHARED for body in self._there(key, kind)]

    def put(self, kind: str, body: Content) -> None:
        """Enter an object of a kind that was seen or written."""
        if kind == POD:
            self._enter(kind, body, read_pod(body))
        else:
            # The field is long, and nothing reads it.
            metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
            self._enter(kind, body, {**body, "kind": kind, "metadata": metadata})

    def remove(self, kind: str, body: Content) -> None:
        """An object was deleted, and was this then."""
        # A deletion has a version, too, so a notice of an earlier change cannot revive the object.
        self._enter(kind, body, None)
        self._drop_if_empty(key_of(kind, body))

    def miss_job(self, key: JobKey) -> None:
        """A requested job is not there."""
        place = names.KIND, key.name
        if (entry := self._objects.get(key, {}).get(place)) is not None:
            # It was deleted later than it was seen.
            self._objects[key][place] = CachedVersion(entry.version + 1, None)
            self._drop_if_empty(key)

    def replace(self, jobs: Iterable[Body], pods: Iterable[Body], version: int) -> set[JobKey]:
        """Compare with everything there was at a version; returns the jobs to look at: all of them, and those gone."""
        keys = set(self._objects)
        listed = [*((names.KIND, body) for body in jobs), *((POD, body) for body in pods)]
        present = {(key_of(kind, body), kind, body["metadata"]["name"]) for kind, body in listed}
        for key, entries in list(self._objects.items()):
            # Objects that were written after the list was made may be missing in it, and what pods share is not listed.
            for place in [place for place, entry in entries.items() if entry.version <= version]:
                if place[0] not in SHARED and (key, *place) not in present:
                    del entries[place]
            if not entries:
                # Looked at last: an empty table of a job without pods would stay for ever.
                del self._objects[key]
        for kind, body in listed:
            self.put(kind, body)
        self._complete_since = max(self._complete_since, version)
        return keys | set(self._objects)

    def _there(self, key: JobKey, kind: str) -> list[Any]:
        """A job's objects of a kind."""
        entries = self._objects.get(key, {})
        return [entry.value for place, entry in entries.items() if place[0] == kind and entry.value is not None]

    def _enter(self, kind: str, body: Content, value: Any) -> None:
        """Enter an object unless something newer is known."""
        version = int(body["metadata"]["resourceVersion"])
        entries, place = self._objects.setdefault(key_of(kind, body), {}), (kind, body["metadata"]["name"])
        # An unknown object is news only if it is newer than the last full list.
        entry = entries.get(place)
        if version > self._complete_since if entry is None else version >= entry.version:
            entries[place] = CachedVersion(version, value)

    def _drop_if_empty(self, key: JobKey) -> None:
        """Keep nothing but the version of a job once it and all that it had are gone."""
        if all(entry.value is None for entry in self._objects[key].values()):
            self._objects[key] = {place: item for place, item in self._objects[key].items() if place[0] == names.KIND}


def key_of(kind: str, body: Content) -> JobKey:
    """The place of a job, or of the one that an object of another kind belongs to."""
    metadata = body["metadata"]
    name = metadata["name"] if kind == names.KIND else metadata["labels"][names.LABEL_JOB]
    return JobKey(str(metadata["namespace"]), name)
