"""The ranks of a job: groups, joint arrays, collectives, exchange with parameter servers.

The modules below are loaded when they are first used: operators name them, and most programs exchange nothing.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.runtime.ranks import collectives, flat_buffers, initial_broadcast, placed_calls, point_to_point

__all__ = ["collectives", "initial_broadcast", "flat_buffers", "placed_calls", "point_to_point"]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
