"""Hashes of row ids: which slot keeps a row, where an index looks for it, and its first values.

The mix is the finaliser of SplitMix64 (Steele, Lea & Flood 2014): fast, vectorised, and every bit of the id reaches every
bit of the result. First values come from (seed, table, id, column) alone, so a row may be made anywhere, in any order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sporax.ps.protocol.wire import Floats, Ids

Hashes = npt.NDArray[np.uint64]

# The constants of SplitMix64.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1
# 53 bits fit exactly into a float64.
_TO_UNIT = 2.0**-53


def mix(values: Hashes) -> Hashes:
    """SplitMix64's finaliser of every value."""
    # Multiplication modulo 2**64 is part of the hash.
    with np.errstate(over="ignore"):
        values = values + _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * _MIX1
        values = (values ^ (values >> np.uint64(27))) * _MIX2
        return values ^ (values >> np.uint64(31))


def hash_ids(ids: Ids) -> Hashes:
    """A hash of every row id."""
    return mix(ids.view(np.uint64) if ids.dtype == np.int64 else ids.astype(np.uint64))


def slots_of(ids: Ids, num_slots: int) -> npt.NDArray[np.int64]:
    """The slot that keeps each row."""
    # The upper bits, since the index of a table uses the lower ones.
    return ((hash_ids(ids) >> np.uint64(40)) % np.uint64(num_slots)).astype(np.int64)


def first_rows(ids: Ids, width: int, *, seed: int, table: int, sigma: float, distribution: str) -> Floats:
    """First values of rows, shape (number of ids, width).

    Args:
        ids: row ids.
        width: values per row.
        seed, table: which run and which table.
        sigma: standard deviation of ``normal``, half the range of ``uniform``, the value of ``constant``.
        distribution: ``normal``, ``uniform``, ``zeros`` or ``constant``.
    """
    if distribution in ("zeros", "constant"):
        return np.full((len(ids), width), sigma if distribution == "constant" else 0.0, np.float32)
    # Other constants for table and seed, so that no two tables begin with equal rows.
    stream = np.uint64(((seed * 0x9E3779B97F4A7C15) ^ (table * 0xD1B54A32D192ED03)) & _MASK)
    rows = mix(hash_ids(ids) ^ stream)[:, None]
    first = _unit(mix(rows ^ mix(np.arange(width, dtype=np.uint64))[None, :]))
    if distribution == "uniform":
        return ((2.0 * first - 1.0) * sigma).astype(np.float32)
    second = _unit(mix(rows ^ mix(np.arange(width, 2 * width, dtype=np.uint64))[None, :]))
    normal = np.sqrt(-2.0 * np.log(1.0 - first)) * np.cos(2.0 * np.pi * second)  # Box and Muller 1958
    return (normal * sigma).astype(np.float32)


def _unit(values: Hashes) -> npt.NDArray[np.float64]:
    """Hashes as numbers in [0, 1)."""
    # The upper 53 bits: the lower ones do not fit into a float64.
    return (values >> np.uint64(11)).astype(np.float64) * _TO_UNIT
