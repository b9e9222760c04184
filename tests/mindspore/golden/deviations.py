"""Where Sporax departs from MindSpore's observed behaviour, and why: reason → cases (or dotted names).

Every entry is checked from both sides: the case must really differ. When one stops differing, its test fails and the
entry goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

FACTS: dict[str, tuple[str, ...]] = {
    "`Parameter.data` is the Parameter itself, as in the releases before 2.3": (
        "p=w('a'); p.data",
        "p=w('a'); type(p.data).__name__",
    ),
    "divergences of categories are exact to a rounding; MindSpore's are to four digits": (
        'msd.Categorical(Tensor([0.2, 0.3, 0.5]))("kl_loss", "Categorical", Tensor([0.1, 0.1, 0.8])), '
        'msd.Categorical(Tensor([0.2, 0.3, 0.5]))("cross_entropy", "Categorical", Tensor([0.1, 0.1, 0.8]))',
    ),
    "`DynamicRNN`, `DynamicGRUV2`: a setting that has one possible value is checked when the operator runs; numbers are numbers": (
        "ops.DynamicRNN(keep_prob=1)",
        "ops.DynamicRNN(time_major=False)",
        "ops.DynamicRNN(num_proj=-1)",
    ),
    "`numpy`: numbers, lists and mixed dtypes are accepted wherever Tensors are": (
        "mnp.asarray(np.ones(2))",
        "mnp.multiply(I, 2)",
        "mnp.float_power(I, 2)",
        "mnp.exp(I)",
        "mnp.less_equal(A, 0.5)",
        "mnp.logical_xor(B, True)",
        "mnp.outer(P, J)",
        "mnp.correlate(P, J, 'full')",
        "mnp.atleast_1d(3.0)",
        "mnp.take(P, [0, 2])",
        "mnp.take(A, 1, axis=1)",
        "mnp.take(P, [5], mode='clip')",
        "mnp.take(P, [-1, 4], mode='wrap')",
    ),
    "`numpy`: several results are a tuple": (
        "mnp.meshgrid(P, J)",
        "mnp.meshgrid(P, J, indexing='ij', sparse=True)",
        "mnp.atleast_1d(P, A)",
        "mnp.split(P, [1])",
        "mnp.broadcast_arrays(P, A)",
    ),
    "`numpy`: the mean of integers is not cut off, signs and positions stay integers, pieces have the dtype of what they are of": (
        "mnp.mean(I)",
        "mnp.std(I)",
        "mnp.sign(I)",
        "mnp.ravel_multi_index((1, 2), (2, 3))",
        "mnp.piecewise(P, [P < 0.5, P >= 0.5], [-1, 1])",
    ),
    "the cube root of 0 is 0": ("mnp.cbrt(A)",),
    "`numpy`: shapes that do not fit are a ValueError; only dims of size 1 can be squeezed out": (
        "mnp.matmul(P, mnp.ones((2, 2)))",
        "mnp.squeeze(A, axis=0)",
    ),
    "along a dim of size 1 L2Normalize gives ±1, so its gradient is zero; MindSpore's CPU kernel says otherwise": (
        "g(lambda x: ops.L2Normalize()(x), P(1, 3))",
    ),
    "a part that was read earlier does not follow later changes of its array": ("x = A(); y = x[1]; x[1] = 0; (x, y)",),
    "arrays are immutable: `asnumpy` and `from_numpy` copy": (
        "a=np.ones(2,np.float32); t=Tensor.from_numpy(a); a[0]=5; t",
        "t=Tensor([1.,2.]); b=t.asnumpy(); b[0]=7; t",
    ),
    "an index out of range is an IndexError, whatever its form": (
        "V()[I(0, 5)]",
        "V()[I(0, -6)]",
        "A()[I(0, 3)]",
        "setv(V(), I(0, 5), 1)",
    ),
    "more is accepted: numpy integers as an index or a value, assignment to a reversed slice": (
        "V()[np.int64(2)]",
        "V()[np.array([0, 2])]",
        "setv(V(), 0, np.float32(3))",
        "setv(V(), s(None, None, -1), Tensor([5.0, 6.0, 7.0, 8.0, 9.0]))",
    ),
    "a slice bound or an assigned value of a wrong type is a TypeError": ("V()[1.0:2.0]", "setv(V(), 0, 'a')"),
    "numpy 2 calls its bool type `bool`": ("ms.dtype.dtype_to_nptype(ms.float32), ms.dtype.dtype_to_nptype(ms.bool_)",),
    "MindSpore 2.10 draws a uniform distribution where it says truncated normal": (
        "stats(draw(I.VarianceScaling(), 200, 300))",
    ),
    "what a cast to integer hides has no derivative; MindSpore passes the gradient through": (
        "ms.grad(lambda x: x.astype(ms.int32).sum())(x)",
    ),
    "a position beyond the arguments is the same IndexError in both modes": (
        "ms.grad(f2,2)(x,y)",
        "ms.grad(f2,(0,5))(x,y)",
    ),
    "an argument that does not fit is a ValueError before anything runs, as MindSpore 2.2 documents it": (
        "ops.matmul(F(2,3),F(2,3))",
        "F(2,3)@F(2,3)",
        "ops.Squeeze(0)(F(2,3))",
        "ops.ReduceSum()(F(2,3),(0,0))",
        "ops.dropout(F(2),p=2.)",
        "ops.Flatten()(Tensor(1.))",
        "ops.Conv2D(2,3)(F(1,1,5,5),F(2,2,3,3))",
        "ops.Conv2D(3,3)(F(1,1,5,5),F(2,1,3,3))",
    ),
    "what is undefined differs: integers over zero, floats out of an integer type's range": (
        "Tensor([5])//Tensor([0])",
        "ops.cast(Tensor([300.0]), ms.uint8)",
    ),
    "the gradient of a norm at zero is zero, not nan": ("ms.grad(lambda x: ops.norm(x))(T(0.,0.))",),
    "MindSpore's CPU kernel rounds more coarsely": ("g(ops.LogSoftmax(), X(2, 3))",),
    "MindSpore's CPU kernels lack this or get it wrong: broadcast batches, real division of integers, any": (
        "ops.BatchMatMul()(X(2, 1, 2, 3), X(3, 3, 2)).shape",
        "ops.RealDiv()(I(7), I(2))",
        "R(2, 3).any()",
    ),
    "an assignment returns the Parameter itself, as the reference MindSpore means, not a Tensor that shares its memory": (
        "p = Parameter(R(2), name='p'); r = ops.assign(p, R(2) + 1); (r, p)",
        "p = Parameter(R(2), name='p'); r = ops.assign_add(p, R(2)); (r, p)",
        "p = Parameter(R(2), name='p'); r = ops.AssignSub()(p, R(2)); (r, p)",
    ),
    "a value is not looked at inside a compiled step: an index out of range reads zeros, a class out of range gives nan": (
        "nn.Embedding(3,2)(Tensor([7],ms.int32))",
        "ops.Gather()(F(4,2),Tensor([5],ms.int32),0)",
        "nn.CrossEntropyLoss()(F(2,3),Tensor([0,5],ms.int32))",
        "nn.SoftmaxCrossEntropyWithLogits(sparse=True,reduction='mean')(F(2,3),Tensor([0,5],ms.int32))",
    ),
    "sizes that do not fit are a ValueError before anything runs, whoever finds them in MindSpore": (
        "nn.Dense(2,3)(Tensor(1.))",
        "nn.Conv2d(1,2,3)(F(1,3,5,5))",
        "nn.SGD(ps(),learning_rate=[])",
        "nn.EmbeddingLookup(4, 2, slice_mode='rows')",
    ),
    "the CPU wheel ignores `zero_infinity`": (
        "nn.CTCLoss(reduction='none', zero_infinity=True)(ops.log_softmax(X(3, 2, 4), 2), "
        "Tensor([[1, 1], [3, 2]], ms.int32), I(2, 3), I(2, 1))",
    ),
    "more is accepted: gradients as a list, class labels as any integer": (
        "n=Plain(); o=nn.Adam(n.trainable_params(),0.1); o([F(2,2),F(2)])",
        "nn.CrossEntropyLoss()(F(2,3),Tensor([0,1]))",
    ),
    "`set_data` keeps shape and kind of dtype, as MindSpore 1.6 to 2.2 do": (
        "p=w('a'); p.set_data(Tensor([1.,2.,3.]))",
        "p=Parameter(Tensor([1,2],ms.int32),name='i'); p.set_data(Tensor([1.,2.]))",
        "p=w('a'); p.set_data(3)",
    ),
    "`repr` of a layer shows its settings, not its Parameters": (
        "repr(nn.ReLU()), repr(nn.Flatten()), repr(nn.MaxPool2d(2,2)), repr(nn.Embedding(3,2)), repr(nn.LayerNorm((3,))), "
        "repr(nn.BatchNorm2d(3)), repr(nn.Dropout(p=0.1))",
    ),
}

SIGNATURES: dict[str, tuple[str, ...]] = {
    "`cond` chooses between two functions, as in every other framework; MindSpore 2.10 means the condition number": (
        "ops.cond",
    ),
    "the inputs of a class form are called as those of its function": (
        "ops.FloorDiv.__call__",
        "ops.LogicalAnd.__call__",
        "ops.LogicalOr.__call__",
        "ops.Slice.__call__",
    ),
    "a default that nobody can change: an empty tuple for an empty list": ("ops.ReduceStd",),
    "a rank that sends nothing calls it without an input, which MindSpore takes in graph mode": (
        "ops.NeighborExchange.__call__",
    ),
    "`batch_sampler` and `collate_fn` are refused by name; processes are requested, never the default": (
        "dataset.GeneratorDataset",
    ),
    "the number of workers follows the configuration, as for all other sources": ("dataset.NumpySlicesDataset",),
    "`vocab_cache_size` is back, as before 2.3, since parameter servers are": ("nn.EmbeddingLookup",),
    "a layer without settings takes none; in MindSpore those of its base class show": ("mint.nn.Mish", "mint.nn.SELU"),
}

_WIDE_UNSIGNED = ("uint16", "uint32", "uint64")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8")


def _pairs(lefts: Iterable[str], operators: Iterable[str], rights: Iterable[str]) -> Iterator[str]:
    return (f"{left} {operator} {right}" for left, operator, right in product(lefts, operators, rights))


PROMOTION: dict[str, tuple[str, ...]] = {
    "wide unsigned integers meet bools in products and quotients too, and have remainders": (
        *_pairs(("bool_",), ("mul", "truediv", "mod"), _WIDE_UNSIGNED),
        *_pairs(_WIDE_UNSIGNED, ("mul", "truediv", "mod"), ("bool_",)),
        *(f"{dtype} mod {dtype}" for dtype in _WIDE_UNSIGNED),
        *_pairs(("@ True", "True @"), ("mod",), _WIDE_UNSIGNED),
    ),
    "a bool Tensor may be subtracted from a bool, as from a bool Tensor": ("True @ sub bool_",),
    "bitwise operators take a number on either side": (
        *_pairs(("2 @",), ("and", "or", "xor"), ("bool_", *_INTEGERS)),
        *_pairs(("True @",), ("and", "or", "xor"), ("bool_", *_INTEGERS, *_WIDE_UNSIGNED)),
    ),
    "complex numbers have no order, so no floor": (
        *_pairs(("@ True", "@ 2", "@ 2.5", "True @", "2 @", "2.5 @"), ("floordiv",), ("complex64",)),
        *_pairs(("bool_", *_INTEGERS, *_FLOATS, "complex64"), ("floordiv",), ("complex64",)),
        *_pairs(("complex64",), ("floordiv",), ("bool_", *_INTEGERS, *_FLOATS)),
    ),
}


def reason(table: dict[str, tuple[str, ...]], entry: str) -> str | None:
    """Why `entry` departs, or None when it must agree."""
    return next((why for why, entries in table.items() if entry in entries), None)
