"""`mindspore.parallel._ps_context`: questions about the role of this process in a parameter-server job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sporax.mindspore import context
from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.context import get_ps_context, reset_ps_context, set_ps_context

__all__: list[str] = []

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)

_set_ps_context, _get_ps_context, _reset_ps_context = set_ps_context, get_ps_context, reset_ps_context


def _is_ps_mode() -> bool:
    """Whether `set_ps_context` has switched parameter servers on."""
    return bool(context.ps_snapshot().enable_ps)


def _has_role(*names: str) -> bool:
    return _is_ps_mode() and os.environ.get("MS_ROLE") in names


def _is_role_worker() -> bool:
    """Whether this process is a worker of a parameter-server job."""
    return _has_role("MS_WORKER")


def _is_role_pserver() -> bool:
    """Whether this process is a server of a parameter-server job."""
    return _has_role("MS_PSERVER", "MS_SERVER")


def _is_role_sched() -> bool:
    """Whether this process is the scheduler of a parameter-server job."""
    return _has_role("MS_SCHED")
