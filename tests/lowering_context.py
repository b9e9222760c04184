"""One MLIR context for many programs of a test session.

Problem: JAX makes an MLIR context for every program that it lowers and loads all dialects into it, which takes longer than lowering
a program of one operator. Method: a thread takes the context of its last program again, and another one after `PROGRAMS`, since a
context holds every type and attribute that it has seen. What is lowered is the same. There is no setting for this, so a function of
JAX's is replaced; a JAX that has no such function makes its contexts as before.
"""

import threading
from importlib import import_module
from types import SimpleNamespace

PROGRAMS = 500
"""How many programs share a context."""


def share_contexts() -> None:
    """Let all programs that this process lowers share contexts."""
    mlir = import_module("jax._src.interpreters.mlir")
    make = getattr(mlir, "make_ir_context", None)
    if make is None:
        return
    local = threading.local()

    def shared() -> object:
        held = getattr(local, "held", None)
        if held is None or held.left == 0:
            held = local.held = SimpleNamespace(context=make(), left=PROGRAMS)
        held.left -= 1
        return held.context

    mlir.make_ir_context = shared
