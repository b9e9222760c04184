"""Optimizers of `mindspore.experimental.optim`: like PyTorch's, with groups whose settings may change at any time.

`lr_scheduler` has the schedules that change their learning rates between steps.
"""

from typing import TYPE_CHECKING

from sporax.mindspore._names.missing import missing_names
from sporax.mindspore.experimental.optim import lr_scheduler
from sporax.mindspore.experimental.optim._adam import Adam, Adamax, AdamW, NAdam, RAdam
from sporax.mindspore.experimental.optim._scaled import Adadelta, Adagrad, RMSprop
from sporax.mindspore.experimental.optim._steps import ASGD, SGD, Rprop
from sporax.mindspore.mint.optim._optimizer import Optimizer

__all__ = [
    "ASGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "lr_scheduler",
]

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = missing_names(__name__)
