"""The cluster, as a user's commands see it: apply, list, read logs, delete; with the user's own kubeconfig."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
from lightkube import ApiError, Client
from lightkube.core.exceptions import ConfigError, LoadResourceError
from lightkube.core.resource import NamespacedResource
from lightkube.core.resource_registry import resource_registry
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import Pod
from lightkube.types import CascadeType, PatchType

from sporax.base.errors import SporaxRuntimeError, SporaxValueError
from sporax.k8s.resource import names

Body = dict[str, Any]

_JOB: Any = create_namespaced_resource(names.GROUP, names.VERSION, names.KIND, names.PLURAL)


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

    def apply(self, objects: list[Body]) -> list[str]:
        """Create or update objects; returns a line for each."""
        return [self._apply(item) for item in objects]

    def own_config_maps(self, objects: list[Body], job: Body) -> None:
        """Let a job own the ConfigMaps that were submitted with it, so that they are deleted together."""
        # Read back: the owner's uid exists only in the cluster.
        stored = self.job(job["metadata"]["name"])
        owner = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": stored["metadata"]["name"],
            "uid": stored["metadata"]["uid"],
        }
        for item in objects:
            if item["kind"] == "ConfigMap":
                self._apply({**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}})

    def job(self, name: str) -> Body:
        """One job.

        Raises:
            SporaxValueError: there is none of that name.
        """
        with _explained(f"reading job '{name}'"):
            try:
                return dict(self._client.get(_JOB, name, namespace=self.namespace))
            except ApiError as error:
                if error.status.code == 404:
                    raise SporaxValueError(
                        f"For 'sporax k8s', there is no job '{name}' in namespace '{self.namespace}'."
                    ) from None
                raise

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

    def pods(self, job_name: str) -> list[str]:
        """Names of a job's pods."""
        # The label selector does the work in the API server.
        labels: Any = names.job_selector(job_name)
        with _explained(f"listing pods of job '{job_name}'"):
            listed = self._client.list(Pod, namespace=self.namespace, labels=labels)
            return sorted(str(pod.metadata.name) for pod in listed if pod.metadata is not None)

    def delete(self, name: str) -> None:
        """Delete a job and all it owns."""
        # A clear message for a job that is not there.
        self.job(name)
        with _explained(f"deleting job '{name}'"):
            self._client.delete(_JOB, name, namespace=self.namespace, cascade=CascadeType.BACKGROUND)

    def _apply(self, body: Body) -> str:
        """Create or update one object, by server-side apply."""
        name = body["metadata"]["name"]
        with _explained(f"applying {body['kind']} '{name}'"):
            resource = _resource(body["apiVersion"], body["kind"])
            namespace = body["metadata"].get("namespace") or self.namespace
            # Cluster-wide objects, such as a namespace, have no namespace themselves.
            place = {"namespace": namespace} if issubclass(resource, NamespacedResource) else {}
            # Fields that another tool has set are taken over.
            self._client.patch(resource, name, body, patch_type=PatchType.APPLY, force=True, **place)
        return f"{body['kind'].lower()}/{name} applied"


def _resource(version: str, kind: str) -> Any:
    """lightkube's class for a kind: our own, or one of Kubernetes itself."""
    return _JOB if (version, kind) == (names.API_VERSION, names.KIND) else resource_registry.load(version, kind)


class _explained:  # noqa: N801  # reads as a phrase where it is used
    """Turns what an API server refuses into one clear error."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Translate the error, if it is one of the cluster's."""
        if isinstance(error, ApiError):
            message = error.status.message or str(error)
        elif isinstance(error, (httpx2.HTTPError, LoadResourceError)):
            message = str(error) or repr(error)
        else:
            return
        raise SporaxRuntimeError(
            f"For 'sporax k8s', {self._what} must succeed, but the cluster says: {message}."
        ) from None
