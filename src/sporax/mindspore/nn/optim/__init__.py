"""Optimizers."""

from sporax.mindspore.nn.optim._helpers import opt_init_args_register
from sporax.mindspore.nn.optim._optimizer import Optimizer
from sporax.mindspore.nn.optim.adadelta import Adadelta
from sporax.mindspore.nn.optim.adafactor import AdaFactor
from sporax.mindspore.nn.optim.adagrad import Adagrad, ProximalAdagrad
from sporax.mindspore.nn.optim.adam import Adam, AdamOffload, AdamWeightDecay, LazyAdam
from sporax.mindspore.nn.optim.adamax import AdaMax
from sporax.mindspore.nn.optim.asgd import ASGD
from sporax.mindspore.nn.optim.ftrl import FTRL
from sporax.mindspore.nn.optim.lamb import Lamb
from sporax.mindspore.nn.optim.lars import LARS
from sporax.mindspore.nn.optim.momentum import SGD, Momentum
from sporax.mindspore.nn.optim.optax import OptaxOptimizer
from sporax.mindspore.nn.optim.rmsprop import RMSProp
from sporax.mindspore.nn.optim.rprop import Rprop
from sporax.mindspore.nn.optim.thor import thor

__all__ = [
    "Optimizer",
    "opt_init_args_register",
    "SGD",
    "Momentum",
    "Adam",
    "AdamOffload",
    "AdamWeightDecay",
    "LazyAdam",
    "AdaMax",
    "Lamb",
    "LARS",
    "FTRL",
    "Adagrad",
    "ProximalAdagrad",
    "RMSProp",
    "Rprop",
    "Adadelta",
    "ASGD",
    "AdaFactor",
    "OptaxOptimizer",
    "thor",
]
