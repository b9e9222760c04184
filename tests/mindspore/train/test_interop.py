"""Torch state dicts in safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from sporax.mindspore import mint, nn
from sporax.mindspore.train import load_torch_weights, torch_names

# As torch names the state of Sequential(Conv2d(1, 2, 3), BatchNorm2d(2), Flatten(), Linear(8, 3), Embedding(5, 4)).
STATE = {
    "0.weight": (2, 1, 3, 3),
    "0.bias": (2,),
    "1.weight": (2,),
    "1.bias": (2,),
    "1.running_mean": (2,),
    "1.running_var": (2,),
    "1.num_batches_tracked": (),
    "3.weight": (3, 8),
    "3.bias": (3,),
    "4.weight": (5, 4),
}


def make_net() -> nn.Cell:
    return nn.SequentialCell(
        nn.Conv2d(1, 2, 3, has_bias=True), nn.BatchNorm2d(2), nn.Flatten(), nn.Dense(8, 3), nn.Embedding(5, 4)
    )


@pytest.fixture
def state() -> dict[str, Any]:
    return {name: np.full(shape, index, np.float32) for index, (name, shape) in enumerate(STATE.items(), 1)}


def test_names_are_worked_out_from_the_cells(tmp_path: Path, state: dict[str, Any]) -> None:
    path = str(tmp_path / "model.safetensors")
    save_file(state, path)
    net = make_net()
    assert load_torch_weights(net, path) == ([], [])
    assert torch_names(net)["1.running_var"] == "1.moving_variance"
    for torch_name, name in torch_names(net).items():
        np.testing.assert_array_equal(net.parameters_dict()[name].asnumpy(), state[torch_name])


def test_layers_that_hold_another_are_one_layer_in_torch() -> None:
    names = torch_names(nn.SequentialCell(nn.BatchNorm3d(2), nn.Dense(2, 2)))
    assert list(names) == ["0.running_mean", "0.running_var", "0.weight", "0.bias", "1.weight", "1.bias"]
    assert names["0.weight"] == "0.bn2d.gamma"


def test_a_map_renames(tmp_path: Path, state: dict[str, Any]) -> None:
    path = str(tmp_path / "model.safetensors")
    save_file({f"model.{name}": value for name, value in state.items()}, path)
    net = make_net()
    names = torch_names(net)
    assert load_torch_weights(net, path, {f"model.{name}": mine for name, mine in names.items()}) == ([], [])
    assert load_torch_weights(net, path, lambda name: names.get(name.removeprefix("model."))) == ([], [])


def test_names_left_over_are_refused_unless_allowed(tmp_path: Path, state: dict[str, Any]) -> None:
    path = str(tmp_path / "model.safetensors")
    del state["3.bias"]
    state["head.weight"] = np.zeros((1,), np.float32)
    save_file(state, path)
    net = make_net()
    before = net[0].weight.asnumpy()
    with pytest.raises(RuntimeError, match=r"network's \['3.bias'\] are not there and the file's \['head.weight'\]"):
        load_torch_weights(net, path)
    np.testing.assert_array_equal(net[0].weight.asnumpy(), before)
    with pytest.warns(UserWarning, match="keep their values: 3.bias"):
        assert load_torch_weights(net, path, strict=False) == (["3.bias"], ["head.weight"])
    with pytest.raises(TypeError, match="'name_map' must be a dict or a function"):
        load_torch_weights(net, path, 3)


def test_layers_of_mint_have_the_names_of_torch(tmp_path: Path, state: dict[str, Any]) -> None:
    path = str(tmp_path / "model.safetensors")
    state["1.num_batches_tracked"] = np.array(7, np.int64)
    save_file(state, path)
    net = nn.SequentialCell(
        mint.nn.Conv2d(1, 2, 3),
        mint.nn.BatchNorm2d(2),
        mint.nn.Flatten(),
        mint.nn.Linear(8, 3),
        mint.nn.Embedding(5, 4),
    )
    assert load_torch_weights(net, path) == ([], [])
    assert {parameter.name for parameter in net.get_parameters()} == STATE.keys()
    assert net[1].num_batches_tracked.item() == 7
    np.testing.assert_array_equal(net[4].weight.asnumpy(), state["4.weight"])
