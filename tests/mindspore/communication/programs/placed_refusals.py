"""What workers may not do with placed calls; every message is printed by rank 0."""

import sporax.mindspore as ms
from sporax.mindspore import nn, ops
from sporax.mindspore.communication import get_rank, init

init()


class Sums(nn.Cell):
    def __init__(self):
        super().__init__()
        self.all_reduce = ops.AllReduce()
        self.inner = nn.Dense(2, 2)

    def construct(self, x):
        return self.all_reduce(self.inner(x))


x = ms.Tensor([[1.0, 2.0]])


def show(call):
    try:
        call()
    except RuntimeError as error:
        if get_rank() == 0:
            print(str(error).splitlines()[0])


net = Sums()
net.place("MS_WORKER", 1)
show(lambda: net(x))
show(lambda: ms.jit(net)(x))
net.inner.place("MS_WORKER", 0)
show(lambda: ms.jit(net)(x))
square = ops.Square()
square.place("MS_WORKER", 1)
show(lambda: ms.jit(ms.grad(ms.grad(lambda x: square(x).sum())))(x))

print("all is well")
