"""Small nets with cut operators, planned by MindSpore (to record) and by Sporax (to compare) for eight devices.

A recipe is a chain of operators. Each takes the result of the one before, with weights and constants beside it; the squares of
the last result are summed up to a loss. Weights are not made: only their slices are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NUM_DEVICES = 8

FULL = {"full_batch": True}
ALLTOALL = {"full_batch": True, "enable_alltoall": True}


@dataclass(frozen=True)
class Link:
    """One operator of a chain.

    Attributes:
        name: of the primitive.
        attributes: what its constructor takes.
        strategy, out_strategy: how it is cut; None where nothing is said.
        weights: shapes of the Parameters behind the running value.
        table: shape of a Parameter in front of it.
        constants: further arguments.
        marks: what `add_prim_attr` attaches.
        pick: which of several results goes on; all of them added up where it is "all".
        pack: the running value is handed over in a tuple, with the weights.
        pieces: the running value is handed over in a tuple, this many times.
        whole: optimizer parallelism shall leave the weights alone.
    """

    name: str
    attributes: tuple[Any, ...] = ()
    strategy: Any = None
    out_strategy: Any = None
    weights: tuple[tuple[int, ...], ...] = ()
    table: tuple[int, ...] = ()
    constants: tuple[Any, ...] = ()
    marks: tuple[tuple[str, Any], ...] = ()
    pick: int | str | None = None
    pack: bool = False
    pieces: int = 0
    whole: bool = False


@dataclass(frozen=True)
class Recipe:
    """One net.

    Attributes:
        links: the chain.
        shape, dtype: of the input, as one rank feeds it.
        settings: of the parallel context.
        twice: the chain is applied two times, so every Parameter has two users.
    """

    links: tuple[Link, ...]
    shape: tuple[int, ...]
    dtype: str = "float32"
    settings: dict[str, Any] = field(default_factory=lambda: FULL)
    twice: bool = False

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Of the input over all ranks."""
        strategy = self.settings.get("dataset_strategy", "full_batch")
        if strategy == "data_parallel":
            return (self.shape[0] * NUM_DEVICES, *self.shape[1:])
        cuts = strategy[0] if isinstance(strategy, tuple) else (1,) * len(self.shape)
        return tuple(size * cut for size, cut in zip(self.shape, cuts, strict=True))


def net_of(ms: Any, recipe: Recipe) -> Any:
    """The net of a recipe, under `ms`: MindSpore or Sporax."""
    nn, ops = ms.nn, ms.ops

    class Operator(nn.Cell):
        def __init__(self, link: Link) -> None:
            super().__init__()
            self.run = operator_of(ms, link)
            self.constants = tuple(
                ms.Tensor(value, ms.float32) if isinstance(value, float) else value for value in link.constants
            )
            self.pick, self.pack, self.pieces, self.has_table = link.pick, link.pack, link.pieces, bool(link.table)
            self.count = len(link.weights)
            shapes = [*([link.table] if link.table else []), *link.weights]
            for position, shape in enumerate(shapes):
                setattr(self, f"weight{position}", weight_of(ms, f"weight{position}", shape, link))

        def construct(self, x):
            y = self.apply(x)
            if self.pick is None:
                return y
            if self.pick == "all":
                return y[0] + y[1]
            return y[self.pick]

        def apply(self, x):
            if self.pieces:
                return self.run((x, x))
            if self.pack:
                return self.run((x, self.weight0))
            if self.has_table:
                return self.run(self.weight0, x, *self.constants)
            if self.count == 1:
                return self.run(x, self.weight0, *self.constants)
            if self.count == 2:
                return self.run(x, self.weight0, self.weight1, *self.constants)
            return self.run(x, *self.constants)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            links = trainable(recipe)
            self.links = nn.CellList([Operator(link) for link in links])
            self.square, self.total = ops.Square(), ops.ReduceSum()
            self.twice = recipe.twice

        def construct(self, x):
            for link in self.links:
                x = link(x)
            if self.twice:
                for link in self.links:
                    x = link(x)
            return self.total(self.square(x))

    return Net()


