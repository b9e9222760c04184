"""Optimizers."""

from sporax.nn.optim._optimizer import Optimizer
from sporax.nn.optim.adam import Adam, AdamWeightDecay
from sporax.nn.optim.momentum import SGD, Momentum

__all__ = ["Optimizer", "SGD", "Momentum", "Adam", "AdamWeightDecay"]
