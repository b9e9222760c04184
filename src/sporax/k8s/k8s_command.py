"""`sporax k8s`: submit, status, logs, delete for users; manifests, operator for those who run the cluster."""

from __future__ import annotations

import argparse
import asyncio
import functools
import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from sporax.base.errors import For, SporaxImportError, SporaxValueError

# The extra's packages are missing: a clear message in place of a traceback.
try:
    from sporax.k8s import operator, submitted_job, view
    from sporax.k8s.api import manifests
    from sporax.k8s.api.packages import packages
    from sporax.k8s.api.user_client import JobClient
    from sporax.k8s.leader import LeaseOptions
    from sporax.k8s.progress_calls import ProgressClient
    from sporax.k8s.resource import names, submission
    from sporax.k8s.resource.job_status import SUCCEEDED
    from sporax.k8s.resource.spec import PodRole
    from sporax.k8s.scheduler_calls import ParameterServerMembership
except ModuleNotFoundError as error:
    raise SporaxImportError(
        f"For 'sporax k8s', the package '{error.name}' must be installed: pip install 'sporax[k8s]'."
    ) from error


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LEAST = {"replicas": 1}
_MOST = {"replicas": 9, "index": 2**31 - 1, "tail": 2**31 - 1, "metrics_port": 65535, "liveness_port": 65535}
"""The least and the largest number of each flag that takes one; without a least one it is 0."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their flags."""
    parsers = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_submit(parsers.add_parser("submit", help="run a job file, or a script as a job"))
    status = parsers.add_parser("status", help="show jobs, or one job with its conditions and pods")
    status.add_argument("name", nargs="?", help="the job; without it all jobs")
    status.add_argument("-A", "--all_namespaces", action="store_true", help="jobs of all namespaces")
    logs = parsers.add_parser("logs", help="print what a job's process writes")
    logs.add_argument("name", help="the job")
    logs.add_argument("--role", default="worker", choices=[role.value.lower() for role in PodRole], help="whose log")
    logs.add_argument("--index", type=int, default=0, help="which of the role's pods (default 0)")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as more is written")
    logs.add_argument("--tail", type=int, default=None, help="only the last lines, this many")
    delete = parsers.add_parser("delete", help="delete a job with all it owns")
    delete.add_argument("name", help="the job")
    for command in (status, logs, delete):
        _add_namespace(command)
    written = parsers.add_parser("manifests", help="write the CRD, the operator's rights and its deployment")
    written.add_argument("--output", default="deploy", help="the folder to write to (default deploy)")
    written.add_argument("--image", default=manifests.IMAGE, help="the operator's image")
    written.add_argument(
        "--no-expressions",
        dest="expressions",
        action="store_false",
        help="leave out the rules across fields, which the API server checks from Kubernetes 1.25 on",
    )
    written.add_argument("--replicas", type=int, default=1, help="operators, of which one works (default 1)")
    written.add_argument(
        "--namespaces", nargs="*", default=[], help="the operator may see and serves these only (default: all)"
    )
    written.add_argument("--packages", action="store_true", help="write a Helm chart and kustomizations, too")
    serve = parsers.add_parser("operator", help="run the operator (what its container does)")
    serve.add_argument("--namespaces", nargs="*", default=[], help="serve these only (default: all)")
    serve.add_argument(
        "--lease", default="", help="of several operators only the holder of this Lease works (NAMESPACE/NAME)"
    )
    serve.add_argument("--metrics_port", type=int, default=manifests.METRICS_PORT, help="for Prometheus; 0: none")
    serve.add_argument("--liveness_port", type=int, default=manifests.LIVENESS_PORT, help="for the kubelet; 0: none")
    serve.add_argument("--verbose", action="store_true", help="log every notice")


def run(arguments: argparse.Namespace) -> int:
    """Do what the sub-command says; returns the exit code.

    Raises:
        SporaxError: a flag with a value that it cannot have or that has no effect, or what the cluster refuses.
    """
    if arguments.action == "submit":
        _take_later_flags(arguments)
    _check(arguments)
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "submit": _submit,
        "status": _status,
        "logs": _logs,
        "delete": _delete,
        "manifests": _manifests,
        "operator": _operator,
    }
    return actions[arguments.action](arguments)


def _check(arguments: argparse.Namespace) -> None:
    """Flags that are wrong or have no effect, before a cluster is queried."""
    values, command = vars(arguments), f"For 'sporax k8s {arguments.action}',"
    namespaces = [values["namespace"]] if values.get("namespace") else values.get("namespaces", [])
    for namespace in namespaces:
        if not _NAMESPACE.fullmatch(namespace):
            raise SporaxValueError(
                f"{command} a namespace must consist of lower-case letters, digits and '-', but got '{namespace}'."
            )
    for name, most in _MOST.items():
        number = values.get(name)
        least = _LEAST.get(name, 0)
        if number is not None and not least <= number <= most:
            raise SporaxValueError(f"{command} --{name} must be from {least} to {most}, but got {number}.")
    _check_together(arguments, command)


