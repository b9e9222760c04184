"""Where Sporax departs from MindSpore's observed behaviour, and why: reason → cases (or dotted names).

Every entry is checked from both sides: the case must really differ. When one stops differing, its test fails and the
entry goes.
"""

from __future__ import annotations

FACTS: dict[str, tuple[str, ...]] = {
    "arrays are immutable: indexing gives a copy, never a view": (
        "x = A(); y = x[1]; x[1] = 0; (x, y)",
        "x = A(); y = x[1]; y[0] = 99; x",
        "x = A(); x[0][1] = 77; x",
    ),
    "arrays are immutable: `asnumpy` gives a copy or a read-only view, and `from_numpy` shares nothing": (
        "a=np.ones(2,np.float32); t=Tensor.from_numpy(a); a[0]=5; t",
        "t=Tensor([1.,2.]); b=t.asnumpy(); b[0]=7; t",
        "t=Tensor([1.,2.]); t.asnumpy().flags.writeable",
    ),
    "a branch on a traced tensor is an error that points to the control-flow operators": (
        "@ms.jit\ndef g(x):\n    if x.sum() > 0: return x\n    return -x\ng(F(2))",
    ),
    "a value is not looked at inside a compiled step: an index out of range reads zeros, a class out of range gives nan": (
        "nn.Embedding(3,2)(Tensor([7],ms.int32))",
        "nn.CrossEntropyLoss()(F(2,3),Tensor([0,5],ms.int32))",
        "nn.SoftmaxCrossEntropyWithLogits(sparse=True,reduction='mean')(F(2,3),Tensor([0,5],ms.int32))",
    ),
    "sizes that do not fit are a ValueError before anything runs, whoever finds them in MindSpore": (
        "nn.Dense(2,3)(Tensor(1.))",
        "nn.Conv2d(1,2,3)(F(1,3,5,5))",
        "nn.SGD(ps(),learning_rate=[])",
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
    "moving statistics are called by their attributes from the start, not only once the layer is part of a Cell": (
        "n = nn.BatchNorm2d(2); y = train(n, X(2, 2, 2, 2)); (y, n.moving_mean, n.moving_variance)",
        "n = nn.BatchNorm2d(2, momentum=0.5); y = train(n, X(2, 2, 2, 2)); (n.moving_mean, n.moving_variance)",
        "n = nn.BatchNorm1d(3); y = train(n, X(4, 3)); (y, n.moving_mean, n.moving_variance)",
        "n = nn.BatchNorm2d(2, use_batch_statistics=True); (n(X(2, 2, 2, 2)), n.moving_mean)",
        "n = nn.BatchNorm2d(2, use_batch_statistics=False); (train(n, X(2, 2, 2, 2)), n.moving_mean)",
        "n = nn.BatchNorm2d(2); (n.gamma, n.beta, n.moving_mean, n.moving_variance)",
    ),
}

SIGNATURES: dict[str, tuple[str, ...]] = {}

PROMOTION: dict[str, tuple[str, ...]] = {}


def reason(table: dict[str, tuple[str, ...]], entry: str) -> str | None:
    """Why `entry` departs, or None when it must agree."""
    return next((why for why, entries in table.items() if entry in entries), None)
