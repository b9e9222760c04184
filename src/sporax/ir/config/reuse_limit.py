"""What the environment says about reuse: of communication (``MS_COMM_COMPILER_OPT``), and of whole blocks (our own switch)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from sporax.ir.variables import read

VARIABLE = "MS_COMM_COMPILER_OPT"
SETTING = "SPORAX_REPEATED_BLOCKS"
"""Whether repeated blocks of a step become one body in a loop."""

DEFAULT_LIMIT = 1000
"""What ``-1`` stands for, as in MindSpore."""

_FEWEST = 2
"""Calls that make a subgraph worth its name."""


def reuse_limit(environ: Mapping[str, str]) -> int:
    """How many communication operators of a program may become calls of a subgraph; 0 for none.

    Raises:
        SporaxValueError: the text is no number.
    """
    number = read(environ, VARIABLE)
    if number is None:
        return 0
    if number == -1:
        return DEFAULT_LIMIT
    return number if number >= _FEWEST else 0


def warn_of_limit(environ: Mapping[str, str]) -> None:
    """Warn of a number of communication operators by which nothing is reused. MindSpore warns as well, but of 1.

    Raises:
        SporaxValueError: as `reuse_limit`.
    """
    number = read(environ, VARIABLE)
    if number is None or number == -1 or number >= _FEWEST:
        return
    reason = "is neither -1 nor positive" if number != 1 else "is too few, since a subgraph has 2 calls or more"
    warnings.warn(f"For '{VARIABLE}', {number} {reason}: nothing is reused.", stacklevel=2)


def wants_loops(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for repeated blocks as loops."""
    return bool(read(environ, SETTING) == "1")
