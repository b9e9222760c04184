"""What a large Parameter costs until its first step: seconds and the growth of the process, on 8 simulated devices.

``python benchmarks/lazy_parameters.py [rows columns]``; one process per case, since the peak of a process never falls.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

CASES = ("alone", "semi_auto_parallel", "auto_parallel")


def _measure(mode: str, rows: int, columns: int) -> None:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    import numpy as np

    from sporax.mindspore import Parameter, Tensor, context, nn, ops
    from sporax.mindspore.common.initializer import initializer

    class Net(nn.Cell):  # type: ignore[misc]  # untyped in scripts
        def __init__(self) -> None:
            super().__init__()
            self.weight = Parameter(initializer("normal", (rows, columns)), name="weight")
            self.product = ops.MatMul().shard(((1, 1), (1, 8)))

        def construct(self, x: Tensor) -> Tensor:
            return self.product(x, self.weight)

    context.set_context(mode=context.GRAPH_MODE)
    if mode != "alone":
        context.set_auto_parallel_context(parallel_mode=mode, device_num=8, dataset_strategy="full_batch")
    x = Tensor(np.ones((8, rows), np.float32))
    x.asnumpy()  # JAX has started
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    net = Net()
    made = time.perf_counter() - begin
    net(x).asnumpy()
    seconds = time.perf_counter() - begin
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    size = rows * columns * 4
    print(
        f"{mode}: {made:.1f} s until the network is made, {seconds:.1f} s until its first result; the process grew by "
        f"{growth / 1e9:.2f} GB, {growth / size:.1f} times the Parameter ({size / 1e9:.2f} GB)",
        flush=True,
    )


def main() -> None:
    """Run every case in a process of its own."""
    arguments = sys.argv[1:]
    if arguments and arguments[0] in CASES:
        _measure(arguments[0], *map(int, arguments[1:]))
        return
    for case in CASES:
        subprocess.run([sys.executable, __file__, case, *(arguments or ("13824", "8192"))], check=True)


if __name__ == "__main__":
    main()
