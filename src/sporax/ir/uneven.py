"""Tables whose rows are split into parts of different sizes, one part for each feature field.

Every device must run the same program, so a part is stored in a *block* as long as the largest part. The example of
this file: a table of 9 rows in parts of 4, 2 and 3,

    rows    0 1 2 3 | 4 5     | 6 7 8        as the user sees them
    blocks  0 1 2 3 | 4 5 - - | 6 7 8 -      as three devices hold them: 12 rows, three of which are spare
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from dataclasses import replace

from sporax.base.lazy_members import dataclass
from sporax.ir.operation import Shape


@dataclass(frozen=True, slots=True)
class UnevenRows:
    """How many rows each part has.

    Attributes:
        rows: of the parts, in order.

    Example:
        >>> parts = UnevenRows((4, 2, 3))
        >>> parts.num_rows, parts.block, parts.num_stored, parts.starts
        (9, 4, 12, (0, 4, 6))
    """

    rows: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Rows of the table."""
        return sum(self.rows)

    @property
    def block(self) -> int:
        """Rows of a block: those of the largest part."""
        return max(self.rows)

    @property
    def num_stored(self) -> int:
        """Rows of all blocks."""
        return len(self.rows) * self.block

    @property
    def starts(self) -> tuple[int, ...]:
        """The first row of each part."""
        return tuple(itertools.accumulate(self.rows[:-1], initial=0))

    @property
    def is_even(self) -> bool:
        """Whether all parts are equal, so that blocks have no rows to spare."""
        return len(set(self.rows)) == 1


PLAIN, WITH_OFFSET = "manual_split", "manual_split_with_offset"
"""MindSpore's names of the two attributes; the second one gives an offset with each number of rows."""
ATTRIBUTES = (PLAIN, WITH_OFFSET)
"""Both of them, for callers that only test whether there is one."""


@dataclass(frozen=True, slots=True)
class ManualSplit:
    """Parts of a table.

    Attributes:
        rows: how many rows each part has.
        offsets: what indices into each part start from.
    """

    rows: UnevenRows
    offsets: tuple[int, ...]

    def fits(self, table: Shape, indices: Shape, axis: object) -> bool:
        """Whether a table and indices of these shapes can be looked up part by part."""
        parts = len(self.rows.rows)
        return bool(table and indices) and axis == 0 and table[0] == self.rows.num_rows and indices[-1] % parts == 0


def split_of(attributes: Mapping[str, Hashable]) -> ManualSplit | None:
    """The parts that attributes of an operator name; None where they name none, or not as they should."""
    plain, pairs = attributes.get(PLAIN), attributes.get(WITH_OFFSET)
    # Both at once is an error, which `check_split` reports; here it means no split.
    if (plain is None) == (pairs is None):
        return None
    if pairs is None:
        return _plain(plain)
    if not isinstance(pairs, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        return None
    # The offsets replace the starts of the parts, which plain splits have.
    split = _plain(tuple(rows for rows, _ in pairs))
    offsets = tuple(offset for _, offset in pairs)
    if split is None or not all(isinstance(offset, int) and offset >= 0 for offset in offsets):
        return None
    return replace(split, offsets=offsets)


def _plain(rows: Hashable) -> ManualSplit | None:
    if not isinstance(rows, tuple) or not rows:
        return None
    # In Python, bool is an int; True rows would be one row.
    if not all(isinstance(row, int) and not isinstance(row, bool) and row > 0 for row in rows):
        return None
    parts = UnevenRows(rows)
    return ManualSplit(parts, parts.starts)