def _check_together(arguments: argparse.Namespace, command: str) -> None:
    """Flags that exclude each other."""
    values = vars(arguments)
    if values.get("all_namespaces") and (values["name"] or values["namespace"]):
        raise SporaxValueError(f"{command} --all_namespaces has no effect with a job or a --namespace.")
    if values.get("dry_run") and values["output"]:
        raise SporaxValueError(
            f"{command} --dry-run prints the YAML and --output writes it to a file: give one of them."
        )
    if arguments.action == "submit" and (values["dry_run"] or values["output"]):
        for flag in ("replace", "follow"):
            if values[flag]:
                raise SporaxValueError(
                    f"{command} --{flag} has no effect with --dry-run or --output, which send nothing."
                )
    if values.get("metrics_port") and values["metrics_port"] == values["liveness_port"]:
        raise SporaxValueError(
            f"{command} --metrics_port and --liveness_port must differ, but both are {values['metrics_port']}."
        )
    if arguments.action == "manifests":
        _check_manifests(arguments, command)


def _check_manifests(arguments: argparse.Namespace, command: str) -> None:
    """Flags of `manifests`."""
    if not arguments.image:
        raise SporaxValueError(f"{command} --image must name the operator's image.")
    differs = arguments.replicas != 1 or arguments.namespaces or not arguments.expressions
    if arguments.packages and (differs or arguments.image != manifests.IMAGE):
        raise SporaxValueError(
            f"{command} --packages excludes --image, --replicas, --namespaces and --no-expressions: who installs the packages "
            "chooses these."
        )


def _write(path: Path, text: str, flag: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SporaxValueError(
            f"For 'sporax k8s', {flag} must be writable, but '{path}' is not: {error.strerror}."
        ) from None


def _add_submit(parser: argparse.ArgumentParser) -> None:
    """The flags of `submit`, which may also come after the script."""
    _add_submit_flags(parser)
    parser.add_argument("target", help="a job file (.yaml, .json) or a training script")
    parser.add_argument(
        "target_arguments",
        nargs=argparse.REMAINDER,
        help="what the script takes: all that is no flag of this command, and all after --",
    )


def _add_submit_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="", help="the job's name (default: the script's)")
    parser.add_argument("--workers", type=int, default=None, help="number of workers of a script's job (default 1)")
    parser.add_argument("--servers", type=int, default=None, help="number of parameter servers (default 0)")
    parser.add_argument("--image", default="", help="image with Sporax installed, for a script's job")
    parser.add_argument(
        "--replace", action="store_true", help="delete a job of this name with its pods and logs first, if there is one"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="print what worker 0 writes until the job ends; 1 if it fails"
    )
    parser.add_argument("--dry-run", dest="dry_run", action="store_true", help="print the YAML, send nothing")
    parser.add_argument("--output", default="", help="write the YAML to this file, send nothing")
    _add_namespace(parser)


def _take_later_flags(arguments: argparse.Namespace) -> None:
    """Take the flags of `submit` that come after the script, up to `--`; the others are the script's."""
    later = arguments.target_arguments
    end = later.index("--") if "--" in later else len(later)
    parser = argparse.ArgumentParser("sporax k8s submit", add_help=False, allow_abbrev=False)
    _add_submit_flags(parser)
    # Without defaults, which would replace flags before the script.
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    flags, of_script = parser.parse_known_args(later[:end])
    vars(arguments).update(vars(flags))
    arguments.target_arguments = [*of_script, *later[end + 1 :]]


def _add_namespace(parser: argparse.ArgumentParser) -> None:
    """Where the job is."""
    parser.add_argument("-n", "--namespace", default="", help="the namespace (default: the kubeconfig's)")


def _submit(arguments: argparse.Namespace) -> int:
    """Apply, print or write a job."""
    objects = _objects(arguments)
    if arguments.dry_run or arguments.output:
        text = submission.as_yaml(objects)
        if arguments.output:
            _write(Path(arguments.output), text, "--output")
        else:
            print(text, end="")
        return 0
    client = JobClient(arguments.namespace)
    # A script is sent in a ConfigMap, which the job must own to be deleted with it.
    owns = not submission.is_job_file(arguments.target)
    for line in submitted_job.send(client, objects, replace=arguments.replace, owns_config_maps=owns):
        print(line, flush=True)
    return _follow(arguments, objects) if arguments.follow else 0


def _follow(arguments: argparse.Namespace, objects: list[names.Manifest]) -> int:
    """Print what worker 0 of the last job writes, until the job ends."""
    metadata = [item["metadata"] for item in objects if item["kind"] == names.KIND][-1]
    client = JobClient(metadata.get("namespace") or arguments.namespace)
    job = submitted_job.SubmittedJob(client, metadata["name"])
    state = job.follow(on_line=functools.partial(print, flush=True))
    print(f"msjob/{job.name} {state}: {job.look().message}")
    return 0 if state == SUCCEEDED else 1


