"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.nn.optim._helpers import opt_init_args_register as opt_init_args_register
from sporax.mindspore.nn.optim._optimizer import Optimizer as Optimizer
from sporax.mindspore.nn.optim.adafactor import AdaFactor as AdaFactor
from sporax.mindspore.nn.optim.adagrad import Adadelta as Adadelta
from sporax.mindspore.nn.optim.adagrad import Adagrad as Adagrad
from sporax.mindspore.nn.optim.adagrad import FTRL as FTRL
from sporax.mindspore.nn.optim.adagrad import ProximalAdagrad as ProximalAdagrad
from sporax.mindspore.nn.optim.adagrad import RMSProp as RMSProp
from sporax.mindspore.nn.optim.adam import AdaMax as AdaMax
from sporax.mindspore.nn.optim.adam import Adam as Adam
from sporax.mindspore.nn.optim.adam import AdamOffload as AdamOffload
from sporax.mindspore.nn.optim.adam import AdamWeightDecay as AdamWeightDecay
from sporax.mindspore.nn.optim.adam import LazyAdam as LazyAdam
from sporax.mindspore.nn.optim.lamb import LARS as LARS
from sporax.mindspore.nn.optim.lamb import Lamb as Lamb
from sporax.mindspore.nn.optim.momentum import ASGD as ASGD
from sporax.mindspore.nn.optim.momentum import Momentum as Momentum
from sporax.mindspore.nn.optim.momentum import Rprop as Rprop
from sporax.mindspore.nn.optim.momentum import SGD as SGD
from sporax.mindspore.nn.optim.optax import OptaxOptimizer as OptaxOptimizer
from sporax.mindspore.nn.optim.thor import thor as thor


