"""One plan for all processes, which outlives them: rank 0 searches, or reads what an earlier run has found, and sends it on.

Problem 1: a search that runs out of time may end anywhere, so processes that search by themselves may end with different plans.
Method (`agreed_plan`): rank 0 sends its whole result, or its error, as bytes through broadcasts: the only channel that all ranks
surely have. The library below would take ranks for stuck that wait inside of one broadcast for as long as a search may last. So
rank 0 searches in a thread, and notifies others every second that it is still busy. Broadcasts are those of the job's ranks; in
a job of plain JAX, which has joined none, they are JAX's own over all devices.

Problem 2: a search takes seconds, and a second run of a script needs the plan of the first.
Method (`stored_or_made`): a file for each request, next to the compiled programs, named by the key of all that the plan depends
on (`planner.request_text`), versions included. It has the plan as text behind a line with the key and a checksum, and appears in
one step. A plan that was checked with a compiler depends on the version of JAX, too. A file that is damaged, or not ours, is
ignored, and one line says so.
"""

from __future__ import annotations

import contextlib
import hashlib
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from pathlib import Path

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax.experimental import multihost_utils

from sporax.base import errors
from sporax.base.atomic_file import atomic_write
from sporax.planner import Measure, PlanRequest, PlanResult, make_plan, received, remembered, request_key
from sporax.runtime import world
from sporax.runtime.process import dry_run
from sporax.runtime.process.compilation_cache import plans_directory
from sporax.runtime.process.dry_run import say, say_once
from sporax.runtime.ranks import collectives, groups
from sporax.runtime.session import SESSION

_FORMAT = "sporax plan 1"
_MOST_FILES = 500
"""Of a folder; a plan of a network of 10,000 operators has some 10 MB. The oldest go."""


class _Head(msgspec.Struct, frozen=True):
    """First line of a file.

    Attributes:
        format: of the file.
        key: of the request.
        sha256: of the rest.
    """

    format: str
    key: str
    sha256: str


def stored_or_made(request: PlanRequest, measure: Measure | None = None) -> PlanResult:
    """The plan of a step, of an earlier run where one is stored.

    Args:
        measure: compiles a plan for `make_plan`.

    Raises:
        SporaxError: as `make_plan`.
    """
    path = _path(request, "" if measure is None else f"-jax-{jax.__version__}")
    if path is None:
        return make_plan(request, measure)
    found = _stored(path, request)
    if found is None:
        found = make_plan(request, measure)
        _store(path, found)
    return found


def _path(request: PlanRequest, suffix: str) -> Path | None:
    """Where the plan is stored; None for plans that are not."""
    # Who only looks at plans looks at searches, too.
    if not request.is_searched or SESSION.plan_only or SESSION.plans_all or dry_run.active():
        return None
    folder = plans_directory()
    key = None if folder is None else request_key(request)
    return None if folder is None or key is None else folder / f"{key}{suffix}.plan"


def _stored(path: Path, request: PlanRequest) -> PlanResult | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        say(f"the stored plan {path} cannot be read ({error.strerror}); searching again")
        return None
    line, _, body = content.partition(b"\n")
    try:
        head = msgspec.json.decode(line, type=_Head)
        expected = _Head(_FORMAT, path.stem, hashlib.sha256(body).hexdigest())
        found = remembered(request, body.decode()) if head == expected else None
    except (ValueError, TypeError, KeyError):  # msgspec's errors are ValueErrors
        found = None
    if found is None:
        say(f"the stored plan {path} is damaged or not ours; searching again")
        return None
    with contextlib.suppress(OSError):
        path.touch()  # the plans that are used longest ago go first
    say_once(f"a plan of an earlier run is reused ({path.parent}; `sporax run --no_cache` searches again)")
    return found


def _store(path: Path, found: PlanResult) -> None:
    body = found.to_json().encode()
    head = msgspec.json.encode(_Head(_FORMAT, path.stem, hashlib.sha256(body).hexdigest()))
    # A folder that cannot be written to: everything works without.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(head + b"\n" + body)
        _remove_oldest(path.parent)


def _remove_oldest(folder: Path) -> None:
    """Keep the newest plans; another process may remove them at the same time."""
    files = list(folder.glob("*.plan"))
    if len(files) <= _MOST_FILES:
        return
    times = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            times[path] = path.stat().st_mtime_ns
    for path in sorted(times, key=times.__getitem__)[:-_MOST_FILES]:
        path.unlink(missing_ok=True)


_BEAT_SECONDS = 1.0
"""When to notify the others that rank 0 is still searching: libraries of collectives wait for half a minute and more."""


class _Answer(msgspec.Struct, frozen=True):
    """What rank 0 sends: a result, or the class and the text of an error."""

    result: str = ""
    error: str = ""
    text: str = ""


def agreed_plan(request: PlanRequest, measure: Measure | None = None) -> PlanResult:
    """The plan of a step, the same in all processes. All of them must call this.

    Args:
        measure: compiles a plan for `make_plan`, in a job of one process: compiling a program of several may need all of them.

    Raises:
        SporaxError: as `make_plan`, in every process.
    """
    if jax.process_count() == 1:
        return stored_or_made(request, measure)
    # Without a search all processes come to the same plan by themselves.
    if not request.is_searched:
        return make_plan(request)
    if jax.process_index() > 0:
        return _read(request, _received())
    with ThreadPoolExecutor(1, "plan") as pool:
        found = pool.submit(copy_context().run, stored_or_made, request)
        text = _sent(found)
    # Its own error with its own traceback; and its own plan after the same way through text as in the others.
    return (
        received(request, msgspec.json.decode(text, type=_Answer).result)
        if found.exception() is None
        else found.result()
    )


def _read(request: PlanRequest, text: bytes) -> PlanResult:
    answer = msgspec.json.decode(text, type=_Answer)
    if answer.error:
        raise getattr(errors, answer.error, errors.SporaxRuntimeError)(answer.text)
    return received(request, answer.result)


def answer_of(found: Future[PlanResult]) -> bytes:
    """What the others receive of a finished search."""
    error = found.exception()
    answer = _Answer(found.result().to_json()) if error is None else _Answer("", type(error).__name__, str(error))
    return msgspec.json.encode(answer)


def _sent(found: Future[PlanResult]) -> bytes:
    """Send the others the answer once it is there, and until then that there is none."""
    while not wait([found], _BEAT_SECONDS).done:
        _broadcast(np.zeros(1, np.int64))
    text = answer_of(found)
    # A program has one shape on all ranks, so all must know the length first.
    _broadcast(np.array([len(text)]))
    _broadcast(np.frombuffer(text, np.uint8))
    return text


def _received() -> bytes:
    while not (size := int(_broadcast(np.zeros(1, np.int64))[0])):
        pass
    return _broadcast(np.zeros(size, np.uint8)).tobytes()


def _broadcast(array: np.ndarray) -> np.ndarray:
    if not world.has_other_processes():
        return np.asarray(multihost_utils.broadcast_one_to_all(array))
    (everywhere,) = collectives.run(collectives.Broadcast(groups.find(None)), jnp.asarray(array))
    return np.asarray(everywhere)
