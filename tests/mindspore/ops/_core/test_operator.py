"""How operators are defined: what every operator gets from it, whichever form it is called in."""

import copy
import inspect
import pickle

import jax
import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, mint, nn, ops
from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import FUNCTIONS, OPERATORS, PRIMITIVES, Array, Operator, operator, other_form
from sporax.mindspore.ops._core.parameters import describe_hint, fits

X = ms.Tensor([[1.0, 4.0], [9.0, 16.0]])
FORMS = [
    (ops.Sqrt(), ops.sqrt, ms.Tensor.sqrt, mint.sqrt, (X,)),
    (ops.Add(), ops.add, ms.Tensor.add, mint.add, (X, 2.0)),
    (ops.Maximum(), ops.maximum, ms.Tensor.maximum, mint.maximum, (X, X.T)),
    (ops.Equal(), ops.equal, ms.Tensor.equal, mint.eq, (X, X.T)),
    (ops.Pow(), ops.pow, ms.Tensor.pow, mint.pow, (X, 0.5)),
    (ops.Reshape(), ops.reshape, ms.Tensor.reshape, mint.reshape, (X, (4, 1))),
    (ops.Tile(), ops.tile, ms.Tensor.tile, mint.tile, (X, (1, 2))),
    (ops.MaskedFill(), ops.masked_fill, ms.Tensor.masked_fill, mint.masked_fill, (X, X > 4, 0.0)),
    (ops.Softmax(0), lambda x: ops.softmax(x, axis=0), lambda x: x.softmax(axis=0), lambda x: mint.softmax(x, dim=0), (X,)),
    (ops.BroadcastTo((2, 2, 2)), lambda x: ops.broadcast_to(x, (2, 2, 2)), lambda x: x.broadcast_to((2, 2, 2)),
     lambda x: mint.broadcast_to(x, (2, 2, 2)), (X,)),
    (ops.ReduceSum(), lambda x, a: ops.sum(x, dim=a), lambda x, a: x.sum(axis=a), lambda x, a: mint.sum(x, dim=a), (X, 0)),
    (ops.ReduceMean(True), lambda x, a: ops.mean(x, a, True), lambda x, a: x.mean(axis=a, keep_dims=True),
     lambda x, a: mint.mean(x, dim=a, keepdim=True), (X, (0, 1))),
    (ops.Concat(1), lambda x: ops.concat(x, axis=1), lambda x: ops.cat(x, 1), lambda x: mint.concat(x, dim=1), ((X, X),)),
]  # fmt: skip


@pytest.mark.parametrize(("primitive", "function", "method", "minted", "arguments"), FORMS)
def test_all_forms_agree(primitive, function, method, minted, arguments):
    expected = primitive(*arguments)
    for form in (function, method, minted, ms.jit(primitive), ms.jit(function)):
        result = form(*arguments)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result.asnumpy(), expected.asnumpy())


def test_every_function_and_class_is_documented_and_says_its_parameters():
    for name, item in {**FUNCTIONS, **PRIMITIVES}.items():
        assert item.__doc__, name
        assert inspect.signature(item), name
    assert all(hints for hints in (item.parameters.hints for item in OPERATORS.values()) if hints)
    assert list(inspect.signature(ops.MatMul).parameters) == ["transpose_a", "transpose_b"]
    assert list(inspect.signature(ops.MatMul.__call__).parameters) == ["self", "input", "mat2"]
    assert list(inspect.signature(mint.sum).parameters) == ["input", "dim", "keepdim", "dtype"]


def test_a_form_with_other_parameters_runs_the_same_kernel():
    @operator(function="")
    def _weighed(x: Array, by: float, shift: float = 1.0, negated: bool = False) -> Array:
        """`x` times `by`, plus `shift`.

        Args:
            x: any shape.
            by: the factor.
        """
        check.axis("_weighed", int(shift), x.ndim, "shift")
        return (-1 if negated else 1) * (x * by + shift)

    classes = {}
    other_form(_weighed, "Weighed(factor)", "input=x shift * factor=by", classes=classes, factor=3.0, negated=True)
    weighed = classes.pop("Weighed")
    np.testing.assert_array_equal(weighed(2.0)(X).asnumpy(), -(X.asnumpy() * 2 + 1))
    np.testing.assert_array_equal(weighed()(X, 0.0).asnumpy(), -(X.asnumpy() * 3))
    assert list(inspect.signature(weighed.operator).parameters) == ["input", "shift", "factor"]
    assert inspect.signature(weighed.operator).parameters["factor"].kind is inspect.Parameter.KEYWORD_ONLY
    assert inspect.signature(weighed).parameters["factor"].default == 3.0
    assert "`input` times `factor`, plus `shift`" in weighed.__doc__ and " factor: the" in weighed.__doc__
    with pytest.raises(ValueError, match="^For 'Weighed', 'shift' must be in"):
        weighed()(X, 5.0)
    with pytest.raises(TypeError, match="^For 'Weighed', the type of 'factor' must be float"):
        weighed("2")
    del OPERATORS["Weighed"], OPERATORS["_weighed"]


def test_equal_numbers_of_other_types_are_other_programs():
    """1, 1.0 and True are equal in Python; as attributes they are not the same."""

    @operator(function="")
    def kind_of(x: Array, value: int | float | bool | tuple[float, ...]) -> Array:
        kinds = {int: 1, float: 2, bool: 3, tuple: 4}
        inner = 10 * kinds[type(value[0])] if isinstance(value, tuple) else 0
        return x * 0 + kinds[type(value)] + inner

    x = ms.Tensor(0)
    assert [int(kind_of(x, value)) for value in (1, 1.0, True, (1,), (1.0,))] == [1, 2, 3, 14, 24]


