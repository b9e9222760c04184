"""Names of `mindspore.experimental`: optimizers with parameter groups, and schedules of their learning rates."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.experimental import optim

__all__ = ["optim"]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
