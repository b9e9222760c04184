"""Operators on data of one size, to which strategies are given: by MindSpore (to record) and by Sporax (to compare)."""

from __future__ import annotations

from typing import Any

import numpy as np

S = 48
IMAGES, VOLUMES, FEW_IMAGES, SQUARE, ROWS = (S, 24, S, S), (S, 24, 8, 8, 8), (S, 24, 8, 8), (S, S), (S, 24)

# name: primitive and what its constructor takes, shapes of its inputs ("i": integers, "b": bools), and a list of further inputs
OPERATORS: dict[str, tuple[tuple[str, tuple[Any, ...], dict[str, Any]], tuple[Any, ...], tuple[tuple[Any, ...], ...]]] = {
    "StridedSlice": (("StridedSlice", (), {}), ((48, 48, 16),), (((0, 0, 0), (48, 48, 8), (1, 1, 1)), ((0, 0, 0), (48, 24, 16), (1, 1, 1)), ((0, 0, 0), (48, 48, 16), (1, 2, 1)), ((0, 0, 0), (48, -1, 16), (1, 1, 1)),)),
    "StridedSliceMask": (("StridedSlice", (), {'begin_mask': 1, 'end_mask': 3}), ((48, 48, 16),), (((0, 0, 0), (48, 48, 8), (1, 1, 1)), ((4, 0, 0), (48, 48, 8), (1, 1, 1)), ((4, 0, 0), (40, 40, 8), (1, 1, 1)), ((0, 4, 0), (40, 48, 8), (1, 1, 1)), ((0, 0, 0), (40, 40, 8), (1, 1, 1)),)),
    "StridedSliceNew": (("StridedSlice", (), {'new_axis_mask': 1}), ((48, 48, 16),), (((0, 0, 0), (1, 48, 48), (1, 1, 1)),)),
    "StridedSliceShrink": (("StridedSlice", (), {'shrink_axis_mask': 4}), ((48, 48, 16),), (((0, 0, 0), (48, 48, 1), (1, 1, 1)),)),
    "StridedSliceB3": (("StridedSlice", (), {'begin_mask': 3}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceE3": (("StridedSlice", (), {'end_mask': 3}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceEnds": (("StridedSlice", (), {}), ((48, 24, 16),), (((0, 0, 0), (48, 24, 16), (1, 1, 1)), ((0, 0, 0), (50, 24, 20), (1, 1, 1)), ((0, 0, 4), (48, 24, 12), (1, 1, 2)), ((0, 0, 0), (-1, 24, 16), (1, 1, 1)), ((0,), (48,), (1,)))),
    "StridedSliceN1b2": (("StridedSlice", (), {'new_axis_mask': 1, 'begin_mask': 2}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceN1s1": (("StridedSlice", (), {'new_axis_mask': 1, 'shrink_axis_mask': 1}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceN2": (("StridedSlice", (), {'new_axis_mask': 2}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceN20": (("StridedSlice", (), {'new_axis_mask': 20}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceN2s1": (("StridedSlice", (), {'new_axis_mask': 2, 'shrink_axis_mask': 1}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceN4e6": (("StridedSlice", (), {'new_axis_mask': 4, 'end_mask': 6}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceN7": (("StridedSlice", (), {'new_axis_mask': 7}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceS1": (("StridedSlice", (), {'shrink_axis_mask': 1}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "StridedSliceS4": (("StridedSlice", (), {'shrink_axis_mask': 4}), ((16, 24, 48),), (((0, 0, 0), (16, 24, 48), (1, 1, 1)), ((1, 1, 0), (16, 24, 48), (1, 1, 1)), ((0, 0, 0), (1, 24, 48), (1, 1, 1)), ((0, 0), (16, 48), (1, 1)), ((0, 4, 0), (16, 20, 48), (1, 1, 1)))),
    "PadV3": (("PadV3", (), {}), (SQUARE,), (((1, 1), 0.0), ((0, 0, 1, 1), 0.0), ((0, 0, 1, 1),),)),
    "Pow": (("Pow", (), {}), (SQUARE,), ((2.0,),)),
    "PowT": (("Pow", (), {}), (SQUARE, (48,)), ((),)),
    "AddScalar": (("Add", (), {}), (SQUARE, (1,)), ((),)),
    "Mul3": (("Mul", (), {}), (SQUARE, (48, 1)), ((),)),
    "ArgMax": (("Argmax", (), {'axis': -1}), (SQUARE,), ((),)),
    "ArgMaxV": (("ArgMaxWithValue", (), {'axis': 0}), (SQUARE,), ((),)),
    "MaxPool3D": (("MaxPool3D", (2, 2), {}), (VOLUMES,), ((),)),
    "AvgPool3D": (("AvgPool3D", (2, 2), {}), (VOLUMES,), ((),)),
    "MaxPool": (("MaxPool", (3, 1, 'same'), {}), (IMAGES,), ((),)),
    "AvgPool": (("AvgPool", (2, 2), {}), (IMAGES,), ((),)),
    "Conv2D": (("Conv2D", (24, 3), {'pad_mode': 'same'}), (IMAGES, (24, 24, 3, 3)), ((),)),
    "Conv2Ds2": (("Conv2D", (24, 2), {'stride': 2}), (IMAGES, (24, 24, 2, 2)), ((),)),
    "Conv2Ddepth": (("Conv2D", (24, 3), {'pad_mode': 'same', 'group': 24}), (IMAGES, (24, 1, 3, 3)), ((),)),
    "Conv2DT": (("Conv2DTranspose", (24, 2), {'stride': 2}), ((48, 24, 24, 24), (24, 24, 2, 2)), (((48, 24, 48, 48),),)),
    "Gather0": (("Gather", (), {}), ((48, 16), ("i", ROWS)), ((0,),)),
    "Gather1": (("Gather", (), {}), ((48, 16), ("i", (24,))), ((1,),)),
    "Transpose": (("Transpose", (), {}), ((48, 48, 24),), (((1, 0, 2),),)),
    "BatchMatMul": (("BatchMatMul", (), {}), ((48, 24, 48, 24), (48, 24, 24, 48)), ((),)),
    "MatMul": (("MatMul", (), {}), (ROWS, (24, 48)), ((),)),
    "MatMulT": (("MatMul", (False, True), {}), (ROWS, ROWS), ((),)),
    "Softmax": (("Softmax", (), {}), (SQUARE,), ((),)),
    "ReduceSum": (("ReduceSum", (), {}), (SQUARE,), ((0,), ((0, 1),),)),
    "ReduceMean": (("ReduceMean", (True,), {}), (SQUARE,), ((1,),)),
    "CumSum": (("CumSum", (), {}), (SQUARE,), ((0,),)),
    "TopK": (("TopK", (), {}), (SQUARE,), ((4,),)),
    "Sort": (("Sort", (), {}), (SQUARE,), ((),)),
    "BatchNorm": (("BatchNorm", (True,), {}), (FEW_IMAGES, (24,), (24,), (24,), (24,)), ((),)),
    "Concat": (("Concat", (1,), {}), (SQUARE, SQUARE), ((),)),
    "Stack": (("Stack", (0,), {}), (SQUARE, SQUARE), ((),)),
    "Split": (("Split", (1, 2), {}), (SQUARE,), ((),)),
    "Tile": (("Tile", (), {}), (SQUARE,), (((2, 1),), ((1, 4),),)),
    "BroadcastTo": (("BroadcastTo", ((24, 48, 48),), {}), (SQUARE,), ((),)),
    "ExpandDims": (("ExpandDims", (), {}), (SQUARE,), ((1,),)),
    "Squeeze": (("Squeeze", (1,), {}), ((48, 1, 48),), ((),)),
    "OneHot": (("OneHot", (), {}), (("i", (48,)),), ((24, 'one', 'zero'),)),
    "Dropout": (("Dropout", (0.5,), {}), (SQUARE,), ((),)),
    "GatherNd": (("GatherNd", (), {}), (SQUARE, ("i", (48, 24, 1))), ((),)),
    "TensorScatterUpdate": (("TensorScatterUpdate", (), {}), (SQUARE, ("i", (24, 1)), (24, 48)), ((),)),
    "TensorScatterAdd": (("TensorScatterAdd", (), {}), (SQUARE, ("i", (24, 1)), (24, 48)), ((),)),
    "UnsortedSegmentSum": (("UnsortedSegmentSum", (), {}), (SQUARE, ("i", (48,))), ((16,),)),
    "MaskedFill": (("MaskedFill", (), {}), (SQUARE, ("b", SQUARE)), (('one',),)),
    "Select": (("Select", (), {}), (("b", SQUARE), SQUARE, SQUARE), ((),)),
    "ReLU": (("ReLU", (), {}), (SQUARE,), ((),)),
    "GeLU": (("GeLU", (), {}), ((48, 24, 16),), ((),)),
    "PReLU": (("PReLU", (), {}), ((48, 24, 8), (24,)), ((),)),
    "BiasAdd": (("BiasAdd", (), {}), (ROWS, (24,)), ((),)),
    "L2Normalize": (("L2Normalize", (1,), {}), (SQUARE,), ((),)),
    "SCEL": (("SoftmaxCrossEntropyWithLogits", (), {}), (ROWS, ROWS), ((),)),
    "KLDiv": (("KLDivLoss", ('none',), {}), (ROWS, ROWS), ((),)),
    "SmoothL1": (("SmoothL1Loss", (), {}), (ROWS, ROWS), ((),)),
    "ResizeBilinear": (("ResizeBilinearV2", (), {}), (FEW_IMAGES,), (((16, 16),),)),
    "ResizeNN": (("ResizeNearestNeighbor", ((16, 16),), {}), (FEW_IMAGES,), ((),)),
    "Cdist": (("Cdist", (), {}), ((48, 24, 8), (48, 16, 8)), ((),)),
    "LogSoftmax": (("LogSoftmax", (), {}), (SQUARE,), ((),)),
    "InplaceUpdate": (("InplaceAdd", ((0, 1),), {}), (SQUARE, (2, 48)), ((),)),
    "Lerp": (("Lerp", (), {}), (SQUARE, SQUARE), ((0.5,),)),
    "RmsNorm": (("RmsNorm", (), {}), ((48, 24, 48), (48,)), ((),)),
    "Reverse": (("ReverseV2", ([0],), {}), (SQUARE,), ((),)),
    "ReverseRows": (("ReverseV2", ([1],), {}), (SQUARE,), ((),)),
    "ReduceAny": (("ReduceAny", (), {}), (("b", SQUARE),), ((0,),)),
    "Cumprod": (("CumProd", (), {}), (SQUARE,), ((0,),)),
    "Erf": (("Erf", (), {}), (SQUARE,), ((),)),
    "SquaredDiff": (("SquaredDifference", (), {}), (SQUARE, (48,)), ((),)),
    "Less": (("Less", (), {}), (SQUARE, SQUARE), ((),)),
    "ReduceMax": (("ReduceMax", (), {}), (SQUARE,), ((0,),)),
    "SigCE": (("SigmoidCrossEntropyWithLogits", (), {}), (ROWS, ROWS), ((),)),
    "Triu": (("Triu", (), {}), (SQUARE,), ((),)),
    "MulS": (("Mul", (), {}), (SQUARE,), ((2.0,),)),
    "ArgMin": (("Argmin", (), {'axis': -1}), (SQUARE,), ((),)),
    "MaxPool22": (("MaxPool", (2, 2), {}), (IMAGES,), ((),)),
    "LerpS": (("Lerp", (), {}), (SQUARE, SQUARE), ((0.5,),)),
    "CT31": (("Conv2DTranspose", (24, 3), {'pad_mode': 'same'}), ((48, 24, 24, 24), (24, 24, 3, 3)), (((48, 24, 24, 24),),)),
    "CT32": (("Conv2DTranspose", (24, 3), {'pad_mode': 'same', 'stride': 2}), ((48, 24, 24, 24), (24, 24, 3, 3)), (((48, 24, 48, 48),),)),
    "CT42": (("Conv2DTranspose", (24, 4), {'pad_mode': 'same', 'stride': 2}), ((48, 24, 24, 24), (24, 24, 4, 4)), (((48, 24, 48, 48),),)),
    "TSM": (("TensorScatterMul", (), {}), (SQUARE, ("i", (24, 1)), (24, 48)), ((),)),
    "TSX": (("TensorScatterMax", (), {}), (SQUARE, ("i", (24, 1)), (24, 48)), ((),)),
    "TSD": (("TensorScatterDiv", (), {}), (SQUARE, ("i", (24, 1)), (24, 48)), ((),)),
    "BMM3": (("BatchMatMul", (), {}), ((48, 24, 16), (48, 16, 24)), ((),)),
    "TransposeO": (("Transpose", (), {}), ((48, 48, 24),), (((1, 0, 2),),)),
}  # fmt: skip


def inputs_of(ms: Any, name: str) -> list[Any]:
    """Data for an operator."""
    kinds = {"i": np.int32, "b": np.bool_}
    shapes = [item if isinstance(item[0], str) else ("", item) for item in OPERATORS[name][1]]
    return [ms.Tensor(np.ones(shape, kinds.get(kind, np.float32))) for kind, shape in shapes]


def net_of(ms: Any, name: str, further: int, strategy: Any) -> Any:
    """A Cell that runs an operator of `OPERATORS` under a strategy, with one of its lists of further inputs."""
    (primitive, arguments, settings), _, choices = OPERATORS[name]
    scalars = {"one": ms.Tensor(1.0, ms.float32), "zero": ms.Tensor(0.0, ms.float32)}
    more = tuple(scalars.get(item, item) if isinstance(item, str) else item for item in choices[further])
    joins = primitive in ("Concat", "Stack")

    class Net(ms.nn.Cell):  # type: ignore[misc]  # a Cell of either library
        def __init__(self) -> None:
            super().__init__()
            self.operator = getattr(ms.ops, primitive)(*arguments, **settings).shard(strategy)

        def construct(self, *inputs: Any) -> Any:
            result = self.operator(inputs, *more) if joins else self.operator(*inputs, *more)
            return result[-1] if isinstance(result, tuple) else result

    return Net()
