"""Peak memory and step time of a GPT with each memory feature, alone and together, beside what the plan said.

    python benchmarks/memory_features.py                # 12 layers; a few minutes
    python benchmarks/memory_features.py --layers 3     # under a minute

Every variant is a process of its own, so the memory of processes can be compared; they take steps in turns, and the least time of
each is compared with that of the plain step. The table has, in MiB:

    plan      what the memory model predicts for the device, and for device and host together
    XLA       arguments, results and temporaries of the compiled program, by `memory_analysis()`
    RSS       the most that the process had while it took steps

On CPUs device and host are one memory: XLA's figure and RSS hold what an accelerator's host would hold, and do not shrink when
something is sent there. Compare them with the plan's second column.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops

MIB = 2**20
VOCABULARY, HEADS = 512, 4


class Core(nn.Cell):
    """Scores, softmax, dropout and the mixture: what Megatron's selective recomputation computes again."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale, self.dropout = scale, nn.Dropout(p=0.1)

    def construct(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = ops.softmax(ops.matmul(q, k.transpose((0, 1, 3, 2))) * self.scale + mask, -1)
        return ops.matmul(self.dropout(scores), v)


class Attention(nn.Cell):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.core = width, Core((width // HEADS) ** -0.5)
        self.joint, self.out = nn.Dense(width, 3 * width), nn.Dense(width, width)

    def construct(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = ops.split(self.joint(x), self.width, axis=-1)
        q, k, v = (part.reshape((batch, length, HEADS, -1)).transpose((0, 2, 1, 3)) for part in parts)
        return self.out(self.core(q, k, v, mask).transpose((0, 2, 1, 3)).reshape(x.shape))


class Block(nn.Cell):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm((width,)), nn.LayerNorm((width,)), Attention(width)
        self.wide, self.narrow, self.gelu = nn.Dense(width, 4 * width), nn.Dense(4 * width, width), nn.GELU()
        self.add = ops.Add()

    def construct(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.add(x, self.attention(self.norm1(x), mask))
        return self.add(x, self.narrow(self.gelu(self.wide(self.norm2(x)))))


class Gpt(nn.Cell):
    def __init__(self, layers: int, width: int, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.CellList([Block(width) for _ in range(layers)])
        self.mask = Tensor(np.triu(np.full((length, length), -1e9, np.float32), 1))
        self.loss = nn.CrossEntropyLoss()

    def construct(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x, self.mask)
        logits = ops.matmul(x, self.table.embedding_table.transpose((1, 0)))
        return self.loss(logits.reshape((-1, VOCABULARY)), labels.reshape((-1,)))


def nothing(net: Gpt, optimizer: Any) -> None:
    pass


def over_two(net: Gpt, optimizer: Any) -> None:
    """Tensor parallelism over two devices, after Megatron: heads and hidden units are sharded, inputs repeated."""
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=2, dataset_strategy="full_batch")
    for block in net.blocks:
        block.add.shard(((1, 1, 1), (1, 1, 1)))
        for dense in (block.attention.joint, block.wide):
            dense.matmul.shard(((1, 1), (2, 1)))
        for dense in (block.attention.out, block.narrow):
            dense.matmul.shard(((1, 2), (1, 2)))


def over_two_recomputed(net: Gpt, optimizer: Any) -> None:
    over_two(net, optimizer)
    recomputed(net, optimizer)


def over_two_in_slices(net: Gpt, optimizer: Any) -> None:
    over_two(net, optimizer)
    for block in net.blocks:
        block.recompute(recompute_slice_activation=True)


def recomputed(net: Gpt, optimizer: Any) -> None:
    for block in net.blocks:
        block.recompute()


def selective(net: Gpt, optimizer: Any) -> None:
    for block in net.blocks:
        block.attention.core.recompute()


def kept_on_host(net: Gpt, optimizer: Any) -> None:
    recomputed(net, optimizer)
    offload(offload_checkpoint="cpu", auto_offload=False)


def activations_on_host(net: Gpt, optimizer: Any) -> None:
    for block in net.blocks:
        block.offload()


def state_on_host(net: Gpt, optimizer: Any) -> None:
    optimizer.target = "CPU"


def on_disk(net: Gpt, optimizer: Any) -> None:
    offload(offload_param="disk", auto_offload=False, offload_path=tempfile.mkdtemp(prefix="offload-"))


def together(net: Gpt, optimizer: Any) -> None:
    kept_on_host(net, optimizer)
    state_on_host(net, optimizer)


def offload(**settings: Any) -> None:
    ms.set_context(memory_offload="ON")
    ms.set_offload_context(settings)


VARIANTS: dict[str, tuple[Callable[[Gpt, Any], None], str]] = {
    "none": (nothing, "0"),
    "recompute": (recomputed, "0"),
    "attention recomputed": (selective, "0"),
    "recompute, what is kept on the host": (kept_on_host, "0"),
    "activations on the host": (activations_on_host, "0"),
    "update and state on the host": (state_on_host, "0"),
    "Parameters and state on disk": (on_disk, "0"),
    "repeated blocks": (nothing, "1"),
    "recompute, repeated blocks": (recomputed, "1"),
    "all: kept and state on the host, repeated": (together, "1"),
    "2 devices": (over_two, "0"),
    "2 devices, recompute": (over_two_recomputed, "0"),
    "2 devices, recompute in slices": (over_two_in_slices, "0"),
}
"""What is said of network and optimizer, and whether repeated blocks become loops."""


class Variant:
    """A process that compiles one variant and takes steps on request."""

    def __init__(self, name: str, sizes: list[str]) -> None:
        command = [sys.executable, __file__, "--variant", name, *sizes]
        environ = {**os.environ, "SPORAX_REPEATED_BLOCKS": VARIANTS[name][1], "SPORAX_NO_CACHE": "1"}
        if name.startswith("2 devices"):
            environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        self.sizes = self._answer()
        self.seconds: list[float] = []

    def request(self, what: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"a variant ended with {self.process.wait()}")


def run_variant(options: argparse.Namespace) -> None:
    """What the process of a variant does."""
    ms.set_context(mode=ms.GRAPH_MODE)
    draw = np.random.default_rng(0)
    ids, labels = (
        Tensor(draw.integers(0, VOCABULARY, (options.batch, options.length)).astype(np.int32)) for _ in range(2)
    )
    ms.set_seed(0)
    net = Gpt(options.layers, options.width, options.length)
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    VARIANTS[options.variant][0](net, optimizer)
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    started = time.perf_counter()
    compiled = step.program.lower(ids, labels).compile()
    seconds = time.perf_counter() - started
    used = compiled.memory_analysis()
    arguments = used.argument_size_in_bytes + used.host_argument_size_in_bytes
    xla = arguments + used.output_size_in_bytes - used.alias_size_in_bytes + used.temp_size_in_bytes
    report = step.program.memory(ids, labels)
    # What files hold is in memory while a callback hands it over, of which the model knows nothing.
    filed = any(parameter.filed is not None for parameter in step.get_parameters())
    known = not filed and report.predicted is not None
    plan, both = (report.predicted.peak_bytes, report.with_host.peak_bytes) if known else (None, None)
    step(ids, labels).asnumpy()
    Path("/proc/self/clear_refs").write_text("5")  # begin to watch the most that the process has
    print(json.dumps({"plan": plan, "both": both, "xla": xla, "compile": seconds}), flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        step(ids, labels).asnumpy()
        print(json.dumps({"seconds": time.perf_counter() - started, "rss": peak_rss()}), flush=True)
        if line == "end\n":
            break


def peak_rss() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variant", choices=list(VARIANTS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant is not None:
        run_variant(options)
        return
    sizes = [f"--{name}={getattr(options, name)}" for name in ("layers", "width", "length", "batch")]
    variants = {}
    for name in VARIANTS:
        variants[name] = Variant(name, sizes)
        print(f"compiled {name} in {variants[name].sizes['compile']:.0f} s", file=sys.stderr, flush=True)
    for _ in range(options.rounds):
        for variant in variants.values():
            variant.seconds.append(variant.request("step")["seconds"])
    least = min(variants["none"].seconds)
    print("| | plan: device | plan: device and host | XLA | RSS | step |\n|---|---|---|---|---|---|")
    for name, variant in variants.items():
        rss = variant.request("end")["rss"]
        columns = (*(variant.sizes[column] for column in ("plan", "both", "xla")), rss)
        figures = [f"{size / MIB:.1f}" if size is not None else "" for size in columns]
        print(f"| {name} | {' | '.join(figures)} | {min(variant.seconds) / least:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
