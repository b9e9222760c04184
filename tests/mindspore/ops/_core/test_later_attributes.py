"""Attributes of a primitive that are set after construction: read from then on, checked, or reported to have no effect."""

import copy
import inspect
import warnings

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.base.errors import SporaxError
from sporax.mindspore import Parameter, Tensor, nn, ops
from sporax.mindspore.ops._collectives.primitives import CommunicationPrimitive
from sporax.mindspore.ops._core.operator import PRIMITIVES
from sporax.mindspore.ops._core.primitive import Primitive

X = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
SQUARE = Tensor(np.arange(9, dtype=np.float32).reshape(3, 3))


@pytest.fixture(autouse=True)
def _context():
    mode = ms.get_context("mode")
    yield
    ms.set_context(mode=mode)
    ms.reset_auto_parallel_context()


class Holder(nn.Cell):
    def __init__(self, primitive):
        super().__init__()
        self.primitive = primitive

    def construct(self, *values):
        return self.primitive(*values)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize(
    ("make", "name", "value", "inputs"),
    [
        (ops.MatMul, "transpose_b", True, (X, SQUARE)),
        (ops.Softmax, "axis", 0, (X,)),
        (ops.ReduceSum, "keep_dims", True, (X, 0)),
        (ops.Concat, "axis", 1, ((X, X),)),
        (ops.ArgMaxWithValue, "axis", 1, (X,)),
        (ops.CumSum, "exclusive", True, (X, 0)),
    ],
    ids=lambda entry: getattr(entry, "__name__", None),
)
def test_an_argument_that_is_set_later_is_read_as_in_mindspore(mode, make, name, value, inputs):
    ms.set_context(mode=mode)

    def flat(result):
        return [part.asnumpy().tolist() for part in (result if isinstance(result, tuple) else (result,))]

    primitive = make()
    cell = Holder(primitive)
    before, old = flat(cell(*inputs)), getattr(primitive, name)
    primitive.add_prim_attr("recompute", True)
    setattr(primitive, name, value)
    assert flat(cell(*inputs)) == flat(Holder(make(**{name: value}))(*inputs)) != before
    assert (getattr(primitive, name), primitive.attrs, primitive.instance_name) == (
        value,
        {"recompute": True},
        "primitive",
    )
    setattr(primitive, name, old)
    assert flat(cell(*inputs)) == before


def test_a_plan_reads_it_too():
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8, dataset_strategy="full_batch")
    left, right = Tensor(np.ones((8, 4), np.float32)), Tensor(np.arange(32, dtype=np.float32).reshape(8, 4))
    product = ops.MatMul().shard(((2, 1), (4, 1)))
    product.transpose_b = True
    assert np.array_equal(Holder(product)(left, right).asnumpy(), left.asnumpy() @ right.asnumpy().T)


def test_the_constructor_checks_it():
    product = ops.MatMul()
    with pytest.raises(TypeError, match="For 'MatMul', the type of 'transpose_b' must be bool, but got int: 1"):
        product.transpose_b = 1
    with pytest.raises(ValueError, match="For 'BiasAdd', 'data_format' must be one of"):
        ops.BiasAdd().data_format = "CHW"
    assert product.transpose_b is False


def test_random_numbers_go_on_and_copies_have_attributes_of_their_own():
    first, second = ops.Dropout(0.5, Seed0=1), ops.Dropout(0.5, Seed0=1)
    ones = Tensor(np.ones((64,), np.float32))
    first(ones), second(ones)
    first.keep_prob = 0.25
    first.keep_prob = 0.5
    assert np.array_equal(first(ones)[1].asnumpy(), second(ones)[1].asnumpy())
    product = ops.MatMul()
    other = copy.deepcopy(product)
    other.transpose_a = True
    assert (product.transpose_a, other.transpose_a) == (False, True)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tranpose_b", "the operator reads transpose_a, transpose_b"),
        ("primitive_target", r"it is a mark: write `add_prim_attr\('primitive_target', …\)`"),
        ("recompute", "it is a method: call it"),
    ],
)
def test_what_nothing_reads_is_reported_at_its_line(name, why):
    with pytest.warns(UserWarning, match=f"For 'MatMul', the attribute '{name}' has no effect: {why}") as reported:
        setattr(ops.MatMul(), name, True)
    assert reported[0].filename == __file__


def test_classes_of_users_have_attributes_of_their_own():
    class Own(ops.MatMul):
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Own().note = 1


# ----------------------------------------------------------------------------------------------------- names in messages

ALIASES = {
    "TensorAdd": "Add", "Pack": "Stack", "Unpack": "Unstack", "GatherV2": "Gather", "Gelu": "GeLU", "FastGelu": "FastGeLU",
    "AccumulateNV2": "AddN", "InplaceUpdateV2": "InplaceUpdate", "MatrixDiagPartV3": "matrix_diag_part",
    "BartlettWindow": "bartlett_window", "BlackmanWindow": "blackman_window", "HammingWindow": "hamming_window",
    "UpsampleNearest3D": "interpolate", "UpsampleTrilinear3D": "interpolate", "BatchNorm": "batch_norm_eval",
    "NPUClearFloatStatusV2": "NPUClearFloatStatus", "NPUGetFloatStatusV2": "NPUGetFloatStatus", "DumpGradient": "TensorDump",
    "RandpermV2": "randperm",
}  # fmt: skip
"""Classes whose messages name the public operator or function that they are."""


def refusals():
    """Messages of wrong attributes and of wrong values of every class."""
    for name, cls in PRIMITIVES.items():
        if not issubclass(cls, Primitive):
            continue
        for attribute in cls.attribute_names:
            try:
                cls(**{attribute: object()})
            except SporaxError as error:
                yield name, str(error)
            except TypeError:
                pass  # Python's own, of arguments that are missing
        try:
            primitive = cls()
        except (SporaxError, TypeError):
            continue
        needed = [
            parameter
            for parameter in list(inspect.signature(cls.__call__).parameters.values())[1:]
            if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        try:
            primitive(*["no tensor"] * len(needed))
        except SporaxError as error:
            yield name, str(error)
        except (AttributeError, TypeError):
            pass


def test_messages_name_the_operator_that_was_called():
    seen = list(refusals())
    wrong = [
        (name, text)
        for name, text in seen
        if f"For '{name}'" not in text and f"For '{ALIASES.get(name, name)}'" not in text
    ]
    assert wrong == []
    assert len(seen) > 1000


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, cls in PRIMITIVES.items()
        if issubclass(cls, Primitive) and not issubclass(cls, CommunicationPrimitive)
        if "Scatter" in name or name.startswith(("UnsortedSegment", "Segment"))
    ],
)
def test_messages_of_scatters_and_segments_name_them(name):
    target = Parameter(X, name="target") if name.startswith("Scatter") else X
    with pytest.raises(SporaxError, match=f"^For '{name}', "):
        PRIMITIVES[name]()(target, "no tensor", 2 if name.startswith("Unsorted") else "none")
