"""The ranks of a job: groups, joint arrays, collectives, exchange with parameter servers.

The modules below are loaded when they are first used: operators name them, and most programs exchange nothing.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.runtime.ranks import (
        collectives,
        exchanges,
        flat_buffers,
        groups,
        initial_broadcast,
        joint_arrays,
        local_ranks,
        server_exchange,
        server_start,
    )
    from sporax.runtime.ranks.collective_order import Tree, ordered
    from sporax.runtime.ranks.collectives import Arrays, Collective, Saved
    from sporax.runtime.ranks.exchanges import (
        Axis,
        ReverseModeNeeded,
        check_mode,
        check_reverse,
        forward_mode_refused,
        from_root,
        refused,
    )
    from sporax.runtime.ranks.groups import Group

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
