"""Plans that outlive the process: what a search has found is stored next to the compiled programs.

Problem: a search takes seconds, and a second run of a script asks for the plan of the first.
Method: a file for each request, named by the key of all that the plan depends on (`planner.request_text`), version included. It
has the plan as text behind a line with the key and a checksum, and appears in one step. A plan that a compiler was asked about
depends on the version of JAX, too. A file that is damaged, or not ours, is ignored, and one line says so. The process that
searches for all others (`agreed_plan`) reads and writes.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from pathlib import Path

import jax
import msgspec

from sporax.base.atomic_file import atomic_write
from sporax.planner import Measure, PlanRequest, PlanResult, make_plan, remembered, request_key
from sporax.runtime.process import dry_run
from sporax.runtime.process.compilation_cache import plans_directory
from sporax.runtime.process.dry_run_report import say
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
        request: what is asked for.
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
    _say_once(f"a plan of an earlier run is reused ({path.parent}; `sporax run --no_cache` searches again)")
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


@cache
def _say_once(text: str) -> None:
    say(text)
