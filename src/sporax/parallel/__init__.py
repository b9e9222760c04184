"""Parallel settings (being written)."""
from sporax.context import (
    ParallelMode, get_auto_parallel_context, reset_auto_parallel_context, set_auto_parallel_context)
