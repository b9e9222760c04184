"""What the golden checkpoint files hold. Read by their recorder, under MindSpore, and by the tests, under Sporax."""

from __future__ import annotations

from typing import Any

import numpy as np

# MindSpore's name of a dtype -> numpy's; bfloat16 comes from float32 values that it holds exactly.
DTYPES = {
    "bool_": "bool",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "bfloat16": "float32",
}
APPENDED = {"epoch_num": 3, "loss_scale": 1024.5, "finished": True, "note": "grüße"}
SLICED_SHAPE = (48, 16)  # 3 KiB of float32
SLICE_BYTES = 1024


def values(name: str) -> np.ndarray[Any, Any]:
    """Values of one dtype, exact in it."""
    numbers = np.arange(6).reshape(2, 3)
    if name == "bool_":
        return numbers % 2 == 0
    if name.startswith("uint"):
        return (numbers * 40).astype(DTYPES[name])
    return ((numbers - 2.5) * 2).astype(DTYPES[name]) / (np.asarray(4, DTYPES[name]) if "float" in name else 1)


def parameters(framework: Any) -> list[Any]:
    """A Parameter of every dtype, a scalar and one with a single element."""
    tensor, parameter = framework.Tensor, framework.Parameter
    actual = []
    for name in DTYPES:
        dtype = getattr(framework, name)
        actual.append(parameter(tensor(values(name).astype(DTYPES[name]), dtype), name=f"layer.{name}"))
    actual.append(parameter(tensor(2.5, framework.float32), name="scalar"))
    actual.append(parameter(tensor([7], framework.int32), name="one_element"))
    return actual


def sliced(framework: Any) -> list[Any]:
    """A Parameter that is written in slices when they have `SLICE_BYTES`, between two small ones."""
    big = np.arange(np.prod(SLICED_SHAPE), dtype=np.float32).reshape(SLICED_SHAPE)
    small = np.ones((2,), np.float32)
    arrays = {"before": small, "big": big, "after": small * 2}
    return [framework.Parameter(framework.Tensor(array), name=name) for name, array in arrays.items()]


def training_step(framework: Any) -> Any:
    """A training network after two steps, with all that its optimizer keeps."""
    nn = framework.nn
    net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
    for index, parameter in enumerate(net.get_parameters()):
        ramp = np.linspace(-1, 1, int(np.prod(parameter.shape)), dtype=np.float32) / (index + 1)
        parameter.set_data(framework.Tensor(ramp.reshape(parameter.shape)))
    optimizer = nn.Adam(net.trainable_params(), 0.01)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    data = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    for _ in range(2):
        step(framework.Tensor(data), framework.Tensor(data[:, :2]))
    return step
