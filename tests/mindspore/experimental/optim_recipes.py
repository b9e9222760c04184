"""Optimizers and schedules of `experimental.optim`, written once for MindSpore and Sporax.

Every optimizer does ten steps from the Parameters of `tests/mindspore/golden/optimizer_recipes.py`, with its gradients; every
schedule changes the rates of two groups for twelve steps.
"""

from __future__ import annotations

import importlib
from typing import Any

STEPS = 10

OPTIMIZERS = {
    "sgd": "optim.SGD(params, 0.1)",
    "sgd_momentum": "optim.SGD(params, 0.1, 0.9, 0.3, 0.05)",
    "sgd_nesterov": "optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True)",
    "sgd_maximize": "optim.SGD(params, 0.1, 0.9, maximize=True)",
    "adam": "optim.Adam(params)",
    "adam_decay": "optim.Adam(params, 0.1, (0.8, 0.99), 1e-3, 0.05)",
    "adam_maximize": "optim.Adam(params, 0.1, maximize=True)",
    "adamw": "optim.AdamW(params, 0.1, eps=1e-3)",
    "adamw_amsgrad": "optim.AdamW(params, 0.1, (0.5, 0.6), weight_decay=0.2, amsgrad=True)",
    "adamw_groups": (
        "optim.AdamW([dict(params=params[:2], lr=0.05, weight_decay=0.3), dict(params=params[2:], betas=(0.7, 0.8))], 0.1)"
    ),
    "adagrad": "optim.Adagrad(params, 0.1)",
    "adagrad_all": "optim.Adagrad(params, 0.1, 0.2, 0.05, 0.3, 1e-3, maximize=True)",
    "adadelta": "optim.Adadelta(params)",
    "adadelta_all": "optim.Adadelta(params, 0.5, 0.7, 1e-3, 0.05, maximize=True)",
    "adamax": "optim.Adamax(params)",
    "adamax_all": "optim.Adamax(params, 0.1, (0.7, 0.8), 1e-2, 0.05, maximize=True)",
    "nadam": "optim.NAdam(params)",
    "nadam_all": "optim.NAdam(params, 0.1, (0.7, 0.8), 1e-2, 0.05, 0.3)",
    "radam": "optim.RAdam(params, 0.1)",
    "radam_all": "optim.RAdam(params, 0.1, (0.7, 0.95), 1e-2, 0.05)",
    "rmsprop": "optim.RMSprop(params)",
    "rmsprop_all": "optim.RMSprop(params, 0.05, 0.8, 1e-2, 0.05, 0.6, True, True)",
    "rprop": "optim.Rprop(params)",
    "rprop_all": "optim.Rprop(params, 0.1, (0.3, 1.7), (0.02, 0.3), maximize=True)",
    "asgd": "optim.ASGD(params)",
    "asgd_all": "optim.ASGD(params, 0.1, 0.2, 0.6, 3.0, 0.05, True)",
}

SCHEDULES = {
    "step": "lr.StepLR(optimizer, 3, 0.5)",
    "multi_step": "lr.MultiStepLR(optimizer, [2, 5, 5, 8], 0.5)",
    "constant": "lr.ConstantLR(optimizer, 0.5, 4)",
    "linear": "lr.LinearLR(optimizer, 0.25, 0.75, 6)",
    "exponential": "lr.ExponentialLR(optimizer, 0.9)",
    "polynomial": "lr.PolynomialLR(optimizer, 7, 2.0)",
    "lambda": "lr.LambdaLR(optimizer, [lambda epoch: epoch // 3, lambda epoch: 0.95**epoch])",
    "multiplicative": "lr.MultiplicativeLR(optimizer, lambda epoch: 1.0 - epoch * 0.01)",
    "sequential": "lr.SequentialLR(optimizer, [lr.ConstantLR(optimizer, 0.1, 2), lr.ExponentialLR(optimizer, 0.9)], [4])",
    "cyclic": "lr.CyclicLR(optimizer, 0.01, 0.1, 3)",
    "cyclic_halves": "lr.CyclicLR(optimizer, [0.01, 0.02], [0.1, 0.3], 3, 2, 'triangular2')",
    "cyclic_range": "lr.CyclicLR(optimizer, 0.01, 0.1, 4, mode='exp_range', gamma=0.9)",
    "cyclic_own": "lr.CyclicLR(optimizer, 0.01, 0.1, 4, scale_fn=lambda step: 0.8**step, scale_mode='iterations')",
    "cosine": "lr.CosineAnnealingLR(optimizer, 4, 0.01)",
    "cosine_restarts": "lr.CosineAnnealingWarmRestarts(optimizer, 3, 2, 0.01)",
    "two": "(lr.StepLR(optimizer, 2, 0.5), lr.ExponentialLR(optimizer, 0.9))",
}

