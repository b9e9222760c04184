"""Tables whose rows are split into parts of different sizes, one part for each feature field.

Every device must run the same program, so a part is stored in a *block* as long as the largest part. The example of
this file: a table of 9 rows in parts of 4, 2 and 3,

    rows    0 1 2 3 | 4 5     | 6 7 8        as the user sees them
    blocks  0 1 2 3 | 4 5 - - | 6 7 8 -      as three devices hold them: 12 rows, three of which are spare
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass


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