def operator_of(ms: Any, link: Link) -> Any:
    """The cut primitive of a link."""
    primitive = getattr(ms.ops, link.name)(*link.attributes)
    if link.strategy is not None:
        primitive.shard(link.strategy, link.out_strategy)
    for name, value in link.marks:
        primitive.add_prim_attr(name, value)
    return primitive


def weight_of(ms: Any, name: str, shape: tuple[int, ...], link: Link) -> Any:
    """A Parameter whose values nobody needs."""
    value = ms.common.initializer.initializer("zeros", shape, ms.float32)
    return ms.Parameter(value, name=name, parallel_optimizer=not link.whole)


def trainable(recipe: Recipe) -> tuple[Link, ...]:
    """The chain; one without a weight gets one in front, on whole tensors, so that there is something to train."""
    if any(link.weights or link.table for link in recipe.links):
        return recipe.links
    ones = (1,) * len(recipe.shape)
    return (Link("Mul", (), (ones, ones), weights=((*ones[1:], recipe.shape[-1]),)), *recipe.links)


def step_of(ms: Any, recipe: Recipe) -> Any:
    """A training step of a recipe."""
    net = net_of(ms, recipe)
    optimizer = ms.nn.Momentum(net.trainable_params(), 0.1, 0.9)
    return ms.nn.TrainOneStepCell(net, optimizer)


def _matmul(strategy: Any = None, inner: int = 32, outer: int = 64, **changes: Any) -> Link:
    attributes = changes.pop("attributes", ())
    shape = (outer, inner) if attributes[1:2] == (True,) else (inner, outer)
    return Link("MatMul", attributes, strategy, weights=(shape,), **changes)


def _one(link: Link, shape: tuple[int, ...] = (64, 32), dtype: str = "float32", **settings: Any) -> Recipe:
    return Recipe((link,), shape, dtype, settings or FULL)


def _chain(*links: Link, shape: tuple[int, ...] = (64, 32), **settings: Any) -> Recipe:
    return Recipe(links, shape, settings=settings or FULL)


def _optimizer(*links: Link, threshold: int = 0, **more: Any) -> Recipe:
    config = {"parallel_optimizer_threshold": threshold, **more}
    return _chain(*links, full_batch=True, enable_parallel_optimizer=True, parallel_optimizer_config=config)


def _matmuls() -> dict[str, Recipe]:
    cuts = {
        "columns": ((1, 1), (1, 8)),
        "rows": ((8, 1), (1, 1)),
        "contraction": ((1, 8), (8, 1)),
        "all three": ((2, 2), (2, 2)),
        "rows and contraction": ((2, 4), (4, 1)),
        "rows and columns": ((2, 1), (1, 4)),
        "contraction and columns": ((1, 2), (2, 4)),
        "repeated": ((4, 1), (1, 1)),
        "contraction repeated": ((1, 4), (4, 1)),
        "nothing": ((1, 1), (1, 1)),
    }
    actual = {f"MatMul {name}": _one(_matmul(strategy)) for name, strategy in cuts.items()}
    turned = {
        "MatMul b turned": _matmul(((2, 2), (2, 2)), attributes=(False, True)),
        "MatMul b turned, contraction": _matmul(((1, 8), (1, 8)), attributes=(False, True)),
        "MatMul b turned, columns": _matmul(((2, 1), (4, 1)), attributes=(False, True)),
        "MatMul a turned": _matmul(((4, 2), (4, 1)), inner=64, attributes=(True, False)),
        "MatMul a turned, rows": _matmul(((1, 8), (1, 1)), inner=64, attributes=(True, False)),
        "MatMul out all-reduced": _matmul(((2, 4), (4, 1)), out_strategy=((2, 1),)),
        "MatMul out scattered": _matmul(((2, 4), (4, 1)), out_strategy=((8, 1),)),
        "MatMul out scattered, columns cut": _matmul(((2, 2), (2, 2)), out_strategy=((4, 2),)),
        "MatMul forward_reduce_scatter": _matmul(((1, 8), (8, 1)), marks=(("forward_reduce_scatter", True),)),
    }
    actual |= {name: _one(link) for name, link in turned.items()}
    actual["MatMul a turned, unconfigured"] = _one(_matmul(None, inner=64, attributes=(True, False)))
    actual["BatchMatMul"] = _one(Link("BatchMatMul", (), ((4, 1, 2), (4, 2, 1)), weights=((8, 32, 16),)), (8, 16, 32))
    actual["BatchMatMul b turned"] = _one(
        Link("BatchMatMul", (False, True), ((2, 2, 1, 2), (2, 2, 1, 2)), weights=((4, 2, 16, 32),)), (4, 2, 16, 32)
    )
    return actual


