"""The ranks of a job: groups, joint arrays, collectives, exchange with parameter servers.

The modules below are loaded when they are first used: operators name them, and most programs exchange nothing.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.runtime.ranks import (
        collectives,
        flat_buffers,
        groups,
        initial_broadcast,
        joint_arrays,
        local_ranks,
        placed_calls,
        point_to_point,
        server_exchange,
        server_start,
    )
    from sporax.runtime.ranks.exchanges import ReverseModeNeeded, check_reverse, forward_mode_refused
    from sporax.runtime.ranks.groups import Group
    from sporax.runtime.ranks.point_to_point import Exchange, Message

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
