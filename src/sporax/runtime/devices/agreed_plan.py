"""One plan for all processes: rank 0 searches, and the others receive what it has found.

Problem: a search that runs out of time may end anywhere, so processes that search by themselves may end with different plans.

Method: rank 0 sends its whole result, or its error, as bytes through broadcasts: the only channel that all ranks surely have. The
library below would take ranks for stuck that wait inside of one broadcast for as long as a search may last. So rank 0 searches in
a thread, and tells the others every second that it is still busy. Broadcasts are those of the job's ranks; in a job of plain JAX,
which has joined none, they are JAX's own over all devices.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax.experimental import multihost_utils

from sporax.base import errors
from sporax.planner import Measure, PlanRequest, PlanResult, make_plan, received
from sporax.runtime import world
from sporax.runtime.devices.stored_plans import stored_or_made
from sporax.runtime.ranks import collectives, groups

_BEAT_SECONDS = 1.0
"""After how long the others hear that rank 0 is still searching: libraries of collectives wait for half a minute and more."""


class _Answer(msgspec.Struct, frozen=True):
    """What rank 0 sends: a result, or the class and the text of an error."""

    result: str = ""
    error: str = ""
    text: str = ""


def agreed_plan(request: PlanRequest, measure: Measure | None = None) -> PlanResult:
    """The plan of a step, the same in all processes. All of them must ask.

    Args:
        request: what is asked for.
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
    """What the others are told of a finished search."""
    error = found.exception()
    answer = _Answer(found.result().to_json()) if error is None else _Answer("", type(error).__name__, str(error))
    return msgspec.json.encode(answer)


def _sent(found: Future[PlanResult]) -> bytes:
    """Tell the others the answer once it is there, and until then that there is none."""
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
