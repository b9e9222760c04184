"""Where semi-automatic plans depart from those of MindSpore's compiler, and why: reason → recipes.

Every entry is checked from both sides: the plans must really differ. `docs/operator_parallel.md` explains the reasons.
"""

from __future__ import annotations

FORWARD: dict[str, tuple[str, ...]] = {
    "forward_reduce_scatter is honoured for every MatMul, as documented; MindSpore 2.10 takes no notice of it": (
        "MatMul forward_reduce_scatter",
    ),
    "where several elements are the largest, each gets an equal share of the gradient, so these are counted": (
        "ReduceMax",
        "ReduceMin",
    ),
    "an all-gather over a grid of devices goes along one axis after the other; the elements are the same": (
        "OneHot by rows",
    ),
}

WEIGHTS: dict[str, tuple[str, ...]] = {
    "the cotangent is whole on every device that repeats the operator, so the gradient is too: nothing to combine": (
        "MatMul contraction repeated",
        "all unconfigured, 3 rows",
        "Tile",
        "ReduceSum of rows",
        "ReduceSum unconfigured",
        "Gather by rows, repeated",
    ),
    "an operator that repeats its work has cotangents that stay cut, so its gradient is combined along fewer axes": (
        "columns to rows",
        "columns to rows, all-to-all",
        "grid to grid",
        "whole to grid",
        "all unconfigured, 12 rows",
        "Mul of a row",
        "ReLU",
        "GeLU repeated",
        "Transpose",
        "ExpandDims",
        "Squeeze",
        "Stack",
        "Reshape across the cut",
        "Cast",
        "ReduceSum of columns",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceSum repeated",
    ),
    "the gradient of an operand that is one number is added up where it arises": ("PReLU of one",),
}

BACKWARD: dict[str, tuple[str, ...]] = {
    "a cotangent goes the cheapest way back; MindSpore differentiates what it inserted, so the way back from a slice is a sum": (
        "MatMul columns",
        "MatMul contraction",
        "MatMul all three",
        "MatMul rows and contraction",
        "MatMul rows and columns",
        "MatMul contraction and columns",
        "MatMul contraction repeated",
        "MatMul b turned",
        "MatMul b turned, contraction",
        "MatMul b turned, columns",
        "MatMul a turned",
        "MatMul out all-reduced",
        "MatMul out scattered, columns cut",
        "MatMul forward_reduce_scatter",
        "BatchMatMul",
        "BatchMatMul b turned",
        "Megatron MLP",
        "Megatron MLP with biases",
        "unconfigured between configured",
        "unconfigured between configured, all-to-all",
        "configured between unconfigured",
        "columns to rows",
        "grid to grid",
        "whole to grid",
        "one weight, two users",
        "inputs cut by columns",
        "Add",
        "Add of a column",
        "Mul of a row",
        "Mul of equals",
        "BiasAdd",
        "ReLU",
        "GeLU repeated",
        "LayerNorm of blocks",
        "PReLU",
        "Transpose",
        "Tile",
        "ExpandDims",
        "Squeeze",
        "Stack",
        "Reshape across the cut",
        "Cast",
        "ReduceSum of rows",
        "ReduceSum of columns",
        "ReduceMean",
        "ReduceMax",
        "ReduceSum unconfigured",
        "Gather by columns",
        "Gather by rows, ids not divisible",
        "Gather by rows, repeated",
        "Gather by rows and columns",
        "Gather by rows, all-reduced",
        "Gather by rows and ids",
        "OneHot by rows",
        "OneHot by depth",
        "Conv2D by channels",
        "Conv2D by output channels",
        "MaxPool",
        "optimizer parallel, cut weight",
        "optimizer parallel, contraction cut",
        "optimizer parallel, groups of 2, cut weight",
        "mean of gradients",
    ),
    "the gradient of an operand that is one number is added up where it arises": ("PReLU of one",),
    "an operator that repeats its work has cotangents that stay cut": ("rows to whole", "ReduceMin"),
}

SENDS_MORE: dict[str, tuple[str, ...]] = {
    "where no element equals the extreme after another rounding, the nearest ones share its gradient: their sums are combined": (
        "ReduceMax",
        "ReduceMin",
    ),
    "the copies that Tile makes are cut after they are made, so their cotangents are gathered before they are summed": (
        "Tile",
    ),
}


def names(table: dict[str, tuple[str, ...]]) -> frozenset[str]:
    """All recipes of a table."""
    return frozenset(name for members in table.values() for name in members)
