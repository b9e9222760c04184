"""Optimizers of `mindspore.mint.optim`, whose names and arguments follow PyTorch's."""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.mint.optim._optimizer import Optimizer
from sporax.mindspore.mint.optim._optimizers import SGD, Adam, AdamW, FusedAdamW

__all__ = ["Adam", "AdamW", "FusedAdamW", "SGD"]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
