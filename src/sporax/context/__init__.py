"""The global context."""

from sporax.context._global import GRAPH_MODE, PYNATIVE_MODE, get_context, graph_mode, set_context, set_device
from sporax.context._parallel import (
    get_auto_parallel_context,
    reset_auto_parallel_context,
    set_auto_parallel_context,
    snapshot,
    using,
    set_world,
)
from sporax.ir.parallel_config import ParallelMode
