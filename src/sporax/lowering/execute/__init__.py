"""From an operator graph and a plan to the program of one rank.

Modules below are loaded when they are first used: operators whose tables are split by hand find here how a part is looked up.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.lowering.execute import part_lookup

__all__ = ["part_lookup"]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
