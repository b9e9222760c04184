"""The cluster, as a user's commands see it: apply, list, read logs, delete; with the user's own kubeconfig."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from lightkube import ApiError, Client
from lightkube.core.exceptions import ConfigError, LoadResourceError
from lightkube.core.resource import NamespacedResource
from lightkube.core.resource_registry import resource_registry
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import Pod
from lightkube.types import CascadeType, PatchType

from sporax.base.errors import For, SporaxRuntimeError
from sporax.k8s.resource import names

Body = dict[str, Any]
Resource = Any  # a class of lightkube, which has no type for them
_REPLACED = (names.KIND, "ConfigMap")  # kinds that `submit --replace` deletes first
_NOT_FOUND = 404
_POLL_SECONDS = 0.2  # while something is being deleted

_JOB: Resource = create_namespaced_resource(names.GROUP, names.VERSION, names.KIND, names.PLURAL)


class JobClient:
    """Jobs of one cluster."""

    def __init__(self, namespace: str = "") -> None:
        try:
            # The field manager names who has set a field, for server-side apply.
            self._client = Client(namespace=namespace or None, field_manager="sporax")
        except ConfigError as error:
            raise SporaxRuntimeError(
                f"For 'sporax k8s', a cluster must be reachable through KUBECONFIG or ~/.kube/config, but {error}."
            ) from None
        self.namespace = self._client.namespace

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def own_config_maps(self, objects: list[Body], job: Body) -> None:
        """Let a job own the ConfigMaps that were submitted with it, so that they are deleted together."""
        # Read back: the owner's uid exists only in the cluster.
        stored = self.job(job["metadata"]["name"])["metadata"]
        owner = names.reference(stored["name"], stored["uid"])
        for item in objects:
            if item["kind"] == "ConfigMap":
                self.apply({**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}})

    def job(self, name: str) -> Body:
        """One job.

        Raises:
            SporaxValueError: there is none of that name.
        """
        body = self.find_job(name)
        if body is None:
            raise For("sporax k8s").error(f"there is no job '{name}' in namespace '{self.namespace}'")
        return body

    def find_job(self, name: str, namespace: str = "") -> Body | None:
        """One job, by default of the client's namespace; None if there is none."""
        with _explained(f"reading job '{name}'"):
            return self._find(_JOB, name, namespace or self.namespace)

    def jobs(self, everywhere: bool) -> list[Body]:
        """All jobs of the namespace, or of all namespaces."""
        with _explained("listing jobs"):
            return [dict(item) for item in self._client.list(_JOB, namespace="*" if everywhere else self.namespace)]

    def logs(self, pod: str, follow: bool, tail: int | None) -> Iterator[str]:
        """The lines that a pod's training process writes."""
        with _explained(f"reading the log of pod '{pod}'"):
            yield from self._client.log(
                pod, namespace=self.namespace, container=names.CONTAINER, follow=follow, tail_lines=tail
            )

    def pod_bodies(self, job_name: str) -> list[Body]:
        """A job's pods, by name."""
        # The label selector does the work in the API server.
        labels: Body = names.job_selector(job_name)
        with _explained(f"listing pods of job '{job_name}'"):
            listed = self._client.list(Pod, namespace=self.namespace, labels=labels)
            bodies: list[Body] = [pod.to_dict() for pod in listed]
        return sorted(bodies, key=lambda body: str(body["metadata"]["name"]))

    def started_pod(self, name: str) -> str:
        """The uid of a pod whose containers have started, so that it has a log; "" if there is none."""
        with _explained(f"reading pod '{name}'"):
            body = self._find(Pod, name, self.namespace)
        is_waiting = body is None or (body.get("status") or {}).get("phase") in (None, "Pending")
        return "" if body is None or is_waiting else str(body["metadata"]["uid"])

    def delete(self, name: str) -> None:
        """Delete a job and all it owns."""
        # A clear message for a job that is not there.
        self.job(name)
        with _explained(f"deleting job '{name}'"):
            self._client.delete(_JOB, name, namespace=self.namespace, cascade=CascadeType.BACKGROUND)

    def remove(self, objects: list[Body], seconds: float = 120.0) -> None:
        """Delete jobs, and what was submitted with them in ConfigMaps, and wait until they and the jobs' pods are gone.

        Raises:
            SporaxRuntimeError: something is still there after so many seconds.
        """
        wanted = [(item, _resource(item["apiVersion"], item["kind"])) for item in objects if item["kind"] in _REPLACED]
        for item, resource in wanted:
            with _explained(f"deleting {item['kind']} '{item['metadata']['name']}'"):
                try:
                    # In the foreground: the job is there until its pods are gone.
                    self._client.delete(
                        resource, item["metadata"]["name"], namespace=self._place(item), cascade=CascadeType.FOREGROUND
                    )
                except httpx2.HTTPStatusError as error:
                    if error.response.status_code != _NOT_FOUND:
                        raise
        end = time.monotonic() + seconds
        for item, resource in wanted:
            name = item["metadata"]["name"]
            with _explained(f"reading {item['kind']} '{name}'"):
                while self._find(resource, name, self._place(item)) is not None:
                    if time.monotonic() > end:
                        raise SporaxRuntimeError(
                            f"For 'sporax k8s', {item['kind']} '{name}' must be gone {seconds:g} s after its deletion, but is "
                            f"not; `sporax k8s status {name}` shows its pods."
                        )
                    time.sleep(_POLL_SECONDS)

    def _find(self, resource: Resource, name: str, namespace: str | None) -> Body | None:
        """An object; None if there is none."""
        try:
            found = self._client.get(resource, name, namespace=namespace)
        except httpx2.HTTPStatusError as error:  # ApiError is one, for answers in JSON
            if error.response.status_code == _NOT_FOUND:
                return None
            raise
        return dict(found) if isinstance(found, dict) else dict(found.to_dict())

    def _place(self, body: Body) -> str | None:
        """The namespace of an object."""
        namespace: str | None = body["metadata"].get("namespace") or self.namespace
        return namespace

    def apply(self, body: Body) -> str:
        """Create or update one object, by server-side apply; gives a line for it."""
        name = body["metadata"]["name"]
        with _explained(f"applying {body['kind']} '{name}'"):
            resource = _resource(body["apiVersion"], body["kind"])
            # Cluster-wide objects, such as a namespace, have no namespace themselves.
            place: Body = {"namespace": self._place(body)} if issubclass(resource, NamespacedResource) else {}
            # Fields that another tool has set are taken over.
            self._client.patch(resource, name, body, patch_type=PatchType.APPLY, force=True, **place)
        return f"{body['kind'].lower()}/{name} applied"


def _resource(version: str, kind: str) -> Resource:
    """lightkube's class for a kind: our own, or one of Kubernetes itself."""
    return _JOB if (version, kind) == (names.API_VERSION, names.KIND) else resource_registry.load(version, kind)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns what an API server refuses into one clear error."""
    try:
        yield
    except ApiError as error:  # the first of two, since it is an HTTPError
        message = error.status.message or str(error)
    except (httpx2.HTTPError, LoadResourceError) as error:
        message = str(error) or repr(error)
    else:
        return
    raise SporaxRuntimeError(f"For 'sporax k8s', {what} must succeed, but the cluster says: {message}.") from None
