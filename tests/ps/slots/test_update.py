"""Server optimizers equal those of `nn` bit by bit when both run operation by operation."""

from __future__ import annotations

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base import update_rules
from sporax.mindspore import nn
from sporax.ps.protocol.messages import OptimizerSpec, VariableSpec
from sporax.ps.slots.slot import Segment

MAKERS = {
    "sgd": lambda p: nn.SGD(p, 0.1),
    "sgd_momentum": lambda p: nn.SGD(p, 0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "sgd_nesterov": lambda p: nn.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "momentum": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.01, loss_scale=4.0),
    "momentum_nesterov": lambda p: nn.Momentum(p, 0.1, 0.9, use_nesterov=True),
    "adagrad": lambda p: nn.Adagrad(p, learning_rate=0.1),
    "adam": lambda p: nn.Adam(p, 0.01, weight_decay=0.1),
    "adam_nesterov": lambda p: nn.Adam(p, 0.01, use_nesterov=True),
    "amsgrad": lambda p: nn.Adam(p, 0.01, use_amsgrad=True),
    "lazy_adam": lambda p: nn.LazyAdam(p, 0.01),
    "ftrl": lambda p: nn.FTRL(p, learning_rate=0.1, l1=0.01, l2=0.1),
}


@pytest.mark.parametrize("name", MAKERS)
def test_formulas_equal_those_of_nn(name: str) -> None:
    rng = np.random.default_rng(1)
    first = rng.standard_normal(50).astype(np.float32)
    parameter = ms.Parameter(ms.Tensor(first), name="w")
    optimizer = MAKERS[name]([parameter])
    rule, constants = optimizer.server_rule()
    decay = optimizer.settings[0].decay
    spec = OptimizerSpec(rule, constants, decay, float(np.float32(1 / optimizer.loss_scale)))
    server = Segment(VariableSpec(0, "w", 50, 0, spec), first)
    rate = float(np.asarray(optimizer.get_lr().asnumpy()))
    for _ in range(4):
        gradient = rng.standard_normal(50).astype(np.float32)
        optimizer.construct((ms.Tensor(gradient),))  # operation by operation: a compiled step may fuse
        server.update(gradient, rate)
        np.testing.assert_array_max_ulp(parameter.asnumpy(), server.value, 0 if name != "ftrl" else 16)


def test_plain_sgd_has_the_bits_of_its_formula_and_changes_nothing_in_place() -> None:
    rng = np.random.default_rng(3)
    first, gradient = rng.standard_normal((2, 1000)).astype(np.float32)
    segment = Segment(VariableSpec(0, "w", 1000, 0, OptimizerSpec("sgd")), first.copy())
    before, pushed = segment.value, gradient.copy()
    segment.update(pushed, 0.1)
    np.testing.assert_array_equal(segment.value, update_rules.plain_sgd(gradient, first, rate=np.float32(0.1)))
    np.testing.assert_array_equal(before, first)
    np.testing.assert_array_equal(pushed, gradient)
