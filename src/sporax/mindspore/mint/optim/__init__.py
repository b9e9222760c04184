"""Optimizers of `mindspore.mint.optim`, whose names and arguments follow PyTorch's."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.mint.optim._optimizer import SGD, Adam, AdamW, FusedAdamW, Optimizer

__all__ = ["Adam", "AdamW", "FusedAdamW", "SGD"]

answer_missing_names(__name__)