def _chains() -> dict[str, Recipe]:
    first, second = _matmul(((1, 1), (1, 8))), _matmul(((1, 8), (8, 1)), 64, 32)
    mixed = (_matmul(((2, 1), (1, 4))), Link("ReLU"), _matmul(((2, 4), (4, 1)), 64, 16))
    grid = (Link("ReLU", (), ((4, 2),)), Link("Tanh", (), ((2, 4),)))
    return {
        "Megatron MLP": _chain(first, Link("ReLU", (), ((1, 8),)), second),
        "Megatron MLP with biases": _chain(
            first,
            Link("BiasAdd", (), ((1, 8), (8,)), weights=((64,),)),
            Link("ReLU", (), ((1, 8),)),
            second,
            Link("BiasAdd", (), ((8, 1), (1,)), weights=((32,),)),
        ),
        "unconfigured between configured": _chain(*mixed),
        "unconfigured between configured, all-to-all": _chain(*mixed, **ALLTOALL),
        "configured between unconfigured": _chain(_matmul(), Link("ReLU", (), ((1, 8),)), _matmul(None, 64, 16)),
        "columns to rows": _chain(Link("ReLU", (), ((1, 8),)), Link("Tanh", (), ((8, 1),))),
        "columns to rows, all-to-all": _chain(Link("ReLU", (), ((1, 8),)), Link("Tanh", (), ((8, 1),)), **ALLTOALL),
        "grid to grid": _chain(*grid),
        "rows to whole": _chain(Link("ReLU", (), ((8, 1),)), Link("Tanh", (), ((1, 1),))),
        "whole to grid": _chain(Link("ReLU", (), ((1, 1),)), Link("Tanh", (), ((2, 4),))),
        "one weight, two users": Recipe((_matmul(((2, 4), (4, 1)), 32, 32),), (64, 32), twice=True),
        "all unconfigured": _chain(_matmul(), Link("Add", (), weights=((64,),)), Link("ReLU")),
        "all unconfigured, data parallel": _chain(
            _matmul(), Link("Add", (), weights=((64,),)), Link("ReLU"), dataset_strategy="data_parallel"
        ),
        "all unconfigured, 12 rows": _chain(_matmul(), Link("ReLU"), Link("Softmax"), shape=(12, 32)),
        "all unconfigured, 3 rows": _chain(_matmul(), Link("ReLU"), shape=(3, 32)),
        "inputs cut by columns": _chain(_matmul(((1, 8), (8, 1))), dataset_strategy=((1, 8),), shape=(64, 4)),
    }


