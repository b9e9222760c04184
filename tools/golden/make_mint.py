"""Record what PyTorch and MindSpore give for the recipes of `tests/mindspore/mint/mint_recipes.py`.

Run it twice, with a Python that has PyTorch (CPU) and one that has MindSpore 2.10 (CPU), each with numpy and nothing of
this project:

    python tools/golden/make_mint.py torch
    python tools/golden/make_mint.py mindspore

MindSpore's `mint` follows PyTorch, and most of it has no CPU kernel in the wheel; what MindSpore cannot run here is
recorded as null. Its optimizers run but leave the Parameters as they were, so they are recorded with PyTorch alone.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parents[2] / "tests" / "mindspore"
sys.path[:0] = [str(TESTS / "mint"), str(TESTS / "golden")]

import mint_recipes as recipes
import optimizer_recipes


class Torch:
    """The adapter of PyTorch; see `mint_recipes.LikeMindSpore`."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.set_num_threads(1)
        names = {"mint": torch, "nn": torch.nn, "F": torch.nn.functional, "optim": torch.optim}
        self.names: dict[str, Any] = names

    def tensor(self, array: np.ndarray) -> Any:
        """A tensor of the array."""
        return self.torch.tensor(array)

    def arrays(self, values: Any) -> list[np.ndarray]:
        """Arrays of one tensor or several."""
        parts = values if isinstance(values, tuple | list) else (values,)
        return [each.detach().numpy() if hasattr(each, "detach") else np.asarray(each) for each in parts]

    def prepare(self, function: Any, train: bool) -> None:
        """Set mode and weights of a layer."""
        if isinstance(function, self.torch.nn.Module):
            function.train(train)
            for name, parameter in function.named_parameters():
                parameter.data = self.torch.tensor(recipes.weight(name, tuple(parameter.shape)))

    def state(self, function: Any) -> dict[str, np.ndarray]:
        """What a layer holds besides its weights."""
        buffers = function.named_buffers() if isinstance(function, self.torch.nn.Module) else ()
        return {name: buffer.detach().numpy() for name, buffer in buffers}

    def gradients(self, function: Any, inputs: list[Any], count: int) -> list[np.ndarray]:
        """Of the weighted sum of the output, with respect to the inputs and then the weights."""
        inputs = [each.clone() for each in inputs]
        wanted = [each.requires_grad_() for each in [each for each in inputs if each.is_floating_point()][:count]]
        wanted += list(function.parameters()) if isinstance(function, self.torch.nn.Module) else []
        output = function(*inputs)
        slopes = recipes.x(*output.shape, phase=0.5) if output.ndim else np.float32(1)
        (output * self.torch.tensor(slopes)).sum().backward()
        return [np.zeros(each.shape, np.float32) if each.grad is None else each.grad.numpy() for each in wanted]

    def train(self, name: str, start: list[np.ndarray], slope: Any) -> list[list[float]]:
        """Parameters after ten steps of an optimizer."""
        params = [self.torch.nn.Parameter(self.torch.tensor(each)) for each in start]
        optimizer = eval(recipes.OPTIMIZERS[name], {**self.names, "params": params})
        for step in range(recipes.STEPS):
            for parameter, gradient in zip(params, slope([p.detach().numpy() for p in params], step), strict=True):
                parameter.grad = self.torch.tensor(gradient)
            optimizer.step()
        return [each.detach().numpy().ravel().tolist() for each in params]


def mindspore() -> recipes.LikeMindSpore:
    import mindspore as ms

    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.runtime.launch_blocking()
    with contextlib.suppress(SystemError):  # the first product of a process fails in this wheel
        ms.Tensor([1.0]) * ms.Tensor([1.0])
    return recipes.LikeMindSpore(ms)


def recorded(framework: Any, one: recipes.Recipe, expected: type[Exception]) -> Any:
    try:
        return recipes.result(framework, one)
    except expected as error:
        print(f"{one.code}: {type(error).__name__} {str(error).strip().splitlines()[0][:100]}")
        return None


def main() -> None:
    source = sys.argv[1]
    framework = Torch() if source == "torch" else mindspore()
    expected = AttributeError if source == "torch" else Exception  # PyTorch has all but a few names of MindSpore's
    found = {
        "layers": {name: recorded(framework, one, expected) for name, one in recipes.LAYERS.items()},
        "functions": {name: recorded(framework, one, expected) for name, one in recipes.FUNCTIONS.items()},
    }
    if source == "torch":
        start = optimizer_recipes.start()
        trained = {name: framework.train(name, start, optimizer_recipes.gradients) for name in recipes.OPTIMIZERS}
        found["optimizers"] = {
            name: [[float(f"{value:.8g}") for value in row] for row in rows] for name, rows in trained.items()
        }
    parts = []
    for kind, rows in found.items():
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        parts.append(f"  {json.dumps(kind)}: {{\n{lines}\n  }}")
    version = framework.torch.__version__ if source == "torch" else framework.ms.__version__
    path = TESTS / "mint" / f"recorded_{source}.json"
    path.write_text(f'{{"version": {json.dumps(version)},\n' + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
