"""`sporax k8s`: submit, status, logs, delete for users; manifests, operator for those who run the cluster."""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from sporax.base.errors import SporaxImportError, SporaxValueError

# The extra's packages are missing: a clear message in place of a traceback.
try:
    from sporax.k8s import operator, view
    from sporax.k8s.api import manifests
    from sporax.k8s.api.user_client import JobClient
    from sporax.k8s.resource import names, submission
    from sporax.k8s.resource.job_status import Status, read_status
    from sporax.k8s.resource.spec import PodRole
    from sporax.k8s.scheduler_calls import ParameterServerMembership
except ModuleNotFoundError as error:
    raise SporaxImportError(
        f"For 'sporax k8s', the package '{error.name}' must be installed: pip install 'sporax[k8s]'."
    ) from error


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MOST = {"index": 2**31 - 1, "tail": 2**31 - 1, "metrics_port": 65535, "liveness_port": 65535}
"""The largest number of each flag that takes one; the least is 0."""


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
        "--expressions",
        action="store_true",
        help="let the API server check rules across fields (Kubernetes 1.25 and up)",
    )
    serve = parsers.add_parser("operator", help="run the operator (what its container does)")
    serve.add_argument("--namespaces", nargs="*", default=[], help="serve these only (default: all)")
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
    """Flags that are wrong or have no effect, before a cluster is asked."""
    values, command = vars(arguments), f"For 'sporax k8s {arguments.action}',"
    namespaces = [values["namespace"]] if values.get("namespace") else values.get("namespaces", [])
    for namespace in namespaces:
        if not _NAMESPACE.fullmatch(namespace):
            raise SporaxValueError(
                f"{command} a namespace must consist of lower-case letters, digits and '-', but got '{namespace}'."
            )
    for name, most in _MOST.items():
        number = values.get(name)
        if number is not None and not 0 <= number <= most:
            raise SporaxValueError(f"{command} --{name} must be from 0 to {most}, but got {number}.")
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
    if values.get("replace") and (values["dry_run"] or values["output"]):
        raise SporaxValueError(f"{command} --replace has no effect with --dry-run or --output, which send nothing.")
    if values.get("metrics_port") and values["metrics_port"] == values["liveness_port"]:
        raise SporaxValueError(
            f"{command} --metrics_port and --liveness_port must differ, but both are {values['metrics_port']}."
        )
    if arguments.action == "manifests" and not arguments.image:
        raise SporaxValueError(f"{command} --image must name the operator's image.")


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
    if arguments.replace:
        client.remove(objects)
    for item in objects:
        if item["kind"] == names.KIND:
            _check_not_ended(client, item)
    for line in client.apply(objects):
        print(line)
    # A script is sent in a ConfigMap, which the job must own to be deleted with it.
    if not submission.is_job_file(arguments.target):
        client.own_config_maps(objects, objects[-1])
    return 0


def _check_not_ended(client: JobClient, job: submission.Manifest) -> None:
    """Refuse what would have no effect: a job that has ended does not run again, whatever is changed in it."""
    name = job["metadata"]["name"]
    stored = client.find_job(name, job["metadata"].get("namespace", ""))
    status = read_status(stored.get("status")) if stored is not None else Status()
    if status.is_finished:
        raise SporaxValueError(
            f"For 'sporax k8s submit', job '{name}' is there and has ended ({view.job_state(status)}), so it does not run again: "
            "with --replace it is deleted, with its pods and their logs, and submitted as a new one; or choose another --name."
        )


def _objects(arguments: argparse.Namespace) -> list[submission.Manifest]:
    """What is to be applied."""
    if submission.is_job_file(arguments.target):
        flags = {"--name": arguments.name, "--workers": arguments.workers, "--servers": arguments.servers}
        flags |= {"--image": arguments.image, "arguments": arguments.target_arguments}
        for flag, value in flags.items():
            # A flag without effect would be ignored silently.
            if value not in (None, "", []):
                raise SporaxValueError(
                    f"For 'sporax k8s submit', {flag} belongs to a script's job, but '{arguments.target}' is a job file."
                )
        return submission.read_job_file(arguments.target, arguments.namespace)
    if not arguments.image:
        raise SporaxValueError(
            f"For 'sporax k8s submit', --image must name an image with Sporax to run '{arguments.target}' in."
        )
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
    pod, pods = f"{arguments.name}-{arguments.role}-{arguments.index}", client.pods(arguments.name)
    if pod not in pods:
        raise SporaxValueError(
            f"For 'sporax k8s logs', the job must have pod '{pod}', but it has {', '.join(pods) or 'none'}."
        )
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
    for name, text in manifests.files(arguments.image, with_expressions=arguments.expressions).items():
        _write(folder / name, text, "--output")
        print(f"written: {folder / name}")
    return 0


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
    )
    asyncio.run(operator.serve(options, membership=ParameterServerMembership()))
    return 0