def _pointwise() -> dict[str, Recipe]:
    return {
        "Add": _one(Link("Add", (), ((2, 4), (4,)), weights=((32,),))),
        "Add of a column": _one(Link("Add", (), ((2, 4), (2, 1)), weights=((64, 1),))),
        "Mul of a row": _one(Link("Mul", (), ((2, 2), (1, 2)), weights=((1, 32),))),
        "Mul of equals": _one(Link("Mul", (), ((2, 4), (2, 4)), weights=((64, 32),))),
        "BiasAdd": _one(Link("BiasAdd", (), ((4, 2), (2,)), weights=((32,),))),
        "ReLU": _one(Link("ReLU", (), ((1, 8),))),
        "GeLU repeated": _one(Link("GeLU", (), ((1, 2),))),
        "Softmax": _one(Link("Softmax", (-1,), ((4, 1),))),
        "LogSoftmax": _one(Link("LogSoftmax", (-1,), ((8, 1),))),
        "LayerNorm": _one(Link("LayerNorm", (1, 1), ((8, 1), (1,), (1,)), weights=((32,), (32,)), pick=0)),
        "LayerNorm of blocks": _one(
            Link("LayerNorm", (2, 1), ((2, 4, 1), (4, 1), (4, 1)), weights=((8, 16), (8, 16)), pick=0), (4, 8, 16)
        ),
        "PReLU": _one(Link("PReLU", (), ((2, 4), (4,)), weights=((32,),))),
        "PReLU of one": _one(Link("PReLU", (), ((2, 4), (1,)), weights=((1,),))),
        "Transpose": _one(Link("Transpose", (), ((2, 4),), constants=((1, 0),))),
        "Concat": _one(Link("Concat", (1,), ((8, 1), (8, 1)), weights=((64, 32),), pack=True)),
        "Split": _one(Link("Split", (1, 2), ((4, 1),), pick="all")),
        "Tile": _one(Link("Tile", (), ((1, 2),), constants=((1, 2),))),
        "ExpandDims": _one(Link("ExpandDims", (), ((2, 4),), constants=(1,))),
        "Squeeze": _one(Link("Squeeze", (1,), ((2, 1, 4),)), (64, 1, 32)),
        "Stack": _one(Link("Stack", (0,), ((2, 4), (2, 4)), pieces=2)),
        "CumSum": _one(Link("CumSum", (), ((8, 1),), constants=(1,))),
        "StridedSlice": _one(Link("StridedSlice", (), ((4, 1),), constants=((0, 0), (64, 16), (1, 1)))),
        "Reshape": _chain(
            Link("ReLU", (), ((8, 1),)), Link("Reshape", constants=((64, 4, 8),)), Link("Tanh", (), ((8, 1, 1),))
        ),
        "Reshape across the cut": _chain(
            Link("ReLU", (), ((1, 8),)), Link("Reshape", constants=((64, 4, 8),)), Link("Tanh", (), ((8, 1, 1),))
        ),
        "Cast": _chain(Link("ReLU", (), ((2, 4),)), Link("Sigmoid", (), ((2, 4),))),
    }


def _reductions() -> dict[str, Recipe]:
    def reduce(name: str, strategy: Any, axis: int, keep: bool = False) -> Recipe:
        return _one(Link(name, (keep,), strategy, constants=(axis,)))

    return {
        "ReduceSum of rows": reduce("ReduceSum", ((8, 1),), 0),
        "ReduceSum of columns": reduce("ReduceSum", ((2, 4),), 1),
        "ReduceMean": reduce("ReduceMean", ((2, 4),), 1, True),
        "ReduceMax": reduce("ReduceMax", ((2, 4),), 1),
        "ReduceMin": reduce("ReduceMin", ((4, 2),), 0, True),
        "ReduceSum repeated": reduce("ReduceSum", ((1, 2),), 0),
        "ReduceSum unconfigured": _one(Link("ReduceSum", (False,), constants=(0,))),
    }


