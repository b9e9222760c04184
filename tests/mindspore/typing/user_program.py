"""A user's program with planted mistakes: each line marked with ``# wrong`` must be reported, and no other line."""

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Parameter, Tensor, mint, nn, numpy as mnp, ops

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(1)


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.ones((4, 4), np.float32)), name="weight")
        self.product = ops.MatMul(transpose_b=True).shard(((2, 1), (1, 1)))
        self.mean = ops.ReduceMean(keep_dims=True)

    def construct(self, x: Tensor) -> Tensor:
        y = self.product(x, self.weight)
        return ops.relu(y) + self.mean(y, 0)


def right(x: Tensor) -> Tensor:
    y = ops.softmax(ops.matmul(x, x), axis=-1) * 2 + 1.5
    joined = ops.concat([y, y], axis=0)
    largest, where = ops.max(joined, axis=0)
    total = (-y[0] @ x).sum(axis=0, keepdims=True)
    array: np.ndarray = total.asnumpy()
    assert array.shape == total.shape
    parts = mint.sum(largest) + mnp.mean(where)
    if (x > 0).all():
        return ops.cast(parts, ms.float32)
    return parts.reshape(1).astype(ms.float16)


def trained() -> None:
    net = Net()
    loss = nn.CrossEntropyLoss()
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    model = ms.Model(net, loss, optimizer)
    ms.save_checkpoint(net, "net.ckpt")
    print(model, ms.load_checkpoint("net.ckpt"), ms.value_and_grad(net))


def mistakes(x: Tensor) -> None:
    ops.relu("text")  # wrong
    ops.softmax(x, axes=1)  # wrong
    ops.matmul(x)  # wrong
    ops.no_such_operator(x)  # wrong
    ops.MatMul(transposed=True)  # wrong
    ops.Softmax(axis="last")  # wrong
    ops.MatMul()(x)  # wrong
    nn.NoSuchLayer(3)  # wrong
    ms.no_such_name()  # wrong
    x.no_such_method()  # wrong
    x.shape.append(3)  # wrong
    ms.set_seed("one")  # wrong
    mint.no_such_function(x)  # wrong
    mnp.mean()  # wrong
    number: int = ops.relu(x)  # wrong
    text: str = x.dtype  # wrong
    ms.save_checkpoint(ckpt_file_name="net.ckpt")  # wrong
    Tensor(1.0, kind=ms.float32)  # wrong
    print(number, text)
