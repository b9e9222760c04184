"""The operators that MindSpore documents as usable in parallel training: all forms are there, and all have a gradient.

Values and slopes are tested with each family; here it is that none is missing, and that operators without a slope (steps,
comparisons, what writes Parameters) have the gradient that MindSpore gives them.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops
from sporax.mindspore.ops._core.operator import PRIMITIVES

GOLDEN = Path(__file__).parents[2] / "golden"
NAMES = json.loads((GOLDEN / "names.json").read_text())["names"]
KINDS = json.loads((GOLDEN / "kinds.json").read_text())["kinds"]
LISTED = """
Abs ACos Acosh Add AddN ApproximateEqual ArgMaxWithValue ArgMinWithValue Asin Asinh Assign AssignAdd AssignSub Atan Atan2
Atanh AvgPool AvgPool3D BatchMatMul BatchNorm BesselI0e BesselI1e BiasAdd BitwiseAnd BitwiseOr BitwiseXor BoundingBoxEncode
BroadcastTo Cast Cdist Ceil Concat Conv2D Conv3D Cos Cosh CropAndResize CumProd CumSum Div DivNoNan Dropout Elu
EmbeddingLookup Equal Erf Erfc Erfinv Exp ExpandDims Expm1 Floor FloorDiv FloorMod Gamma Gather GatherD GatherNd GeLU Greater
GreaterEqual HShrink HSigmoid InplaceAdd InplaceSub InplaceUpdate Inv IOU IsFinite KLDivLoss L2Loss L2Normalize LayerNorm Lerp
Less LessEqual LinSpace Log Log1p LogicalAnd LogicalNot LogicalOr LogSoftmax MaskedFill MatMul Maximum MaxPool MaxPool3D
Minimum Mish Mod Mul MulNoNan Neg NotEqual OneHot OnesLike Pow PReLU RandomChoiceWithMask RealDiv Reciprocal ReduceMax
ReduceMean ReduceMin ReduceSum ReLU ReLU6 Reshape ResizeBilinear ResizeNearestNeighbor Rint ROIAlign Round Rsqrt ScatterAdd
ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNdAdd ScatterNdDiv ScatterNdMax ScatterNdMin ScatterNdMul ScatterNdSub
ScatterNdUpdate ScatterSub ScatterUpdate Select SeLU Sigmoid SigmoidCrossEntropyWithLogits Sign Sin Sinh Slice Softmax
SoftmaxCrossEntropyWithLogits Softplus SoftShrink Softsign SparseGatherV2 Split Sqrt Square SquaredDifference Squeeze Stack
StridedSlice Sub Tan Tanh TensorScatterAdd TensorScatterDiv TensorScatterMax TensorScatterMin TensorScatterMul
TensorScatterSub TensorScatterUpdate Tile TopK Transpose TruncateDiv TruncateMod Unique UnsortedSegmentMax UnsortedSegmentMin
UnsortedSegmentSum Xdivy Xlogy ZerosLike
""".split()
#: What MindSpore documents, by where its forms are looked for.
FORMS = (
    (ops, NAMES["ops"]),
    (Tensor, NAMES["Tensor"]),
    (ms.mint, KINDS["mint functions"][1]),
    (ms.mint.nn.functional, KINDS["mint.nn.functional functions"][1]),
)


@pytest.mark.parametrize("name", LISTED)
def test_all_forms_are_there(name):
    """The class, and under its name in small letters the function, the Tensor method and the mint form MindSpore has."""
    assert name in PRIMITIVES
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    for own in {words, words.replace("_", ""), name.lower()}:
        for owner, offered in FORMS:
            assert own not in offered or hasattr(owner, own), f"{owner}: {own}"


X = Tensor([[0.4, -1.6], [2.5, 3.1]])
Y = Tensor([[0.3, 1.5], [2.5, -4.0]])
FLAT = {
    "one operand": lambda x, y: [
        ops.Ceil()(x), ops.Floor()(x), ops.Rint()(x), ops.Round()(x), ops.Sign()(x), ops.IsFinite()(x), ops.OnesLike()(x),
        ops.ZerosLike()(x), ops.LogicalNot()(x > 0),
    ],
    "two operands": lambda x, y: [
        ops.Equal()(x, y), ops.NotEqual()(x, y), ops.Greater()(x, y), ops.GreaterEqual()(x, y), ops.Less()(x, y),
        ops.LessEqual()(x, y), ops.ApproximateEqual()(x, y), ops.TruncateDiv()(x, y), ops.FloorDiv()(x, y),
        ops.LogicalAnd()(x > 0, y > 0), ops.LogicalOr()(x > 0, y > 0),
    ],
    "positions": lambda x, y: [ops.Argmax()(x), ops.TopK()(x, 1)[1], ops.OneHot()(ops.Argmax()(x), 2, Tensor(1.0), Tensor(0.0))],
}  # fmt: skip


@pytest.mark.parametrize("kind", FLAT)
def test_operators_without_a_slope_have_zero_gradients(kind):
    for gradient in ms.grad(lambda x, y: FLAT[kind](x, y), (0, 1))(X, Y):
        np.testing.assert_array_equal(gradient.asnumpy(), np.zeros((2, 2)))


def test_values_of_one_hot_have_no_gradients():
    """As MindSpore's, in both modes."""
    indices = Tensor([0, 2, 5], ms.int32)
    gradients = ms.grad(lambda on, off: ops.OneHot()(indices, 3, on, off), (0, 1))(Tensor(2.0), Tensor(0.5))
    assert [float(item) for item in gradients] == [0, 0]


def test_integers_of_bit_operators():
    x, y = Tensor([6, 3], ms.int32), Tensor([3, 5], ms.int32)
    results = [ops.BitwiseAnd()(x, y), ops.BitwiseOr()(x, y), ops.BitwiseXor()(x, y)]
    assert [result.asnumpy().tolist() for result in results] == [[2, 1], [7, 7], [5, 6]]


WRITERS = {
    "Assign": (lambda p, x: ops.Assign()(p, x * 2), [[2.0, 2.0]], 0.0),  # as in MindSpore: by the Parameter
    "AssignAdd": (lambda p, x: ops.AssignAdd()(p, x * 2), [[3.0, 3.0]], 2.0),
    "ScatterAdd": (lambda p, x: ops.ScatterAdd()(p, Tensor([0], ms.int32), x), [[2.0, 2.0]], 1.0),
    "ScatterUpdate": (lambda p, x: ops.ScatterUpdate()(p, Tensor([0], ms.int32), x * 3), [[3.0, 3.0]], 3.0),
    "ScatterNdSub": (lambda p, x: ops.ScatterNdSub()(p, Tensor([[0]], ms.int32), x), [[0.0, 0.0]], -1.0),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_to_a_parameter_has_the_gradient_of_mindspore(name):
    write, expected, slope = WRITERS[name]
    held = ms.Parameter(Tensor([[1.0, 1.0]]), name="held")
    gradient = ms.grad(lambda x: write(held, x))(Tensor([[1.0, 1.0]]))
    np.testing.assert_array_equal(held.asnumpy(), expected)
    np.testing.assert_array_equal(gradient.asnumpy(), [[slope, slope]])
