"""How programs run: state, compiled programs, random numbers. Works on `jax.Array`s; knows no Tensor and no Cell.

MindSpore has a module of this name too; its functions about device memory are here as well.
"""

from typing import TYPE_CHECKING

from sporax.ir.missing import missing_names
from sporax.runtime.memory import empty_cache, max_memory_allocated, memory_allocated, set_memory, synchronize

__all__ = ["empty_cache", "max_memory_allocated", "memory_allocated", "set_memory", "synchronize"]

if not TYPE_CHECKING:  # checkers shall see a missing name themselves
    __getattr__ = missing_names(__name__)
