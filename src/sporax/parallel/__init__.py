"""Parallel settings."""


def reset_auto_parallel_context() -> None:
    """Back to defaults."""


def set_auto_parallel_context(**kwargs: object) -> None:
    """Set."""


def get_auto_parallel_context(key: str) -> object:
    """Get."""
    return {"parallel_mode": "stand_alone"}.get(key)
