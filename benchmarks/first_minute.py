"""How long is the first minute: building a network, and its first training step?

    python benchmarks/first_minute.py --wheel PYTHON       # all networks; each in fresh processes that take turns
    python benchmarks/first_minute.py --only transformer
    python benchmarks/first_minute.py --only transformer --devices 8    # on 8 CPU devices: semi-automatic, and two searches
    python benchmarks/first_minute.py --imports --rounds 7              # `import` of Sporax against `import jax`

Per network: seconds of processor time (all threads, so other programs on the machine count little) to build it, and from
there to the end of the first step (trace, compile, run): cold, again with the programs that the cold run has kept, written
by hand in JAX (`first_minute_jax.py`, cold), and, with MindSpore 2.10 in another environment, by the wheel. Figures are
medians over the rounds. Read the ratios: the seconds are those of the machine.

On several devices the step by hand is data parallel, which is what Sporax makes of a network without strategies, and what a
search may improve.

Goals: building at most 2x the wheel, the cold first step at most 1.5x the one by hand; on 8 devices 1.15x without and 1.4x
with a search, and a second run at most half of the first. Importing Tensor, nn and ops at most 1.2x of JAX, with Model and data
sets 1.4x.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

NETWORKS = ("resnet18", "resnet50", "mobilenet_v3", "transformer")
MODES = {
    "semi_auto": {"parallel_mode": "semi_auto_parallel"},
    "dynamic": {"parallel_mode": "auto_parallel", "search_mode": "dynamic_programming"},
    "recursive": {"parallel_mode": "auto_parallel", "search_mode": "recursive_programming"},
}
"""Ways to shard the step over several devices."""
IMPORTS = {
    "jax": "import jax",
    "tensors": "import jax, sporax.mindspore as ms; ms.Tensor, ms.nn, ms.ops",
    "training": "import jax, sporax.mindspore as ms; ms.Tensor, ms.nn, ms.ops, ms.Model, ms.dataset",
}
BATCH, IMAGE, TOKENS, WIDTH, LAYERS = 8, 64, 64, 256, 12


def images():
    random = np.random.RandomState(0)
    return random.randn(BATCH, 3, IMAGE, IMAGE).astype(np.float32), random.randint(0, 10, BATCH).astype(np.int32)


# ------------------------------------------------------------------------------------- networks in MindSpore's names


def conv(ms, inputs, outputs, size, stride=1, groups=1):
    return ms.nn.Conv2d(
        inputs, outputs, size, stride, pad_mode="pad", padding=size // 2, group=groups, weight_init="he_normal"
    )


def resnet(ms, blocks, bottleneck):
    nn = ms.nn

    class Block(nn.Cell):
        def __init__(self, inputs, width, stride):
            super().__init__()
            outputs = width * (4 if bottleneck else 1)
            sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            sizes = sizes if bottleneck else [(inputs, width, 3, stride), (width, width, 3, 1)]
            layers = []
            for number, (a, b, size, step) in enumerate(sizes):
                layers += [conv(ms, a, b, size, step), nn.BatchNorm2d(b)]
                layers += [nn.ReLU()] if number < len(sizes) - 1 else []
            self.body = nn.SequentialCell(layers)
            self.skip = None
            if stride != 1 or inputs != outputs:
                self.skip = nn.SequentialCell([conv(ms, inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)])
            self.relu = nn.ReLU()

        def construct(self, x):
            skip = x if self.skip is None else self.skip(x)
            return self.relu(self.body(x) + skip)

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            layers, inputs = [conv(ms, 3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, "same")], 64
            for stage, count in enumerate(blocks):
                for number in range(count):
                    layers.append(Block(inputs, 64 << stage, 2 if stage and not number else 1))
                    inputs = (64 << stage) * (4 if bottleneck else 1)
            self.body = nn.SequentialCell(layers)
            self.head = nn.Dense(inputs, 10)

        def construct(self, x):
            return self.head(self.body(x).mean((2, 3)))

    return Net(), images()


MOBILE = [(16, 16, 1, 3), (64, 24, 2, 3), (72, 24, 1, 3), (72, 40, 2, 5), (120, 40, 1, 5), (240, 80, 2, 3), (200, 80, 1, 3),
          (480, 112, 1, 3), (672, 112, 1, 3), (672, 160, 2, 5), (960, 160, 1, 5)]  # fmt: skip


def mobilenet_v3(ms):
    nn = ms.nn

    class Block(nn.Cell):
        def __init__(self, inputs, width, outputs, stride, size):
            super().__init__()
            self.body = nn.SequentialCell(
                [conv(ms, inputs, width, 1), nn.BatchNorm2d(width), nn.HSwish()]
                + [conv(ms, width, width, size, stride, width), nn.BatchNorm2d(width), nn.HSwish()]
            )
            self.squeeze = nn.SequentialCell(
                [nn.Dense(width, width // 4), nn.ReLU(), nn.Dense(width // 4, width), nn.HSigmoid()]
            )
            self.last = nn.SequentialCell([conv(ms, width, outputs, 1), nn.BatchNorm2d(outputs)])
            self.adds = stride == 1 and inputs == outputs

        def construct(self, x):
            y = self.body(x)
            weights = self.squeeze(y.mean((2, 3)))
            y = self.last(y * weights.reshape(weights.shape + (1, 1)))
            return x + y if self.adds else y

    layers, inputs = [conv(ms, 3, 16, 3, 2), nn.BatchNorm2d(16), nn.HSwish()], 16
    for width, outputs, stride, size in MOBILE:
        layers.append(Block(inputs, width, outputs, stride, size))
        inputs = outputs

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.body = nn.SequentialCell(layers)
            self.head = nn.Dense(inputs, 10)

        def construct(self, x):
            return self.head(self.body(x).mean((2, 3)))

    return Net(), images()


def transformer(ms):
    nn, ops = ms.nn, ms.ops

    class Layer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm((WIDTH,)), nn.LayerNorm((WIDTH,))
            self.qkv, self.out = nn.Dense(WIDTH, 3 * WIDTH), nn.Dense(WIDTH, WIDTH)
            self.up, self.down = nn.Dense(WIDTH, 4 * WIDTH), nn.Dense(4 * WIDTH, WIDTH)
            self.gelu, self.softmax = nn.GELU(), nn.Softmax()

        def construct(self, x):
            q, k, v = ops.split(self.qkv(self.norm1(x)), WIDTH, 2)
            q, k, v = (each.reshape((BATCH, TOKENS, 8, WIDTH // 8)).transpose((0, 2, 1, 3)) for each in (q, k, v))
            weights = self.softmax(ops.matmul(q, k.transpose((0, 1, 3, 2))) / np.sqrt(WIDTH / 8))
            mixed = ops.matmul(weights, v).transpose((0, 2, 1, 3)).reshape((BATCH, TOKENS, WIDTH))
            x = x + self.out(mixed)
            return x + self.down(self.gelu(self.up(self.norm2(x))))

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = nn.CellList([Layer() for _ in range(LAYERS)])
            self.head = nn.Dense(WIDTH, 10)

        def construct(self, x):
            for layer in self.layers:
                x = layer(x)
            return self.head(x.mean(1))

    random = np.random.RandomState(0)
    batch = random.randn(BATCH, TOKENS, WIDTH).astype(np.float32), random.randint(0, 10, BATCH).astype(np.int32)
    return Net(), batch


def network(ms, name):
    if name == "resnet18":
        return resnet(ms, (2, 2, 2, 2), False)
    if name == "resnet50":
        return resnet(ms, (3, 4, 6, 3), True)
    return {"mobilenet_v3": mobilenet_v3, "transformer": transformer}[name](ms)


def facade(name, module, mode=None):
    """Build and first step in this process, in seconds of processor time and on the clock."""
    started = time.process_time()
    if module == "mindspore":
        import mindspore as ms
    else:
        import sporax.mindspore as ms
    ms.set_context(mode=ms.GRAPH_MODE)
    if mode is not None:
        device_count = int(os.environ["XLA_FLAGS"].rpartition("=")[2])
        ms.set_auto_parallel_context(device_num=device_count, **MODES[mode])
    ms.nn.Dense(3, 3)
    ready, on_clock = time.process_time(), time.perf_counter()
    net, batch = network(ms, name)
    built = time.process_time()
    loss = ms.nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = ms.nn.Momentum(net.trainable_params(), 0.01, 0.9)
    step = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, loss), optimizer).set_train()
    float(step(*(ms.Tensor(each) for each in batch)).asnumpy())
    times = {"import": ready - started, "build": built - ready, "step": time.process_time() - built}
    return {**times, "clock": time.perf_counter() - on_clock}


def by_hand(name):
    """The same network, loss, gradient and update written by hand in JAX."""
    import first_minute_jax as jax_nets

    makers = {
        "resnet18": lambda: jax_nets.resnet((2, 2, 2, 2), False),
        "resnet50": lambda: jax_nets.resnet((3, 4, 6, 3), True),
        "mobilenet_v3": lambda: jax_nets.mobilenet_v3(MOBILE),
        "transformer": lambda: jax_nets.transformer(LAYERS, WIDTH, 8),
    }
    random = np.random.RandomState(0)
    tokens = random.randn(BATCH, TOKENS, WIDTH).astype(np.float32), random.randint(0, 10, BATCH).astype(np.int32)
    started = time.perf_counter()
    times = jax_nets.first_step(makers[name](), tokens if name == "transformer" else images())
    return {**times, "clock": time.perf_counter() - started}


# ------------------------------------------------------------------------------------------------------ the comparison


def child(kind, name, cache, python=sys.executable, devices=1, mode=None):
    environ = {**os.environ, "XDG_CACHE_HOME": cache, "JAX_PLATFORMS": "cpu", "GLOG_v": "4"}
    environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    if kind == "jax":  # what a user of JAX switches on
        environ["JAX_COMPILATION_CACHE_DIR"] = cache
        environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"
    if kind == "mindspore":
        environ.pop("PYTHONPATH", None)
    command = [python, __file__, "--child", kind, "--only", name, *(["--mode", mode] if mode else [])]
    out = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return json.loads(out.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=NETWORKS)
    parser.add_argument("--wheel", help="python of an environment with MindSpore 2.10")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1, help="more than one: the step is sharded over CPU devices")
    parser.add_argument("--mode", choices=MODES, help="with --devices: only this one")
    parser.add_argument("--imports", action="store_true", help="time imports instead")
    parser.add_argument("--child", choices=("sporax", "mindspore", "jax"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        print(
            json.dumps(
                by_hand(chosen.only) if chosen.child == "jax" else facade(chosen.only, chosen.child, chosen.mode)
            )
        )
        return
    if chosen.imports:
        imports(chosen.rounds)
        return
    if chosen.devices > 1:
        several_devices(chosen)
        return
    columns = ("build", "wheel", "ratio", "step", "again", "by hand", "ratio", "wheel step")
    print(f"{'network':14}" + "".join(f"{column:>13}" for column in columns))
    for name in [chosen.only] if chosen.only else NETWORKS:
        rounds = [measure(name, chosen.wheel) for _ in range(chosen.rounds)]
        middle = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        values = (
            middle["build"], middle["wheel build"], middle["build"] / middle["wheel build"], middle["step"],
            middle["again"], middle["by hand"], middle["step"] / middle["by hand"], middle["wheel step"],
        )  # fmt: skip
        print(f"{name:14}" + "".join(f"{value:13.2f}" for value in values), flush=True)


def imports(rounds):
    """Seconds of processor time of fresh interpreters, taking turns; the least and the median, and ratios to JAX."""
    seconds = {name: [] for name in IMPORTS}
    for _ in range(rounds):
        for name, code in IMPORTS.items():
            text = f"import time; {code}; print(time.process_time())"
            out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
            seconds[name].append(float(out.stdout))
    for name, values in seconds.items():
        least, median = min(values), statistics.median(values)
        ratios = least / min(seconds["jax"]), median / statistics.median(seconds["jax"])
        print(f"{name:10} {least:7.2f} s {median:7.2f} s   of jax {ratios[0]:5.2f} {ratios[1]:5.2f}")


def several_devices(chosen):
    """Import, build and first step of whole processes, cold and again, of each mode and by hand, taking turns."""
    name, modes = chosen.only or "transformer", [chosen.mode] if chosen.mode else list(MODES)
    rows = {mode: [] for mode in (*modes, "by hand")}
    for _ in range(chosen.rounds):
        for mode, values in rows.items():
            kind = ("jax", None) if mode == "by hand" else ("sporax", mode)
            with tempfile.TemporaryDirectory() as cache:
                both = [child(kind[0], name, cache, devices=chosen.devices, mode=kind[1]) for _ in range(2)]
            values.append([each["build"] + each["step"] for each in both])
    hand = statistics.median(first for first, _ in rows["by hand"])
    print(f"{name}, {chosen.devices} devices: seconds of processor time to the end of the first step")
    for mode, values in rows.items():
        first, again = (statistics.median(column) for column in zip(*values, strict=True))
        print(
            f"{mode:10} {first:7.2f}   of by hand {first / hand:5.2f}   again {again:7.2f}   of first {again / first:5.2f}"
        )


def measure(name, wheel):
    """One round: each way once, with empty folders for what is kept."""
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = child("sporax", name, cache), child("sporax", name, cache)
    with tempfile.TemporaryDirectory() as cache:
        hand = child("jax", name, cache)
        theirs = child("mindspore", name, cache, wheel) if wheel else {"build": float("nan"), "step": float("nan")}
    own = {"build": cold["build"], "step": cold["step"], "again": warm["step"]}
    return {**own, "by hand": hand["step"], "wheel build": theirs["build"], "wheel step": theirs["step"]}


if __name__ == "__main__":
    main()
