"""Record which of the real MindSpore wheel's public names are operators, layers, losses and so on.

Run it with a Python that has MindSpore 2.10 (CPU) and numpy, and nothing of this project:

    python tools/golden/make_kinds.py

It writes `tests/mindspore/golden/kinds.json`, against which `docs/coverage.md` counts. What a name is, its base class says. Names
count that MindSpore documents with an example: that leaves out its internals, of which its modules show many.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(GOLDEN))

import api_facts
from mindspore.dataset.engine.datasets import Dataset, MappableDataset, SourceDataset
from mindspore.dataset.engine.samplers import BuiltinSampler
from mindspore.nn.learning_rate_schedule import LearningRateSchedule
from mindspore.nn.loss.loss import LossBase

import mindspore as ms
from mindspore import dataset as ds, mint, nn, ops, train
from mindspore.dataset import text, transforms, vision
from mindspore.experimental import optim


def subclasses(module: types.ModuleType, base: type, *without: type) -> list[str]:
    """Public classes of `module` below `base`, but not below one of `without`."""
    found = []
    for name in api_facts.public(module):
        value = getattr(module, name, None)
        if inspect.isclass(value) and issubclass(value, base) and not issubclass(value, without):
            found.append(name)
    return [name for name in found if getattr(module, name) is not base and is_documented(getattr(module, name))]


def is_documented(value: Any) -> bool:
    """Whether the name's own documentation shows an example."""
    text = value.__dict__.get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", "")
    return "Examples:" in (text or "")


def functions(module: types.ModuleType) -> list[str]:
    """Public functions of `module`, and what is called like one."""
    # A default, because the wheel declares some names that it does not have.
    return [name for name in api_facts.public(module) if is_function(getattr(module, name, None))]


def is_function(value: Any) -> bool:
    return callable(value) and not inspect.isclass(value) and is_documented(value)


def public_classes(module: types.ModuleType) -> list[str]:
    """Public classes of `module`."""
    names = [name for name in api_facts.public(module) if inspect.isclass(getattr(module, name, None))]
    return [name for name in names if is_documented(getattr(module, name))]


def sources() -> list[str]:
    """Datasets that read something, by the classes they come from."""
    return [name for name in subclasses(ds, Dataset) if issubclass(getattr(ds, name), (SourceDataset, MappableDataset))]


def methods(owner: type) -> list[str]:
    """Public methods that `owner` itself defines."""
    return [name for name, value in vars(owner).items() if not name.startswith("_") and is_function(value)]


KINDS = {
    "operator classes": ("ops", subclasses(ops, ops.Primitive)),
    "operator functions": ("ops", functions(ops)),
    "mint functions": ("mint", functions(mint)),
    "mint.nn.functional functions": ("mint.nn.functional", functions(mint.nn.functional)),
    "mint layers and losses": ("mint.nn", subclasses(mint.nn, nn.Cell)),
    "mint optimizers": ("mint.optim", public_classes(mint.optim)),
    "experimental optimizers": ("experimental.optim", public_classes(optim)),
    "experimental schedules": ("experimental.optim.lr_scheduler", public_classes(optim.lr_scheduler)),
    "layers": ("nn", subclasses(nn, nn.Cell, LossBase, nn.Optimizer, LearningRateSchedule)),
    "losses": ("nn", subclasses(nn, LossBase)),
    "optimizers": ("nn", subclasses(nn, nn.Optimizer)),
    "learning-rate schedules": ("nn", [*subclasses(nn, LearningRateSchedule), *nn.dynamic_lr.__all__]),
    "datasets": ("dataset", sources()),
    "samplers": ("dataset", subclasses(ds, BuiltinSampler)),
    "dataset methods": ("dataset.Dataset", methods(Dataset)),
    "vision transforms": ("dataset.vision", [*public_classes(vision), *functions(vision)]),
    "data transforms": ("dataset.transforms", public_classes(transforms)),
    "text transforms": ("dataset.text", [*public_classes(text), *functions(text)]),
    "callbacks": ("train", subclasses(train, train.Callback)),
    "metrics": ("train", subclasses(train, train.Metric)),
    "initializers": ("common.initializer", subclasses(ms.common.initializer, ms.common.initializer.Initializer)),
}


if __name__ == "__main__":
    lines = [
        f"  {json.dumps(kind)}: {json.dumps([place, sorted(set(names))])}" for kind, (place, names) in KINDS.items()
    ]
    (GOLDEN / "kinds.json").write_text(
        f'{{"mindspore": "{ms.__version__}", "kinds": {{\n' + ",\n".join(lines) + "\n}}\n"
    )
    for kind, (_, names) in KINDS.items():
        print(f"{kind:30} {len(set(names)):5}")