def _lookups() -> dict[str, Recipe]:
    def gather(strategy: Any, shape: tuple[int, ...], **changes: Any) -> Recipe:
        link = Link("Gather", (), strategy, table=(32, 16), constants=(changes.pop("axis", 0),), **changes)
        return _one(link, shape, "int32")

    return {
        "Gather by ids": gather(((1, 1), (8, 1)), (16, 4)),
        "Gather by ids, repeated": gather(((1, 1), (2, 1)), (16, 4)),
        "Gather by columns": gather(((1, 4), (2, 1)), (16, 4)),
        "Gather by rows": gather(((8, 1), (1, 1)), (16, 4)),
        "Gather by rows, 1-D ids": gather(((8, 1), (1,)), (16,)),
        "Gather by rows, ids not divisible": gather(((8, 1), (1, 1)), (12, 4)),
        "Gather by rows, repeated": gather(((4, 1), (1, 1)), (16, 4)),
        "Gather by rows and columns": gather(((4, 2), (1, 1)), (16, 4)),
        "Gather by rows, all-reduced": gather(((8, 1), (1, 1)), (16, 4), out_strategy=((1, 1, 1),)),
        "Gather by rows, scattered": gather(((8, 1), (1, 1)), (16, 4), out_strategy=((8, 1, 1),)),
        "Gather by rows and ids": gather(((4, 1), (2, 1)), (16, 4)),
        "Gather unconfigured": gather(None, (16, 4)),
        "OneHot by rows": _chain_int(Link("OneHot", (), ((8, 1), (), ()), constants=(32, 1.0, 0.0))),
        "OneHot by depth": _chain_int(Link("OneHot", (), ((1, 8), (), ()), constants=(32, 1.0, 0.0))),
        "TopK": _one(Link("TopK", (), ((8, 1),), constants=(4,), pick=0)),
    }


def _chain_int(link: Link) -> Recipe:
    return Recipe((link, _matmul(((2, 2), (2, 2)))), (16,), "int32")


def _images() -> dict[str, Recipe]:
    def convolution(strategy: Any, **changes: Any) -> Recipe:
        attributes = (16, 3, 1, "same", 0, 1, 1, changes.pop("group", 1))
        shape = (16, 1 if attributes[-1] > 1 else 16, 3, 3)
        return _one(Link("Conv2D", attributes, strategy, weights=(shape,)), (16, 16, 8, 8))

    return {
        "Conv2D by batch": convolution(((8, 1, 1, 1), (1, 1, 1, 1))),
        "Conv2D by channels": convolution(((2, 2, 1, 1), (2, 2, 1, 1))),
        "Conv2D by output channels": convolution(((1, 1, 1, 1), (8, 1, 1, 1))),
        "Conv2D unconfigured": convolution(None),
        "MaxPool": _one(Link("MaxPool", (2, 2), ((2, 2, 2, 1),)), (16, 16, 8, 8)),
    }


def _optimizers() -> dict[str, Recipe]:
    cut = _matmul(((2, 1), (1, 4)))
    return {
        "optimizer parallel": _optimizer(_matmul(), Link("Add", (), weights=((64,),))),
        "optimizer parallel, cut weight": _optimizer(cut),
        "optimizer parallel, contraction cut": _optimizer(_matmul(((2, 4), (4, 1)))),
        "optimizer parallel, not divisible": _optimizer(_matmul(None, 32, 12, attributes=(False, True))),
        "optimizer parallel, too small": _optimizer(_matmul(), Link("Add", (), weights=((64,),)), threshold=4),
        "optimizer parallel, groups of 2": _optimizer(_matmul(), optimizer_weight_shard_size=2),
        "optimizer parallel, groups of 4": _optimizer(_matmul(), optimizer_weight_shard_size=4),
        "optimizer parallel, groups of 2, cut weight": _optimizer(
            _matmul(((4, 1), (1, 2))), optimizer_weight_shard_size=2
        ),
        "optimizer parallel, groups of 3": _optimizer(_matmul(), optimizer_weight_shard_size=3),
        "optimizer parallel, left alone": _optimizer(_matmul(None, whole=True)),
        "optimizer parallel, default threshold": _chain(
            _matmul(None, 32, 512), full_batch=True, enable_parallel_optimizer=True
        ),
        "mean of gradients": _chain(_matmul(((2, 1), (1, 4))), full_batch=True, gradients_mean=True),
    }


