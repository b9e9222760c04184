"""What `sporax k8s submit` sends: a job file as it is, or the job that a training script becomes.

A script needs no image of its own: it is sent in a ConfigMap and is mounted into every pod, so any image with Sporax
installed runs it. All roles run the same script; `init` finds out which one a process is.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from msgspec import Struct

from sporax.base.errors import For, SporaxValueError
from sporax.k8s.resource import names
from sporax.k8s.resource.names import Manifest
from sporax.k8s.resource.spec import PodRole, read_job

# What is no job file is taken for a script.
_JOB_FILES = {".yaml", ".yml", ".json"}
_SCRIPT_FOLDER = "/opt/sporax/script"
_CONFIG_MAP_BYTES = 1 << 20  # Kubernetes' own limit


class ScriptOptions(Struct, frozen=True):
    """How a script becomes a job."""

    image: str
    name: str = ""
    namespace: str = ""
    workers: int = 1
    servers: int = 0
    arguments: tuple[str, ...] = ()


def is_job_file(target: str) -> bool:
    """Whether a target is a job file, and not a script."""
    return Path(target).suffix in _JOB_FILES


_NAMESPACED = (names.KIND, "ConfigMap", "Secret", "Service", "ServiceAccount", "PersistentVolumeClaim")
"""Kinds of job files that are in a namespace, as far as is known without querying a cluster."""


def read_job_file(path: str, namespace: str = "") -> list[Manifest]:
    """The objects of a job file, all jobs among them checked.

    Args:
        path: of the file.
        namespace: for objects that name none; "" leaves them without.

    Raises:
        SporaxValueError: the file cannot be read, holds no job, a job that cannot run, or another namespace.
    """
    try:
        objects = [item for item in yaml.safe_load_all(Path(path).read_text(encoding="utf-8")) if item is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SporaxValueError(
            f"For 'sporax k8s submit', '{path}' must be a readable YAML file, but {error}."
        ) from None
    if not any(isinstance(item, dict) and item.get("kind") == names.KIND for item in objects):
        raise SporaxValueError(f"For 'sporax k8s submit', '{path}' must hold a job of kind {names.KIND}, but has none.")
    # Other kinds, such as ConfigMaps, are the user's own.
    for item in objects:
        if item.get("kind") == names.KIND:
            _check(item, path)
        if namespace:
            _place(item, path, namespace)
    return objects


def _place(item: Manifest, path: str, namespace: str) -> None:
    """Give an object the namespace of the command line."""
    metadata = item.get("metadata") or {}
    own = metadata.get("namespace")
    if own not in (None, "", namespace):
        raise SporaxValueError(
            f"For 'sporax k8s submit', '{path}' names the namespace '{own}' itself, so --namespace '{namespace}' has no effect."
        )
    if item.get("kind") in _NAMESPACED:
        metadata["namespace"] = namespace


def job_of_script(script: str, options: ScriptOptions) -> list[Manifest]:
    """The job that runs a script, and the ConfigMap that carries it.

    Raises:
        SporaxValueError: the script is not there or too long, or numbers and names make no job.
    """
    path = Path(script)
    For("sporax k8s submit").refuse(not path.is_file(), f"the script must be a file, but got '{script}'")
    text = path.read_text(encoding="utf-8")
    if len(text.encode()) > _CONFIG_MAP_BYTES:
        raise SporaxValueError(
            f"For 'sporax k8s submit', a script must be shorter than {_CONFIG_MAP_BYTES} bytes, but '{script}' has "
            f"{len(text.encode())}. Put it into the image and write a job file."
        )
    # Kubernetes allows fewer characters in names than file systems do.
    name = options.name or re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "job"
    metadata: Manifest = {"name": name} | ({"namespace": options.namespace} if options.namespace else {})
    counts = {PodRole.SCHEDULER: 1, PodRole.SERVER: options.servers, PodRole.WORKER: options.workers}
    # One worker alone has no others to find.
    if options.workers == 1 and not options.servers:
        del counts[PodRole.SCHEDULER]
    roles = {role.value: _replica_spec(path, name, count, options) for role, count in counts.items() if count}
    spec = {"successPolicy": "AllWorkers", "msReplicaSpecs": roles}
    job = names.manifest(names.API_VERSION, names.KIND, metadata, spec=spec)
    # Here the user sees the message at once, and not in the job's status.
    _check(job, script)
    return [names.manifest("v1", "ConfigMap", dict(metadata), data={path.name: text}), job]


def as_yaml(objects: list[Manifest]) -> str:
    """Objects as one YAML file."""
    return str(yaml.safe_dump_all(objects, sort_keys=False, width=120))


def _replica_spec(script: Path, config_map: str, count: int, options: ScriptOptions) -> Manifest:
    """The pods of one role."""
    container = {
        "name": names.CONTAINER,
        "image": options.image,
        # `sporax run` answers the script's `import mindspore`.
        "command": ["sporax", "run", f"{_SCRIPT_FOLDER}/{script.name}", *options.arguments],
        "volumeMounts": [{"name": "script", "mountPath": _SCRIPT_FOLDER, "readOnly": True}],
    }
    volumes = [{"name": "script", "configMap": {"name": config_map}}]
    return {"replicas": count, "template": {"spec": {"containers": [container], "volumes": volumes}}}


def _check(job: Manifest, origin: str) -> None:
    """Refuse here what the operator would refuse later."""
    if not isinstance(job.get("metadata"), dict) or not job["metadata"].get("name"):
        raise SporaxValueError(f"For 'sporax k8s submit', the job in '{origin}' must have metadata.name.")
    try:
        read_job(job)
    except SporaxValueError as error:
        raise SporaxValueError(f"For 'sporax k8s submit', the job in '{origin}' cannot run: {error}.") from None
