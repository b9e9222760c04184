"""Optimizers of `mindspore.experimental.optim`: like PyTorch's, with groups whose settings may change at any time.

`lr_scheduler` has the schedules that change their learning rates between steps.
"""

from sporax.mindspore._names.doors import door
from sporax.mindspore._names.missing import homes, homes_in

_HOMES = {
    "lr_scheduler": f"{__name__}.lr_scheduler",
    **homes("sporax.mindspore.mint.optim._optimizer", "Optimizer"),
    **homes_in(
        __name__,
        """
        _rules: Adadelta Adagrad Adam Adamax AdamW ASGD NAdam RAdam RMSprop Rprop SGD
        """,
    ),
}

__all__ = [*_HOMES]
__getattr__, __dir__ = door(__name__, _HOMES)
