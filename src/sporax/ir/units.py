"""Sizes as people write them."""

from __future__ import annotations

import re

from sporax.ir.errors import SporaxValueError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(size: int | str, what: str) -> int:
    """A number of bytes from one, or from a text such as ``"80GB"``.

    Args:
        size: the number or text.
        what: how a message about it starts: ``"For 'plan', 'memory'"``.

    Raises:
        SporaxValueError: the text is not a number with a unit.

    Example:
        >>> parse_bytes("1.5 KB", "For 'x', 'size'")
        1500
    """
    if isinstance(size, int):
        return size
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", size)
    if found is None or found.group(2).upper() not in _UNITS:
        raise SporaxValueError(f"{what} must be a number of bytes or a text like '80GB', but got {size!r}.")
    return int(float(found.group(1)) * _UNITS[found.group(2).upper()])