def _objects(arguments: argparse.Namespace) -> list[names.Manifest]:
    """What is to be applied."""
    if submission.is_job_file(arguments.target):
        flags = {"--name": arguments.name, "--workers": arguments.workers, "--servers": arguments.servers}
        flags |= {"--image": arguments.image, "arguments": arguments.target_arguments}
        for flag, value in flags.items():
            # A flag without effect would be ignored silently.
            For("sporax k8s submit").refuse(
                value not in (None, "", []), f"{flag} belongs to a script's job, but '{arguments.target}' is a job file"
            )
        return submission.read_job_file(arguments.target, arguments.namespace)
    if not arguments.image:
        raise For("sporax k8s submit").error(f"--image must name an image with Sporax to run '{arguments.target}' in")
    options = submission.ScriptOptions(
        image=arguments.image,
        name=arguments.name,
        namespace=arguments.namespace,
        workers=1 if arguments.workers is None else arguments.workers,
        servers=arguments.servers or 0,
        arguments=tuple(arguments.target_arguments),
    )
    return submission.job_of_script(arguments.target, options)


def _status(arguments: argparse.Namespace) -> int:
    """Show jobs."""
    client, now = JobClient(arguments.namespace), datetime.now(UTC)
    # Without a terminal lines are as long as tables need.
    console = Console(width=None if sys.stdout.isatty() else 160)
    if arguments.name:
        console.print(view.job_page(client.job(arguments.name), now, client.pod_bodies(arguments.name)))
        return 0
    jobs = client.jobs(arguments.all_namespaces)
    if jobs:
        console.print(view.job_table(jobs, now, with_namespace=arguments.all_namespaces))
    else:
        place = "any namespace" if arguments.all_namespaces else f"namespace '{client.namespace}'"
        print(f"No jobs in {place}.")
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    """Print a log."""
    client = JobClient(arguments.namespace)
    # An unknown job gets its own message before an unknown pod does.
    client.job(arguments.name)
    pod = f"{arguments.name}-{arguments.role}-{arguments.index}"
    pods = [body["metadata"]["name"] for body in client.pod_bodies(arguments.name)]
    if pod not in pods:
        raise For("sporax k8s logs").error(f"the job must have pod '{pod}', but it has {', '.join(pods) or 'none'}")
    for line in client.logs(pod, arguments.follow, arguments.tail):
        # A log's lines may come with their ends already.
        print(line, end="" if line.endswith("\n") else "\n", flush=arguments.follow)
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    """Delete a job."""
    client = JobClient(arguments.namespace)
    roles = client.job(arguments.name)["spec"]["msReplicaSpecs"]
    with_volumes = any((part or {}).get("persistentVolumeClaimTemplate") for part in roles.values())
    client.delete(arguments.name)
    print(f"msjob/{arguments.name} deleted")
    if with_volumes:
        print("The volumes of its servers, with the logs that state is restored from, are deleted with it.")
    return 0


def _manifests(arguments: argparse.Namespace) -> int:
    """Write what is installed in a cluster."""
    folder = Path(arguments.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SporaxValueError(
            f"For 'sporax k8s manifests', --output must be a folder, but got '{folder}': {error.strerror}."
        ) from None
    written = manifests.files(
        arguments.image,
        with_expressions=arguments.expressions,
        replicas=arguments.replicas,
        namespaces=arguments.namespaces,
    )
    for name, text in (written | (packages() if arguments.packages else {})).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _write(folder / name, text, "--output")
        print(f"written: {folder / name}")
    return 0


def _lease(text: str) -> LeaseOptions | None:
    """The Lease of a flag; None where it is not set."""
    if not text:
        return None
    namespace, _, name = text.partition("/")
    if not _NAMESPACE.fullmatch(namespace) or not _NAMESPACE.fullmatch(name):
        raise SporaxValueError(f"For 'sporax k8s operator', --lease must be NAMESPACE/NAME, but got '{text}'.")
    return LeaseOptions(namespace, name)


def _operator(arguments: argparse.Namespace) -> int:
    """Run the operator until SIGTERM or SIGINT."""
    logging.basicConfig(
        level=logging.DEBUG if arguments.verbose else logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    # They report every request and every notice.
    if not arguments.verbose:
        for noisy in ("httpx2", "kopf.objects"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
    options = operator.OperatorOptions(
        namespaces=tuple(arguments.namespaces),
        metrics_port=arguments.metrics_port or None,
        liveness_port=arguments.liveness_port or None,
        lease=_lease(arguments.lease),
    )
    asyncio.run(operator.serve(options, membership=ParameterServerMembership(), progress=ProgressClient()))
    return 0
