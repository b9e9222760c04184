"""One call of every operator that MindSpore's documentation lists as cuttable, with strategies to try.

A case says how to make the primitive, what it is called with, and how it may be cut; strategies that are not written down are
drawn from all that the planner accepts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sporax.mindspore import ops

NUM_DEVICES = 8


@dataclass(frozen=True)
class Value:
    """A tensor input.

    Attributes:
        shape: its shape.
        low, high: limits of its elements.
        dtype: name of the dtype.
        distinct: whether all elements differ.
    """

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: str = "float32"
    distinct: bool = False

    def array(self, seed: int) -> np.ndarray:
        """Random elements."""
        rng = np.random.default_rng(seed)
        if self.distinct:
            steps = rng.permutation(math.prod(self.shape)).reshape(self.shape)
            return (self.low + (self.high - self.low) * steps / steps.size).astype(self.dtype)
        if self.dtype == "bool":
            return rng.random(self.shape) < 0.5
        if self.dtype.startswith("int"):
            return rng.integers(int(self.low), int(self.high), self.shape).astype(self.dtype)
        return rng.uniform(self.low, self.high, self.shape).astype(self.dtype)


@dataclass(frozen=True)
class Case:
    """One operator.

    Attributes:
        name: of the primitive.
        values: its tensors.
        attributes: what its constructor takes.
        constants: further arguments of the call, behind the tensors.
        strategies: how it may be cut; () to draw from all legal ones.
        call: how it is called, if not with tensors and constants one after another.
        slopes: whether it has useful derivatives.
        draws: how many strategies to draw.
        merges: whether it computes something twice, so that XLA merges two equal collectives.
    """

    name: str
    values: tuple[Value, ...]
    attributes: tuple[Any, ...] = ()
    constants: tuple[Any, ...] = ()
    strategies: tuple[Any, ...] = ()
    call: Callable[..., Any] | None = None
    slopes: bool = True
    draws: int = 2
    merges: bool = False

    def primitive(self, strategy: Any = None) -> Any:
        """The operator with a strategy."""
        result = getattr(ops, self.name)(*self.attributes)
        return result if strategy is None else result.shard(strategy)

    def run(self, primitive: Any, *tensors: Any) -> Any:
        """Call it."""
        return self.call(primitive, *tensors) if self.call else primitive(*tensors, *self.constants)


def _f(*shape: int, low: float = -2.0, high: float = 2.0, distinct: bool = False) -> Value:
    return Value(shape, low, high, distinct=distinct)


def _i(*shape: int, low: int = 0, high: int = 8) -> Value:
    return Value(shape, low, high, "int32")


def _b(*shape: int) -> Value:
    return Value(shape, dtype="bool")


UNARY = [
    "Abs",
    "Asinh",
    "Atan",
    "BesselI0e",
    "BesselI1e",
    "Ceil",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Erfc",
    "Exp",
    "Expm1",
    "Floor",
    "GeLU",
    "HShrink",
    "HSigmoid",
    "IsFinite",
    "L2Loss",
    "Mish",
    "Neg",
    "OnesLike",
    "ReLU",
    "ReLU6",
    "Rint",
    "Round",
    "SeLU",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "SoftShrink",
    "Square",
    "Tan",
    "Tanh",
    "ZerosLike",
]
INNER = ["ACos", "Asin", "Atanh", "Erfinv"]
POSITIVE = ["Acosh", "Inv", "Log", "Log1p", "Reciprocal", "Rsqrt", "Sqrt"]
BINARY = [
    "Add",
    "Mul",
    "Sub",
    "Maximum",
    "Minimum",
    "SquaredDifference",
    "Equal",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "NotEqual",
]
QUOTIENTS = [
    "Atan2",
    "Div",
    "DivNoNan",
    "RealDiv",
    "FloorDiv",
    "FloorMod",
    "Mod",
    "MulNoNan",
    "Pow",
    "TruncateDiv",
    "TruncateMod",
    "Xdivy",
    "Xlogy",
]
FLAT = {"Ceil", "Floor", "IsFinite", "OnesLike", "Rint", "Round", "Sign", "ZerosLike", "FloorDiv", "TruncateDiv"}
COMPARISONS = {"Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual"}


def _pointwise() -> Iterator[Case]:
    for name in UNARY:
        yield Case(name, (_f(16, 8),), slopes=name not in FLAT, draws=1)
    for name in INNER:
        yield Case(name, (_f(16, 8, low=-0.9, high=0.9),), draws=1)
    for name in POSITIVE:
        yield Case(name, (_f(16, 8, low=1.1, high=3.0),), draws=1)
    for name in BINARY:
        yield Case(name, (_f(16, 8), _f(8)), slopes=name not in COMPARISONS)
    for name in QUOTIENTS:
        pair = (_f(16, 1, low=1.0, high=3.0), _f(16, 8, low=1.1, high=2.9))
        yield Case(name, pair, slopes=name not in FLAT)
    for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Case(name, (_i(16, 8), _i(16, 8)), slopes=False)
    for name in ("LogicalAnd", "LogicalOr"):
        yield Case(name, (_b(16, 8), _b(1, 8)), slopes=False)
    yield Case("LogicalNot", (_b(16, 8),), slopes=False)
    yield Case("ApproximateEqual", (_f(16, 8), _f(16, 8)), slopes=False)
    yield Case("AddN", (_f(16, 8),) * 3, call=lambda op, *xs: op(xs))
    yield Case("Lerp", (_f(16, 8), _f(16, 8), _f(8)))
    yield Case("Select", (_b(16, 8), _f(16, 8), _f(16, 8)))
    yield Case("MaskedFill", (_f(16, 8), _b(16, 8)), constants=(0.5,), strategies=(((2, 4), (2, 4), ()),))
    yield Case("KLDivLoss", (_f(16, 8), _f(16, 8, low=0.1, high=1.0)), ("sum",))
    yield Case("SigmoidCrossEntropyWithLogits", (_f(16, 8), _f(16, 8, low=0.0, high=1.0)))
    yield Case("BiasAdd", (_f(16, 8), _f(8)))
    yield Case("PReLU", (_f(4, 8, 2), _f(8)))
    yield Case("Cast", (_f(16, 8),), constants=(), strategies=(((2, 4),),), call=lambda op, x: op(x, x.dtype))


def _shapes() -> Iterator[Case]:
    yield Case("BroadcastTo", (_f(1, 8),), ((16, 8),))
    yield Case("ExpandDims", (_f(16, 8),), constants=(1,))
    yield Case("Squeeze", (_f(16, 1, 8),), (1,))
    yield Case("Stack", (_f(16, 8),) * 2, (1,), call=lambda op, *xs: op(xs))
    yield Case("Transpose", (_f(4, 8, 2),), constants=((2, 0, 1),))
    yield Case("Concat", (_f(16, 8), _f(16, 4)), (1,), call=lambda op, *xs: op(xs))
    yield Case("Split", (_f(16, 8),), (1, 2))
    yield Case("Reshape", (_f(16, 8),), constants=((4, 32),), strategies=(((2, 4),),))
    yield Case("Tile", (_f(16, 8),), constants=((1, 4),), strategies=(((8, 1),), ((2, 4),), ((1, 2),)))
    yield Case("Tile", (_f(16, 8),), constants=((2, 2, 2),), strategies=(((2, 2, 2),), ((2, 1, 2),)))
    whole_rows = ((0, 2), (16, 6), (1, 2))
    yield Case("StridedSlice", (_f(16, 8),), constants=whole_rows, strategies=(((8, 1),), ((2, 1),)))
    yield Case("Slice", (_f(16, 8),), constants=((0, 2), (16, 4)), strategies=(((4, 1),),))
    yield Case("CumSum", (_f(16, 8),), constants=(1,))
    yield Case("CumProd", (_f(16, 8),), constants=(0,))


def _reductions() -> Iterator[Case]:
    for name in ("ReduceSum", "ReduceMean"):
        yield Case(name, (_f(16, 8),), (True,), constants=(1,))
    for name in ("ReduceMax", "ReduceMin"):
        yield Case(name, (_f(16, 8, distinct=True),), constants=(0,))
    for name in ("ArgMaxWithValue", "ArgMinWithValue"):
        yield Case(name, (_f(16, 8, distinct=True),), (1,))
    for name in ("Softmax", "LogSoftmax"):
        yield Case(name, (_f(4, 8, 4),), (1,))
    # The squares of normalized rows add up to a constant: something is added, so that there is a slope.
    yield Case("L2Normalize", (_f(16, 8),), (1,), call=lambda operator, x: operator(x) + 1.0)
    yield Case("LayerNorm", (_f(8, 4, 8), _f(4, 8), _f(4, 8)), (2, 1))
    yield Case("TopK", (_f(16, 8, distinct=True),), constants=(3,))
    yield Case("SoftmaxCrossEntropyWithLogits", (_f(16, 8), _f(16, 8, low=0.0, high=0.2)))
    segments = (_f(16, 4, distinct=True), _i(16, high=5))
    for name in ("UnsortedSegmentSum", "UnsortedSegmentMin", "UnsortedSegmentMax"):
        yield Case(name, segments, constants=(5,), merges=name != "UnsortedSegmentSum")
    images = (_f(8, 4, 2, 2), _f(4), _f(4), _f(4), _f(4, low=0.5, high=2.0))
    for training in (True, False):
        strategies = (((8, 1, 1, 1), *((1,),) * 4), ((2, 4, 1, 1), *((4,),) * 4))
        yield Case("BatchNorm", images, (training,), strategies=strategies, call=_weighted)


def _weighted(primitive: Any, x: Any, *vectors: Any) -> Any:
    """A normalised input, weighted: the squares of the plain one have a sum that does not depend on the input."""
    return primitive(x, *vectors)[0] * (x + 1.5)


def _products() -> Iterator[Case]:
    for turned in itertools.product((False, True), repeat=2):
        left, right = (8, 16) if turned[0] else (16, 8), (4, 8) if turned[1] else (8, 4)
        yield Case("MatMul", (_f(*left), _f(*right)), turned)
    yield Case("BatchMatMul", (_f(4, 2, 8, 4), _f(4, 2, 16, 4)), (False, True))
    yield Case("Cdist", (_f(4, 8, 3), _f(4, 2, 3)))
    by_batch, by_channels = ((8, 1, 1, 1), (1, 1, 1, 1)), ((2, 2, 1, 1), (2, 2, 1, 1))
    same = (by_batch, by_channels, ((1, 1, 2, 2), (2, 1, 1, 1)), ((1, 1, 4, 2), (1, 1, 1, 1)))
    yield Case("Conv2D", (_f(8, 4, 8, 8), _f(4, 4, 3, 3)), (4, 3, 1, "same"), strategies=same)
    valid = (by_batch, ((1, 1, 4, 2), (1, 1, 1, 1)))
    yield Case("Conv2D", (_f(8, 4, 8, 8), _f(4, 4, 2, 2)), (4, 2, 1, "valid", 0, 2), strategies=valid)
    grouped = (((2, 1, 2, 1), (1, 1, 1, 1)),)
    yield Case("Conv2D", (_f(8, 4, 8, 8), _f(4, 2, 3, 3)), (4, 3, 1, "same", 0, 1, 1, 2), strategies=grouped)
    volume = (((4, 1, 2, 1, 1), (1, 1, 1, 1, 1)), ((1, 2, 1, 1, 1), (2, 2, 1, 1, 1)))
    yield Case("Conv3D", (_f(4, 2, 4, 4, 4), _f(2, 2, 3, 3, 3)), (2, 3, 1, "same"), strategies=volume)
    for name in ("MaxPool", "AvgPool"):
        image = _f(4, 4, 8, 8, distinct=name == "MaxPool")
        yield Case(name, (image,), (2, 2), strategies=(((2, 2, 2, 1),), ((1, 1, 2, 4),)))
    for name in ("MaxPool3D", "AvgPool3D"):
        volumes = _f(4, 2, 4, 4, 4, distinct=name == "MaxPool3D")
        yield Case(name, (volumes,), (3, 1, "same"), strategies=(((1, 1, 2, 4, 1),), ((2, 1, 4, 1, 1),)))
        yield Case(name, (volumes,), (2, 2), strategies=(((2, 2, 2, 1, 1),), ((1, 1, 2, 2, 1),)))


def _lookups() -> Iterator[Case]:
    modes = (((1, 1), (8, 1)), ((1, 2), (2, 2)), ((8, 1), (1, 1)), ((4, 2), (1, 1)), ((2, 1), (1, 1)), ((4, 1), (2, 1)))
    for name in ("Gather", "SparseGatherV2"):
        strategies = modes if name == "Gather" else modes[2:4]
        yield Case(name, (_f(16, 8), _i(8, 4, high=16)), constants=(0,), strategies=strategies)
    by_column = (((1, 8), (1, 1)), ((8, 1), (1, 1)))
    yield Case("Gather", (_f(8, 16), _i(8, 4, high=16)), constants=(1,), strategies=by_column)
    yield Case("Gather", (_f(16, 8), _i(6, high=16)), constants=(0,), strategies=(((8, 1), (1,)),))
    batched = (((2, 1, 2), (2, 1)), ((4, 1, 1), (4, 2)))
    yield Case("Gather", (_f(4, 8, 2), _i(4, 6)), (1,), constants=(1,), strategies=batched)
    strategies = (((8, 1), (1, 1)), ((1, 4), (2, 1)))
    yield Case("EmbeddingLookup", (_f(16, 8), _i(8, 4, high=16)), constants=(0,), strategies=strategies)
    pointed = (((1, 8), (1, 8)), ((4, 2), (1, 2)), ((8, 1), (1, 1)))
    yield Case("GatherD", (_f(8, 16), _i(6, 16, high=8)), call=lambda op, x, index: op(x, 0, index), strategies=pointed)
    yield Case("GatherNd", (_f(8, 8, 2), _i(16, 4, 2)), strategies=(((1, 1, 1), (4, 2, 1)), ((1, 1, 1), (8, 1, 1))))
    out = (((8, 1), (), ()), ((1, 8), (), ()), ((2, 4), (), ()))
    yield Case("OneHot", (_i(16),), constants=(8, 1.0, 0.5), strategies=out, slopes=False)
    first = (((8, 1), (), ()), ((2, 4), (), ()))
    yield Case("OneHot", (_i(16),), (0,), constants=(8, 1.0, 0.0), strategies=first, slopes=False)
    for word in ("Update", "Add", "Sub", "Mul", "Div", "Max", "Min"):
        values = (_f(8, 4, 4, low=1.0, high=3.0), Value((3, 1), 0, 8, "int32", distinct=True))
        updates = _f(3, 4, 4, low=1.1, high=2.9)
        # An element that is overwritten has one winner, so its rows are whole.
        rows = 1 if word in ("Update", "Max", "Min") else 2
        cuts = (((rows, 4, 1), (1, 1), (1, 4, 1)), ((1, 2, 4), (1, 1), (1, 2, 4)))
        yield Case(f"TensorScatter{word}", (*values, updates), strategies=cuts)
    for word in ("Add", "Sub", "Update"):
        yield Case(f"Inplace{word}", (_f(8, 4, 4), _f(2, 4, 4)), ((1, 5),), strategies=(((1, 4, 2), (1, 4, 2)),))


def _others() -> Iterator[Case]:
    yield Case("LinSpace", (_f(), _f(low=3.0, high=5.0)), constants=(16,), strategies=(((8,),), ((2,),)))
    for name in ("ResizeNearestNeighbor", "ResizeBilinear"):
        yield Case(name, (_f(4, 2, 4, 4),), ((6, 6),), strategies=(((4, 2, 1, 1),), ((2, 1, 1, 1),)))
    boxes = Value((4, 4), 0.1, 0.9)
    cuts = (((1, 1, 1, 2), (4, 1), (4,)), ((2, 1, 1, 2), (2, 1), (2,)))
    crop = (_f(2, 6, 6, 2), boxes, _i(4, high=2))
    yield Case("CropAndResize", crop, constants=((3, 3),), strategies=cuts)
    regions = Value((4, 5), 0, 2)
    yield Case("ROIAlign", (_f(2, 2, 6, 6), regions), (2, 2, 0.5), strategies=(((1, 2, 1, 1), (4, 1)),))
    corners = (Value((8, 2), 1.0, 3.0), Value((8, 2), 5.0, 9.0))
    boxed = (*corners, *corners)
    cuts = (((8, 1), (8, 1)), ((2, 1), (2, 1)))
    yield Case("BoundingBoxEncode", boxed, strategies=cuts, call=_with_boxes)
    yield Case("IOU", boxed, strategies=(((4, 1), (2, 1)), ((8, 1), (1, 1))), call=_with_boxes)


def _with_boxes(primitive: Any, *corners: Any) -> Any:
    """Boxes whose second corner lies beyond the first."""
    first, second, third, fourth = corners
    return primitive(ops.concat((first, second), 1), ops.concat((third, fourth), 1))


CASES = (*_pointwise(), *_shapes(), *_reductions(), *_products(), *_lookups(), *_others())


def splits(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All cuts of a tensor into powers of two that divide it."""
    choices = [[cut for cut in (1, 2, 4, 8) if size % cut == 0] for size in shape]
    return (cuts for cuts in itertools.product(*choices) if math.prod(cuts) <= NUM_DEVICES)
