"""Ten steps of every optimizer, written once for MindSpore and Sporax.

Left out, because the wheel's CPU kernels ignore the setting or compute something else than its documentation says:
`use_nesterov` of Momentum, `update_slots` of Adagrad, `l1` of FTRL. Lamb and LARS have no CPU kernel at all.

The gradients depend on the Parameters and on the step, so an error in one step shows in all that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

STEPS = 10
SHAPES = {"matrix": (4, 3), "gamma": (3,), "bias": (4,), "wide": (2, 16), "cube": (2, 3, 2)}


def parameters(ms: Any) -> list[Any]:
    """Parameters of several ranks; one is exempt from weight decay by its name."""
    return [ms.Parameter(ms.Tensor(value), name=name) for name, value in zip(SHAPES, start(), strict=True)]


def start() -> list[np.ndarray]:
    """Their first values."""
    draw = np.random.RandomState(7)
    return [draw.normal(size=shape).astype(np.float32) for shape in SHAPES.values()]


def gradients(values: list[np.ndarray], step: int) -> list[np.ndarray]:
    """Gradients of a bowl whose centre moves."""
    draw = np.random.RandomState(100 + step)
    return [(0.5 * value + 0.2 * draw.normal(size=value.shape)).astype(np.float32) for value in values]


def run(ms: Any, name: str) -> list[list[float]]:
    """All Parameters after ten steps, flattened."""
    weights = parameters(ms)
    optimizer = RECIPES[name](ms, weights)
    for step in range(STEPS):
        grads = gradients([weight.asnumpy() for weight in optimizer.parameters], step)
        optimizer(tuple(map(ms.Tensor, grads)))
    return [weight.asnumpy().ravel().tolist() for weight in weights]


def by_class(name: str, *args: Any, **settings: Any) -> Callable[[Any, list[Any]], Any]:
    """The optimizer `name` over all Parameters."""
    return lambda ms, weights: getattr(ms.nn, name)(weights, *args, **settings)


def groups(ms: Any, weights: list[Any]) -> list[dict[str, Any]]:
    """Groups with their own rate, decay and centralization, reordered."""
    return [
        {"params": weights[:2], "lr": 0.05, "weight_decay": 0.1},
        {"params": weights[4:], "grad_centralization": True},
        {"params": weights[2:4], "weight_decay": 0.0},
        {"order_params": weights[::-1]},
    ]


def grouped(name: str, *args: Any, **settings: Any) -> Callable[[Any, list[Any]], Any]:
    return lambda ms, weights: getattr(ms.nn, name)(groups(ms, weights), *args, **settings)


def scheduled(schedule: str, *args: Any) -> Callable[[Any, list[Any]], Any]:
    return lambda ms, weights: ms.nn.Momentum(weights, getattr(ms.nn, schedule)(*args), 0.9)


def decaying_weight_decay(ms: Any, weights: list[Any]) -> Any:
    return ms.nn.Adam(weights, 0.1, weight_decay=ms.nn.ExponentialDecayLR(0.1, 0.5, 4))


def by_call(function: str, *args: Any) -> Callable[[Any, list[Any]], Any]:
    """Rates computed beforehand by one of the `*_lr` helpers."""
    return lambda ms, weights: ms.nn.SGD(weights, getattr(ms.nn, function)(*args))


RECIPES: dict[str, Callable[[Any, list[Any]], Any]] = {
    "sgd": by_class("SGD", 0.1),
    "sgd_momentum_dampened": by_class("SGD", 0.1, 0.9, 0.3, weight_decay=0.05, loss_scale=8.0),
    "sgd_nesterov": by_class("SGD", 0.1, momentum=0.9, nesterov=True),
    "momentum": by_class("Momentum", 0.1, 0.9, weight_decay=0.05, loss_scale=8.0),
    "adam": by_class("Adam", 0.1, weight_decay=0.05, loss_scale=8.0),
    "adam_nesterov": by_class("Adam", 0.1, use_nesterov=True),
    "adam_amsgrad": by_class("Adam", 0.1, use_amsgrad=True),
    "adam_decaying_decay": decaying_weight_decay,
    "adam_groups": grouped("Adam", 0.1, weight_decay=0.2),
    "adam_weight_decay": by_class("AdamWeightDecay", 0.1, weight_decay=0.05),
    "adam_weight_decay_groups": grouped("AdamWeightDecay", 0.1, weight_decay=0.2),
    "lazy_adam": by_class("LazyAdam", 0.1, weight_decay=0.05),
    "adamax": by_class("AdaMax", 0.1, weight_decay=0.05),
    "ftrl": by_class("FTRL", 0.1, 0.1),
    "ftrl_penalties": by_class("FTRL", 0.2, 0.3, -0.4, 0.0, 0.1, weight_decay=0.05),
    "adagrad": by_class("Adagrad", 0.1, 0.1, weight_decay=0.05),
    "proximal_adagrad": by_class("ProximalAdagrad", 0.1, 0.1, 0.02, 0.1),
    "rmsprop": by_class("RMSProp", 0.05, weight_decay=0.05, loss_scale=8.0),
    "rmsprop_momentum": by_class("RMSProp", 0.05, 0.8, 0.7, 1e-6),
    "rmsprop_centered": by_class("RMSProp", 0.02, 0.8, 0.5, 1e-3, centered=True),
    "rprop": by_class("Rprop", 0.05, (0.5, 1.2), (0.01, 0.5)),
    "adadelta": by_class("Adadelta", 1.0, 0.8, 1e-3, weight_decay=0.05),
    "asgd": by_class("ASGD", 0.1, 0.01, 0.75, 4.0, weight_decay=0.05),
    "adafactor": by_class("AdaFactor"),
    "adafactor_fixed_rate": by_class("AdaFactor", 0.1, beta1=0.0, relative_step=False, weight_decay=0.05),
    "adafactor_unscaled": by_class("AdaFactor", 0.1, scale_parameter=False, relative_step=False),
    "adafactor_warmup": by_class("AdaFactor", warmup_init=True, clip_threshold=0.5, decay_rate=0.6),
    "rates_list": by_class("Momentum", [0.1 * 0.8**step for step in range(STEPS)], 0.9),
    "momentum_groups": grouped("Momentum", 0.1, 0.9, weight_decay=0.2, loss_scale=4.0),
    "exponential_decay": scheduled("ExponentialDecayLR", 0.2, 0.7, 3),
    "exponential_decay_stair": scheduled("ExponentialDecayLR", 0.2, 0.7, 3, True),
    "natural_exp_decay": scheduled("NaturalExpDecayLR", 0.2, 0.7, 3, True),
    "inverse_decay": scheduled("InverseDecayLR", 0.2, 0.7, 3),
    "cosine_decay": scheduled("CosineDecayLR", 0.01, 0.2, 7),
    "polynomial_decay": scheduled("PolynomialDecayLR", 0.2, 0.01, 4, 0.5),
    "polynomial_decay_updated": scheduled("PolynomialDecayLR", 0.2, 0.01, 4, 0.5, True),
    "warm_up": scheduled("WarmUpLR", 0.2, 6),
    "piecewise_constant_lr": by_call("piecewise_constant_lr", [2, 5, 10], [0.1, 0.05, 0.01]),
    "exponential_decay_lr": by_call("exponential_decay_lr", 0.2, 0.9, 10, 2, 1),
    "natural_exp_decay_lr": by_call("natural_exp_decay_lr", 0.2, 0.9, 10, 2, 2, True),
    "inverse_decay_lr": by_call("inverse_decay_lr", 0.2, 0.5, 10, 2, 1, True),
    "cosine_decay_lr": by_call("cosine_decay_lr", 0.01, 0.2, 10, 2, 3),
    "polynomial_decay_lr": by_call("polynomial_decay_lr", 0.2, 0.01, 10, 2, 2, 0.5),
    "polynomial_decay_lr_updated": by_call("polynomial_decay_lr", 0.2, 0.01, 10, 2, 2, 0.5, True),
    "warmup_lr": by_call("warmup_lr", 0.2, 10, 2, 3),
}
