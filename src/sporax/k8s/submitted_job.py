"""`sporax.k8s.submit`: a script becomes a job on a cluster, which the caller can follow.

`sporax k8s submit` sends objects by the same functions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.k8s.api.user_client import JobClient
from sporax.k8s.resource import names, submission
from sporax.k8s.resource.job_status import Progress, Status, read_status
from sporax.k8s.resource.spec import PodRole
from sporax.k8s.view import job_state

_POLL_SECONDS = 0.5
_LAST_WORDS_SECONDS = 10.0  # for lines of a log that are on their way when the job ends


def submit(
    script: str,
    *,
    image: str,
    workers: int = 1,
    servers: int = 0,
    name: str = "",
    namespace: str = "",
    arguments: Sequence[str] = (),
    replace: bool = False,
) -> SubmittedJob:
    """Run a training script as a job, as `sporax k8s submit` does.

    Args:
        script: path of the script; it is sent to the cluster.
        image: image with Sporax installed.
        workers: number of workers.
        servers: number of parameter servers.
        name: of the job; by default the script's.
        namespace: by default the kubeconfig's.
        arguments: what the script takes.
        replace: delete a job of this name first, with its pods and their logs.

    Raises:
        SporaxValueError: script, numbers and names make no job, or a job of this name has ended.
        SporaxRuntimeError: the cluster refuses it or does not answer.

    Example:
        >>> job = sporax.k8s.submit("train.py", image="registry/sporax:1", workers=4)
        >>> job.follow(on_line=print)
        'Succeeded'
    """
    options = submission.ScriptOptions(
        image=image, name=name, namespace=namespace, workers=workers, servers=servers, arguments=tuple(arguments)
    )
    For("submit").refuse(not image, "'image' must name an image with Sporax, but is empty")
    objects = submission.job_of_script(script, options)
    client = JobClient(namespace)
    try:
        send(client, objects, replace=replace, owns_config_maps=True)
    except BaseException:
        client.close()
        raise
    return SubmittedJob(client, objects[-1]["metadata"]["name"])


def send(client: JobClient, objects: list[names.Manifest], *, replace: bool, owns_config_maps: bool) -> list[str]:
    """Create or update the objects of a job; gives a line for each.

    Args:
        client: of the user.
        objects: jobs, and what belongs to them; of a script's job the job stands last.
        replace: delete jobs of these names first.
        owns_config_maps: let the last job own the ConfigMaps, so that they are deleted with it.

    Raises:
        SporaxValueError: a job of such a name has ended.
    """
    if replace:
        client.remove(objects)
    for item in objects:
        if item["kind"] == names.KIND:
            _check_not_ended(client, item)
    lines = [client.apply(item) for item in objects]
    if owns_config_maps:
        client.own_config_maps(objects, objects[-1])
    return lines


def _check_not_ended(client: JobClient, job: names.Manifest) -> None:
    """Refuse what would have no effect: a job that has ended does not run again, whatever is changed in it."""
    name = job["metadata"]["name"]
    stored = client.find_job(name, job["metadata"].get("namespace", ""))
    status = read_status(stored.get("status")) if stored is not None else Status()
    if status.is_finished:
        raise SporaxValueError(
            f"For 'sporax k8s submit', job '{name}' is there and has ended ({job_state(status)}), so it does not run again: "
            "with --replace it is deleted, with its pods and their logs, and submitted as a new one; or choose another --name."
        )


class JobSnapshot(Struct, frozen=True, kw_only=True):
    """A job as it was at a moment.

    Attributes:
        state: Pending, Created, Running, Restarting, Suspended, Succeeded or Failed.
        message: why, for people.
        progress: how far it is, as rank 0 said last; None before.
        restarts: pods and containers that were started again.
        is_finished: whether it has succeeded or failed.
    """

    state: str
    message: str
    progress: Progress | None
    restarts: int
    is_finished: bool


class SubmittedJob:
    """A job on a cluster.

    Args:
        client: of the user.
        name: of the job, in the client's namespace.
    """

    def __init__(self, client: JobClient, name: str) -> None:
        self._client = client
        self.name = name

    def look(self) -> JobSnapshot:
        """The job now.

        Raises:
            SporaxValueError: it is gone.
        """
        status = read_status(self._client.job(self.name).get("status"))
        state = job_state(status)
        condition = status.condition(state)
        return JobSnapshot(
            state=state,
            message=condition.message if condition is not None else "",
            progress=status.progress,
            restarts=status.restarts,
            is_finished=status.is_finished,
        )

    def follow(
        self,
        *,
        on_line: Callable[[str], Any] | None = None,
        on_progress: Callable[[Progress], Any] | None = None,
        seconds: float | None = None,
    ) -> str:
        """Wait until the job has ended; gives its state, Succeeded or Failed.

        Args:
            on_line: called, in a thread of its own, with each line that worker 0 writes, also after it was replaced.
            on_progress: called with each progress that rank 0 has reported.
            seconds: the longest time to wait; None waits for ever.

        Raises:
            SporaxRuntimeError: the time is over.
            SporaxValueError: the job was deleted meanwhile.
        """
        end = None if seconds is None else time.monotonic() + seconds
        is_over = threading.Event()
        log = threading.Thread(target=self._read_log, args=(on_line, is_over), daemon=True)
        if on_line is not None:
            log.start()
        last: Progress | None = None
        try:
            while not (now := self.look()).is_finished:
                last = _passed_on(now, last, on_progress)
                if end is not None and time.monotonic() > end:
                    raise SporaxRuntimeError(
                        f"For 'follow', job '{self.name}' must end within {seconds:g} s, but it is {now.state}: {now.message}"
                    )
                time.sleep(_POLL_SECONDS)
            _passed_on(now, last, on_progress)
        finally:
            is_over.set()
        if on_line is not None:
            log.join(_LAST_WORDS_SECONDS)
        return now.state

    def close(self) -> None:
        """Close the connections to the cluster; the job goes on."""
        self._client.close()

    def delete(self) -> None:
        """Delete the job with its pods and their logs."""
        self._client.delete(self.name)

    def _read_log(self, on_line: Callable[[str], Any], is_over: threading.Event) -> None:
        """Read what worker 0 writes, one incarnation after another, until the job is over."""
        pod, read = names.pod_name(self.name, PodRole.WORKER.value, 0), ""
        while True:
            # Once more after the end: the last incarnation may have been short.
            was_over = is_over.is_set()
            uid = self._client.started_pod(pod)
            if uid and uid != read:
                read = uid
                try:
                    for line in self._client.logs(pod, True, None):
                        on_line(line.rstrip("\n"))
                except SporaxRuntimeError:
                    continue  # it was deleted meanwhile
            elif was_over:
                return
            else:
                is_over.wait(_POLL_SECONDS)


def _passed_on(
    now: JobSnapshot, last: Progress | None, on_progress: Callable[[Progress], Any] | None
) -> Progress | None:
    """Pass on a progress that is new."""
    if on_progress is not None and now.progress is not None and now.progress != last:
        on_progress(now.progress)
    return now.progress
