"""Tensors that outlive the derivative in which they were made.

Problem: eager code keeps what it computes, in a global name, an attribute (``self.saved = y``) or a list. Inside of
``value_and_grad`` such a Tensor holds a tracer, which JAX forbids to be used once the derivative has ended; in MindSpore it has
its value. Method: while an eager derivative runs its function, every Tensor that is made around a tracer is noted by a weak
reference; at the end of the function, inside of the trace, those that are still alive get their values. What has no value
there (the members of a `vmap`, rows of ranks) stays a tracer, and its use is an error that says so.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from sporax.runtime.ranks import local_ranks
from sporax.runtime.state import frames

MADE: dict[int, list[weakref.ref[Any]]] = {}
"""Tensors around tracers, by the thread whose outermost eager derivative runs; empty where none does."""


def note(tensor: Any) -> None:
    """Note a Tensor that was made around a tracer."""
    made = MADE.get(threading.get_ident())
    if made is not None:
        made.append(weakref.ref(tensor))


@contextmanager
def valued() -> Iterator[None]:
    """Context of a function that an eager derivative runs: Tensors that stay alive have their values at its end."""
    thread = threading.get_ident()
    # An outer derivative goes through what an inner one has made; ranks hold rows in a form of their own.
    if thread in MADE or frames.compiling() or local_ranks.is_inside():
        yield
        return
    MADE[thread] = []
    try:
        yield
    finally:
        for reference in MADE.pop(thread):
            tensor = reference()
            if tensor is not None and isinstance(tensor.raw, jax.core.Tracer):
                _give_value(tensor)


def _give_value(tensor: Any) -> None:
    try:
        # Without a tangent the tracer is the value itself.
        value = jax.lax.stop_gradient(tensor.raw)
    except jax.errors.JAXTypeError:
        return  # a tracer of a part that has ended already
    if not isinstance(value, jax.core.Tracer):
        tensor.raw = value
