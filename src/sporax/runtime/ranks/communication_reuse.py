"""Reuse of communication in what is compiled, as ``MS_COMM_COMPILER_OPT`` asks for it (`lowering.passes.reused_collectives`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jax

from sporax.ir.config.reuse_limit import VARIABLE, reuse_limit
from sporax.lowering import passes
from sporax.runtime.process.dry_run_report import say

if TYPE_CHECKING:
    from sporax.lowering.passes.reused_collectives import Reuse


def reusing(program: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A program of one device, inside of `shard_map`, whose equal collectives are calls, where the environment asks for it.

    Args:
        program: of one device's arrays.
        name: what reports call it.
    """
    limit = reuse_limit(os.environ)
    return passes.with_reuse(program, limit, partial(_tell, name, limit)) if limit else program


def _tell(name: str, limit: int, reuse: Reuse) -> None:
    # A program may be traced again, for its text or its memory.
    if jax.process_index() == 0:
        _say_once(_words(name, limit, reuse))


@cache
def _say_once(text: str) -> None:
    say(text)


def _words(name: str, limit: int, reuse: Reuse) -> str:
    if not reuse.calls:
        some = (
            f"no two of its communication operators ({reuse.operators}) are equal"
            if reuse.operators
            else "it has no communication operators"
        )
        return f"'{name}' reuses no communication ({VARIABLE}): {some}"
    return (
        f"'{name}' reuses communication ({VARIABLE}, at most {limit}): {reuse.calls} of {reuse.operators} operators are calls "
        f"now; subgraphs {reuse.subgraphs}, operators left {reuse.left}"
    )
