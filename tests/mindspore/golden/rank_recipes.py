"""Small trainings on two ranks, run under MindSpore (to record) and under Sporax (to compare), as `curve_recipes` for one.

Each rank takes its rows of every batch of a recipe there; all start from the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from curve_recipes import RECIPES, set_weights, step_cell

NUM_RANKS = 2


@dataclass(frozen=True)
class RankRecipe:
    """One training on ranks.

    Attributes:
        base: the recipe in `curve_recipes` that gives net, batches, loss and optimizer.
        step: how a step is written.
        settings: of the parallel context.
        prepare: changes the net before training.
    """

    base: str
    step: Callable[..., Any]
    settings: dict[str, Any]
    prepare: Callable[[Any], None] = lambda net: None


def run(ms: Any, name: str) -> list[float]:
    """Train recipe `name` on this rank's rows, in the mode that is set, and return its loss at every step."""
    recipe = RANK_RECIPES[name]
    base = RECIPES[recipe.base]
    rank, size = ms.communication.get_rank(), ms.communication.get_group_size()
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(**recipe.settings)
    net = base.net(ms)
    set_weights(ms, net)
    recipe.prepare(net)
    net.set_train()
    step = recipe.step(ms, net, base.loss(ms), base.optimizer(ms, net))
    losses = [step(*(ms.Tensor(share(array, rank, size)) for array in batch)) for batch in base.batches()]
    return [float(loss.asnumpy()) for loss in losses]


def share(array: np.ndarray, rank: int, size: int) -> np.ndarray:
    """The rows of a rank."""
    rows = len(array) // size
    return array[rank * rows : (rank + 1) * rows]


def step_reducer(ms: Any, net: Any, loss_fn: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """`value_and_grad`, then `DistributedGradReducer`, then the optimizer, uncompiled outside."""

    def forward(x, y):
        logits = net(x)
        return loss_fn(logits, y), logits

    grad_fn = ms.value_and_grad(forward, None, net.trainable_params(), has_aux=True)
    reducer = ms.nn.DistributedGradReducer(optimizer.parameters)

    def step(x, y):
        (loss, _), grads = grad_fn(x, y)
        optimizer(reducer(grads))
        return loss

    return step


def first_layer_alone(net: Any) -> None:
    """The first layer belongs to each rank: its gradients are not combined."""
    for parameter in net.fc1.trainable_params():
        parameter.layerwise_parallel = True


AVERAGED = {"parallel_mode": "data_parallel", "gradients_mean": True}

RANK_RECIPES = {
    "lenet_cell": RankRecipe("lenet_momentum", step_cell, AVERAGED),
    "mlp_reducer": RankRecipe("mlp_momentum", step_reducer, AVERAGED),
    "mlp_sums": RankRecipe("mlp_sgd", step_cell, {"parallel_mode": "data_parallel", "gradients_mean": False}),
    "mlp_adam": RankRecipe("mlp_adam_decaying_rate", step_reducer, AVERAGED),
    "mlp_split": RankRecipe("mlp_momentum", step_reducer, {**AVERAGED, "all_reduce_fusion_config": [1, 3]}),
    "mlp_layer_alone": RankRecipe(
        "mlp_momentum", step_cell, {"parallel_mode": "hybrid_parallel", "gradients_mean": True}, first_layer_alone
    ),
    "transformer_reducer": RankRecipe("transformer_adam", step_reducer, AVERAGED),
}
