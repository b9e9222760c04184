from collections import OrderedDict

import numpy as np
import pytest

from sporax.base.errors import (
    SporaxIndexError,
    SporaxKeyError,
    SporaxNotImplementedError,
    SporaxTypeError,
    SporaxValueError,
)
from sporax.mindspore import Tensor, nn


def names(cell):
    return [parameter.name for parameter in cell.get_parameters()]


def kinds(cells):
    return [type(cell).__name__ for cell in cells]


def test_sequential_runs_in_order():
    double = nn.Dense(1, 1, weight_init=2.0, bias_init=0.0)
    add = nn.Dense(1, 1, weight_init=1.0, bias_init=3.0)
    assert nn.SequentialCell(double, add)(Tensor([[1.0]])).asnumpy() == 5
    assert nn.SequentialCell([add, double])(Tensor([[1.0]])).asnumpy() == 8


def test_sequential_takes_names_from_a_dict():
    net = nn.SequentialCell(OrderedDict(first=nn.Dense(1, 1), second=nn.ReLU()))
    assert names(net) == ["first.weight", "first.bias"]
    assert net["second"] is net[1]


def test_sequences_are_edited_like_lists():
    net = nn.SequentialCell(nn.ReLU(), nn.Tanh())
    net.append(nn.Sigmoid())
    net.insert(0, nn.Dense(2, 2))
    net.extend([nn.GELU()])
    assert kinds(net) == ["Dense", "ReLU", "Tanh", "Sigmoid", "GELU"]
    assert names(net) == ["0.weight", "0.bias"]
    net[1] = nn.SiLU()
    del net[-1]
    assert kinds(net) == ["Dense", "SiLU", "Tanh", "Sigmoid"]
    assert kinds(net[1:3]) == ["SiLU", "Tanh"]
    assert len(net) == 4
    with pytest.raises(SporaxIndexError, match=r"\[-4, 4\)"):
        net[4]
    with pytest.raises(SporaxTypeError, match="index must be an int"):
        net[1.0]


def test_inserting_renames_parameters():
    cells = nn.CellList([nn.Dense(1, 1), nn.Dense(1, 1)])
    cells.insert(0, nn.Dense(1, 1))
    assert names(cells) == [f"{index}.{name}" for index in range(3) for name in ("weight", "bias")]


def test_only_cells_are_taken():
    with pytest.raises(SporaxTypeError, match=r"'args\[0\]' must be a Cell, but got int"):
        nn.SequentialCell(3)
    with pytest.raises(SporaxTypeError, match="must be a Cell"):
        nn.CellList([nn.ReLU(), 3])
    with pytest.raises(SporaxTypeError, match="must be a Cell"):
        nn.CellDict({"a": 3})


def test_list_cannot_be_called():
    with pytest.raises(SporaxNotImplementedError, match="use SequentialCell"):
        nn.CellList([nn.ReLU()])(Tensor([1.0]))


def test_list_without_prefix_keeps_names():
    assert names(nn.CellList([nn.Dense(1, 1)], auto_prefix=False)) == ["weight", "bias"]


def test_dict_is_edited_by_name():
    cells = nn.CellDict([["a", nn.Dense(1, 1)], ["b", nn.ReLU()]])
    assert names(cells) == ["a.weight", "a.bias"]
    assert list(cells) == list(cells.keys()) == ["a", "b"]
    assert kinds(cells.values()) == ["Dense", "ReLU"]
    assert "a" in cells
    cells["c"] = nn.Tanh()
    assert isinstance(cells.pop("a"), nn.Dense)
    cells.update({"b": nn.GELU()})
    assert [(name, type(cell).__name__) for name, cell in cells.items()] == [("b", "GELU"), ("c", "Tanh")]
    del cells["b"]
    assert len(cells) == 1
    cells.clear()
    assert len(cells) == 0
    with pytest.raises(SporaxKeyError, match="no key 'gone'"):
        cells["gone"]
    with pytest.raises(SporaxKeyError, match="cannot name a Cell"):
        cells["a.b"] = nn.ReLU()


def test_children_of_lists_and_dicts_bring_the_name_of_these_along():
    """A list is never called, so it has no place of its own in paths of programs and messages."""

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.blocks = nn.CellList([nn.Dense(2, 3), nn.CellList([nn.Dense(4, 3)])])
            self.blocks.append(nn.Dense(5, 3))
            self.heads = nn.CellDict({"a": nn.Dense(6, 3)})
            self.heads["b"] = nn.Dense(7, 3)

        def construct(self, x, cell):
            return cell(x)

    net = Net()
    cells = {"blocks.0": net.blocks[0], "blocks.1.0": net.blocks[1][0], "blocks.2": net.blocks[2]}
    for path, cell in {**cells, "heads.a": net.heads["a"], "heads.b": net.heads["b"]}.items():
        with pytest.raises(SporaxValueError) as caught:
            net(Tensor(np.ones((2, 9), np.float32)), cell)
        assert str(caught.value).endswith(f"in Cell 'Net.{path}'")


@pytest.mark.parametrize("put", [lambda cells, cell: cells.append(cell), lambda cells, cell: cells.extend([cell])])
def test_cells_behind_a_sequence_are_named_as_in_mindspore(put):
    cells = nn.CellList()
    for _ in range(3):
        put(cells, nn.SequentialCell(nn.Dense(2, 2, has_bias=False)))
    assert [parameter.name for parameter in cells.get_parameters()] == ["0.0.weight", "0.1.0.weight", "0.2.0.weight"]
    plain = nn.CellList([nn.Dense(2, 2, has_bias=False)])
    put(plain, nn.Dense(2, 2, has_bias=False))
    assert [parameter.name for parameter in plain.get_parameters()] == ["0.weight", "1.weight"]
