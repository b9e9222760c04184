"""Parsing of sizes in bytes."""

from __future__ import annotations

import re
import reprlib
from decimal import Decimal

from sporax.base.errors import SporaxValueError

_MOST = 2**63
"""Bytes that no device has: sizes must stay within int64."""
_LEAST, _LEAST_TEXT = 1 << 8, 1 << 20
"""Numbers below which the unit was forgotten: few bytes are the memory of no device, and texts are written by hand."""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(size: int | str, what: str) -> int:
    """A number of bytes from one, or from a text such as ``"80GB"``.

    Args:
        size: the number or text.
        what: how a message about it starts: ``"For 'plan', 'memory'"``.

    Raises:
        SporaxValueError: it is not a number above 0, or a text with one and a unit, which only large numbers may lack.

    Example:
        >>> parse_bytes("1.5 KB", "For 'x', 'size'")
        1500
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][0-9]{1,2})?)\s*([A-Za-z]*)\s*", str(size))
    unit = _UNITS.get(match.group(2).upper()) if match else None
    if match and not match.group(2) and 0 < float(match.group(1)) < (_LEAST_TEXT if isinstance(size, str) else _LEAST):
        number = match.group(1)
        raise SporaxValueError(f"{what} must have a unit, as in '{number}GB' or '{number}MB', but got {size!r}.")
    # Decimal: 1.1 GB as a float would lose a byte.
    count = int(Decimal(match.group(1)) * unit) if match and unit else 0
    if not 0 < count < _MOST or isinstance(size, bool):
        raise SporaxValueError(
            f"{what} must be a number of bytes above 0 or a text like '80GB' (units {', '.join(filter(None, _UNITS))}), but got "
            f"{reprlib.repr(size)}."
        )
    return count
