"""What an all-to-all and a local sum cost between CPU processes, compared with gloo's reduce-scatter, which is wrong at random.

Both programs run in one job, in turns, so other work on the machine meets both alike. A training step with optimizer parallelism
(level 1) is compiled both ways as well.

Run: python benchmarks/reduce_scatter_cpu.py [--rounds 40] [--processes 2,4]
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = (256, 65_536, 1_048_576)
"""Float32 numbers of a device before the sums are scattered."""
RANK = "REDUCE_SCATTER_BENCHMARK"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--processes", default="2,4")
    options = parser.parse_args()
    if RANK in os.environ:
        rank(**json.loads(os.environ[RANK]), rounds=options.rounds)
        return
    print(
        "| processes | | all-to-all + sum, ms | reduce-scatter, ms | ratio (median of pairs) |\n|---|---|---|---|---|"
    )
    for size in map(int, options.processes.split(",")):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, __file__, "--rounds", str(options.rounds)]
        environ = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
        ranks = [
            subprocess.Popen(
                command,
                env={**environ, RANK: json.dumps({"number": number, "size": size, "port": port})},
                stdout=None if number == 0 else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for number in range(size)
        ]
        if sum([process.wait() for process in ranks]):
            raise SystemExit("a rank failed")


def rank(number, size, port, rounds):
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", size, number)
    for length in SIZES:
        pair = [exchange(length, traded) for traded in (True, False)]
        report(number, size, f"{4 * length // 1024} kB", pair, rounds)
    report(number, size, "training step, level 1", [training(size, traded) for traded in (True, False)], rounds)
    jax.distributed.shutdown()


def report(number, size, what, pair, rounds):
    for run in pair:
        run()
    seconds = []
    for turn in range(rounds):
        row = [0.0, 0.0]
        # The order changes from round to round.
        for which in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            pair[which]()
            row[which] = time.perf_counter() - start
        seconds.append(row)
    traded, native = (1e3 * statistics.median(row[which] for row in seconds) for which in (0, 1))
    ratio = statistics.median(row[0] / row[1] for row in seconds)
    if number == 0:
        print(f"| {size} | {what} | {traded:.2f} | {native:.2f} | {ratio:.2f} |", flush=True)


def exchange(length, traded):
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from sporax.lowering.execute.redistribute import reduce_scatter
    from sporax.planner.communication.moves import Move, MoveKind

    mesh, rows = Mesh(np.array(jax.devices()), ("rank",)), PartitionSpec("rank")
    move = Move(MoveKind.REDUCE_SCATTER, (0,), -1, 1, "sum", native=not traded)
    program = jax.jit(
        jax.shard_map(
            lambda x: reduce_scatter(x, move, ("rank",), 1), mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False
        )
    )
    values = np.ones((len(jax.devices()), length), np.float32)
    array = jax.make_array_from_callback(values.shape, NamedSharding(mesh, rows), lambda where: values[where])
    return lambda: jax.block_until_ready(program(array))


def training(size, traded, width=512, depth=4):
    import numpy as np

    import sporax.mindspore as ms
    from sporax.mindspore import Tensor, nn
    from sporax.runtime import world

    # Only here: the fact about the devices is taken back, to compile what Sporax does not compile any more.
    world.has_reduce_scatter = lambda: not traded
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        dataset_strategy="data_parallel",
        enable_parallel_optimizer=True,
        parallel_optimizer_config={"parallel_optimizer_threshold": 0},
        device_num=size,
    )
    net = nn.SequentialCell([nn.Dense(width, width) for _ in range(depth)])
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 1e-3))
    batch = Tensor(np.ones((32, width), np.float32))
    float(step(batch, batch))
    kinds = step.program.lower(batch, batch).as_text()
    assert ("reduce_scatter" in kinds) != traded

    def run():
        # Settings that differ would compile the step again.
        world.has_reduce_scatter = lambda: not traded
        float(step(batch, batch))

    return run


if __name__ == "__main__":
    main()
