"""A training script that counts: every update moves one number on the servers by exactly one.

With unbounded staleness each push is applied by itself, so the number is how many updates were applied. A step returns
while its push is on its way and waits for that of the step before: `begun N` is written before step N, `done N` after step N + 1.
At the end worker 0 pulls without moving anything, until the number stays.
"""

import argparse
import time

import mindspore as ms
from mindspore import Parameter, Tensor, nn
from mindspore.communication import get_rank, init


class Count(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.number = Parameter(Tensor([0.0], ms.float32), name="number")

    def construct(self, weight: Tensor) -> Tensor:
        return (self.number * weight).sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--pause", type=float, required=True)
    parser.add_argument("--quiet_seconds", type=float, required=True, help="worker 0 waits until nothing moves so long")
    options = parser.parse_args()

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_ps_context(enable_ps=True)
    init()
    net = Count()
    net.set_param_ps()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), learning_rate=1.0))
    one, nothing = Tensor([1.0], ms.float32), Tensor([0.0], ms.float32)
    for number in range(options.steps):
        print(f"begun {number}", flush=True)
        float(step(one))
        if number:
            print(f"done {number - 1}", flush=True)
        time.sleep(options.pause)
    float(step(nothing))
    print(f"done {options.steps - 1}", flush=True)
    if get_rank() == 0:
        print(f"total {wait_for_the_end(net, step, nothing, options.quiet_seconds)}", flush=True)


def wait_for_the_end(net: Count, step: nn.Cell, nothing: Tensor, quiet_seconds: float) -> int:
    total, since = None, time.monotonic()
    while time.monotonic() - since < quiet_seconds:
        float(step(nothing))
        seen = -round(float(net.number.asnumpy()[0]))
        if seen != total:
            total, since = seen, time.monotonic()
        time.sleep(0.2)
    return total


if __name__ == "__main__":
    main()
