"""Names of `mindspore.experimental`: optimizers with parameter groups, and schedules of their learning rates."""

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.experimental import optim

__all__ = ["optim"]

answer_missing_names(__name__)