RECIPES: dict[str, Recipe] = {
    **_matmuls(),
    **_chains(),
    **_pointwise(),
    **_reductions(),
    **_lookups(),
    **_images(),
    **_optimizers(),
}


def _image(strategy: Any, pad_mode: str = "valid", kernel: int = 3, group: int = 1) -> Recipe:
    weight = (16, 16 // group, kernel, kernel)
    link = Link("Conv2D", (16, kernel, 1, pad_mode, 0, 1, 1, group), strategy, weights=(weight,))
    return _one(link, (16, 16, 8, 8))


def _ids(strategy: Any, axis: int = 0) -> Recipe:
    return _one(Link("Gather", (), strategy, table=(32, 16), constants=(axis,)), (16, 4), "int32")


REFUSED: dict[str, Recipe] = {
    "too many tuples": _one(Link("ReLU", (), ((8, 1), (1, 1)))),
    "too few numbers": _one(Link("ReLU", (), ((8,),))),
    "a cut of 0": _one(Link("ReLU", (), ((0, 1),))),
    "a cut that is no power of 2": _one(Link("ReLU", (), ((3, 1),)), (24, 32)),
    "a cut that does not divide": _one(Link("ReLU", (), ((8, 1),)), (12, 32)),
    "more slices than devices": _one(Link("ReLU", (), ((8, 2),))),
    "contraction cut in two ways": _one(_matmul(((2, 4), (2, 1)))),
    "result cut otherwise": _one(_matmul(((2, 4), (4, 1)), out_strategy=((4, 2),))),
    "result of ReLU": _one(Link("ReLU", (), ((8, 1),), ((8, 1),))),
    "sum cut in two ways": _one(Link("Add", (), ((2, 4), (2,)), weights=((32,),))),
    "product cut in two ways": _one(Link("Mul", (), ((2, 4), (1, 4)), weights=((64, 32),))),
    "bias cut otherwise": _one(Link("BiasAdd", (), ((4, 2), (1,)), weights=((32,),))),
    "slopes cut otherwise": _one(Link("PReLU", (), ((2, 4), (2,)), weights=((32,),))),
    "Softmax along its axis": _one(Link("Softmax", (-1,), ((1, 8),))),
    "LayerNorm along its axis": _one(Link("LayerNorm", (1, 1), ((1, 8), (8,), (8,)), weights=((32,), (32,)), pick=0)),
    "Concat along its axis": _one(Link("Concat", (1,), ((1, 8), (1, 8)), weights=((64, 32),), pack=True)),
    "Split along its axis": _one(Link("Split", (1, 2), ((1, 8),), pick="all")),
    "CumSum along its axis": _one(Link("CumSum", (), ((1, 8),), constants=(1,))),
    "TopK along its axis": _one(Link("TopK", (), ((1, 8),), constants=(4,), pick=0)),
    "part of a cut dimension": _one(Link("StridedSlice", (), ((4, 2),), constants=((0, 0), (64, 16), (1, 1)))),
    "part of a cut dimension, Slice": _one(Link("Slice", (), ((4, 2),), constants=((0, 0), (64, 16)))),
    "ids and rows": _ids(((4, 2), (2, 1))),
    "ids and rows on half of the devices": _ids(((2, 1), (2, 1))),
    "last dimension of ids and rows": _ids(((4, 1), (1, 2))),
    "overlapping windows": _image(((1, 1, 2, 1), (1, 1, 1, 1))),
    "channels of groups": _image(((1, 1, 1, 1), (2, 1, 1, 1)), "same", group=16),
    "overlapping windows of MaxPool": _one(Link("MaxPool", (3, 2), ((1, 1, 2, 1),)), (16, 16, 8, 8)),
    "one number for OneHot": _chain_int(Link("OneHot", (), ((8,), (), ()), constants=(32, 1.0, 0.0))),
}
"""Nets whose strategies are refused."""
