"""``MS_COMM_COMPILER_OPT``: whether repeated blocks of a step become one body, and how much may be reused."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from sporax.ir.errors import SporaxValueError
from sporax.ir.variables import read

VARIABLE = "MS_COMM_COMPILER_OPT"
SETTING = "SPORAX_REPEATED_BLOCKS"
"""Our own switch: "1" without a limit, "0" never."""

DEFAULT_LIMIT = 1000
"""What ``-1`` stands for, as in MindSpore."""


def reuse_limit(environ: Mapping[str, str]) -> int | None:
    """How many operators may be reused; None for any number, 0 for none. As MindSpore reads the variable.

    Raises:
        SporaxValueError: the text is no number.
    """
    text = environ.get(VARIABLE)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise SporaxValueError(
            f"For '{VARIABLE}', the value must be -1 or a positive number of operators, but got '{text}'."
        ) from None
    if number == -1:
        return DEFAULT_LIMIT
    # As MindSpore: a warning, and no reuse.
    if number <= 0:
        warnings.warn(f"For '{VARIABLE}', {number} is neither -1 nor positive: nothing is reused.", stacklevel=2)
        return 0
    return number


def wants_loops(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for repeated blocks as loops."""
    asked = read(environ, SETTING)
    if asked == "0":
        return False
    return asked == "1" or (VARIABLE in environ and reuse_limit(environ) != 0)