AT_EPOCHS = {
    name: SCHEDULES[name] for name in ("step", "constant", "linear", "exponential", "polynomial", "lambda", "cosine")
}
AT_EPOCHS["cosine_restarts"] = "lr.CosineAnnealingWarmRestarts(optimizer, 3, 1, 0.01)"
"""Those that are called with the epochs of `EPOCHS` instead of the next one."""

EPOCHS = (0, 2, 1, 5, 7, 11)

PLATEAUS = {
    "min": "lr.ReduceLROnPlateau(optimizer, 'min', 0.5, 1)",
    "max": "lr.ReduceLROnPlateau(optimizer, 'max', 0.5, 0, 0.2, 'abs', 2, [0.01, 0.2])",
}

METRICS = (1.0, 0.9, 0.95, 0.91, 0.92, 0.93, 0.5, 0.7, 0.9, 1.4, 1.3, 1.2, 1.1)


def names(ms: Any) -> dict[str, Any]:
    """What the expressions use of one framework."""
    optim = importlib.import_module(f"{ms.__name__}.experimental.optim")
    return {"optim": optim, "lr": importlib.import_module(f"{ms.__name__}.experimental.optim.lr_scheduler")}


def train(ms: Any, code: str, start: list[Any], slope: Any) -> dict[str, Any]:
    """Parameters and state after ten steps of an optimizer, flattened."""
    params = [ms.Parameter(ms.Tensor(value), name=f"p{index}") for index, value in enumerate(start)]
    optimizer = eval(code, {**names(ms), "params": params})
    for step in range(STEPS):
        optimizer(tuple(map(ms.Tensor, slope([value.asnumpy() for value in params], step))))
    numbers = [value for slot in ("mu", "eta", "mu_product") for value in getattr(optimizer, slot, ())]
    everything = [*optimizer.get_parameters(), *numbers]  # MindSpore does not count lists of numbers as state
    state = {value.name: value for value in everything if "learning_rate" not in value.name}
    return {name: value.asnumpy().ravel().tolist() for name, value in sorted(state.items())}


def optimizer_of(ms: Any) -> Any:
    """One with two groups."""
    params = [ms.Parameter(ms.Tensor([1.0]), name=name) for name in "ab"]
    return names(ms)["optim"].SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.5}], 0.1)


def rates(ms: Any, code: str, steps: tuple[Any, ...]) -> list[list[float]]:
    """The rates of both groups after making a schedule and after each step, which gets an entry of `steps` (or nothing)."""
    optimizer = optimizer_of(ms)
    schedules = eval(code, {**names(ms), "optimizer": optimizer})
    schedules = schedules if isinstance(schedules, tuple) else (schedules,)
    rows = [[float(group["lr"].asnumpy()) for group in optimizer.param_groups]]
    for step in steps:
        for schedule in schedules:
            schedule.step(*([] if step is None else [step]))
        rows.append([float(group["lr"].asnumpy()) for group in optimizer.param_groups])
    return rows
