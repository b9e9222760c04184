"""What is written into a trace and read from it: operator marks, tags, variables, transfers to the host.

Names below are loaded when they are first used: nothing is written before the first trace, and `jax.extend`, which has the
types of traced programs, takes as long to load as a tenth of the facade.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.lowering.marks.host_transfer import (
        KIND,
        is_on_host,
        place_of_work,
        run_on_host,
        stored_on_host,
        to_device,
        to_host,
    )
    from sporax.lowering.marks.mark_primitive import apply_mark, mark_read, mark_shape
    from sporax.lowering.marks.tags import KEEP, new_tag, offload_scope

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