def test_attributes_are_checked_when_a_primitive_is_made():
    with pytest.raises(TypeError, match="For 'MatMul', the type of 'transpose_a' must be bool, but got int: 1"):
        ops.MatMul(1)
    with pytest.raises(TypeError, match=r"constructor takes 2 arguments .* but got 3"):
        ops.MatMul(True, True, True)
    with pytest.raises(TypeError, match="'turn' is not one of"):
        ops.MatMul(turn=True)
    with pytest.raises(TypeError, match="'axis' is given twice"):
        ops.Softmax(1, axis=1)
    with pytest.raises(TypeError, match=r"lacks the arguments \['shape'\]"):
        ops.BroadcastTo()
    with pytest.raises(ValueError, match="'data_format' must be one of"):
        ops.BiasAdd("CHW")


def test_values_are_checked_before_the_kernel_runs():
    with pytest.raises(TypeError, match="For 'ReLU', the type of 'input' must be Tensor, but got int: 3"):
        ops.ReLU()(3)
    with pytest.raises(TypeError, match=r"numpy array of shape \(2,\); wrap it in Tensor"):
        ops.relu(np.ones(2))
    with pytest.raises(
        TypeError, match=r"missing a required argument: 'other'; the signature is matmul\(input, other\)"
    ):
        ops.matmul(X)
    with pytest.raises(TypeError, match="too many positional arguments"):
        ops.ReLU()(X, X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        ops.softmax(X, axes=1)
    with pytest.raises(TypeError, match="argument twice: keep_dims"):
        ops.ReduceSum()(X, keep_dims=True)


def test_an_error_is_raised_while_tracing_too_and_names_the_cell():
    class Inner(nn.Cell):
        def __init__(self):
            super().__init__()
            self.matmul = ops.MatMul()

        def construct(self, x):
            return self.matmul(x, x)

    class Outer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def construct(self, x):
            return self.inner(x)

    bad = ms.Tensor(np.ones((2, 3), np.float32))
    for call in (Outer(), ms.jit(Outer())):
        with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 3\)") as caught:
            call(bad)
        assert str(caught.value).endswith("in Cell 'Outer.inner.matmul'")


def test_operators_have_boundaries_in_the_program():
    """Plans find operators in the jaxpr by the name of the inner program, and their place by the scope."""
    text = str(jax.make_jaxpr(lambda a: ops.matmul(ms.Tensor(a), ms.Tensor(a)).array)(np.ones((2, 2), np.float32)))
    assert "name=matmul" in text
    assert ops.matmul is OPERATORS["matmul"]
    assert isinstance(ops.matmul, Operator)


def test_specialisations_are_made_once():
    before = len(ops.softmax._compiled)
    for _ in range(3):
        ops.softmax(X, axis=0)
    ops.softmax(X[:1], axis=0)
    assert len(ops.softmax._compiled) <= before + 1


def test_marks_of_primitives():
    primitive = ops.MatMul(transpose_b=True).shard(((1, 2), (2, 1)))
    with pytest.warns(UserWarning, match="the mark 'tag' has no effect"):
        primitive.add_prim_attr("tag", 3)
    assert (primitive.transpose_b, primitive.in_strategy, primitive.tag) == (True, ((1, 2), (2, 1)), 3)
    assert repr(primitive) == "Prim[MatMul]<transpose_a=False, transpose_b=True>"
    assert not hasattr(primitive.del_prim_attr("tag"), "tag")
    assert primitive.recompute().attrs["recompute"] is True
    for twin in (copy.deepcopy(primitive), pickle.loads(pickle.dumps(primitive))):
        assert twin.attrs == primitive.attrs
        assert twin.transpose_b
    with pytest.raises(TypeError, match="must be a tuple, but got list"):
        ops.MatMul().shard([(1, 2)])
    with pytest.raises(ValueError, match="'out_strategy' needs an 'in_strategy'"):
        ops.MatMul().shard(out_strategy=((1, 1),))
    with pytest.raises(ValueError, match="'rank_id' must be >= 0, but got -1"):
        ops.MatMul().place("MS_WORKER", -1)


def test_annotations_say_what_fits():
    accepted = [(1, int), (1, float), (None, int | None), ((1, 2), tuple[int, ...]), ([1], tuple[int, ...])]
    refused = [(True, int), (1.0, int), ("a", float), ((1, 2.0), tuple[int, ...]), (None, int), (1, bool)]
    assert all(fits(value, hint) for value, hint in accepted)
    assert not any(fits(value, hint) for value, hint in refused)
    assert describe_hint(int | tuple[int, ...] | None) == "int or tuple of int or None"


@pytest.mark.parametrize("compiled", [False, True])
def test_shapes_and_sizes_may_be_tensors_whose_values_are_known(compiled):
    def several(x):
        size = Tensor([3, 1])
        return (
            *(ops.reshape(x, size), ops.tile(x, Tensor([2])), ops.zeros(size), ops.fill(ms.int32, Tensor([2]), 4)),
            *(ops.Reshape()(x, (Tensor(1), 3)), ops.expand_dims(x, Tensor(0)), ops.randperm(Tensor(4))),
        )

    results = (ms.jit(several) if compiled else several)(Tensor([1.0, 2.0, 3.0]))
    assert [result.shape for result in results] == [(3, 1), (6,), (3, 1), (2,), (1, 3), (1, 3), (4,)]


def test_a_shape_that_a_step_does_not_know_has_it_run_operator_by_operator():
    with pytest.warns(UserWarning, match="For 'reshape', the step runs operator by operator"):
        assert ms.jit(ops.reshape)(Tensor([1.0, 2.0]), Tensor([2, 1])).shape == (2, 1)
    with pytest.raises(TypeError, match="For 'Tile'"):
        ops.tile(Tensor([1.0]), Tensor([2.0]))
