"""MindSpore's switches for its own memory pool, accepted so that scripts run: XLA manages memory here."""

from __future__ import annotations

import warnings
from typing import Any


def set_memory(
    init_size: str = "2GB",
    increase_size: str = "2GB",
    max_size: str = "1024GB",
    optimize_level: str = "O0",
    huge_page_reserve_size: str = "0GB",
    **options: Any,
) -> None:
    """Accepted with a warning: XLA's allocator has settings of its own (XLA_PYTHON_CLIENT_MEM_FRACTION and others)."""
    warnings.warn("'runtime.set_memory' is accepted for compatibility; XLA manages memory here.", stacklevel=2)
