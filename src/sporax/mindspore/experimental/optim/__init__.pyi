"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.experimental.optim import lr_scheduler as lr_scheduler
from sporax.mindspore.experimental.optim._adam import Adam as Adam
from sporax.mindspore.experimental.optim._adam import AdamW as AdamW
from sporax.mindspore.experimental.optim._adam import Adamax as Adamax
from sporax.mindspore.experimental.optim._adam import NAdam as NAdam
from sporax.mindspore.experimental.optim._adam import RAdam as RAdam
from sporax.mindspore.experimental.optim._scaled import Adadelta as Adadelta
from sporax.mindspore.experimental.optim._scaled import Adagrad as Adagrad
from sporax.mindspore.experimental.optim._scaled import RMSprop as RMSprop
from sporax.mindspore.experimental.optim._steps import ASGD as ASGD
from sporax.mindspore.experimental.optim._steps import Rprop as Rprop
from sporax.mindspore.experimental.optim._steps import SGD as SGD
from sporax.mindspore.mint.optim._optimizer import Optimizer as Optimizer


