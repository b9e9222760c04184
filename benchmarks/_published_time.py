"""Seconds of a training step from the blocks of a model, one device and one plan, with the planner's own rates and links.

A block is costed operator by operator: products and attention by arithmetic, all else by the bytes that it reads and writes
(`HardwareProfile`), collectives over the mesh of the plan by `LinkCosts`, and what hides behind computing by
`planner.cost.evaluate`. `work_of` has everything at nominal rates, so that constants can be fitted to many runs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from _published_memory import kept_bytes
from _published_table import NARROW, Run
from msgspec import structs
from numpy.typing import NDArray

from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.hardware import HardwareProfile
from sporax.planner.communication.moves import LinkCosts
from sporax.planner.cost import link_costs
from sporax.planner.cost.evaluate import exposed

_LOGIT_BYTES = 20
"""Per logit: written by the product, read for the loss, its gradient written and read twice, in parts in 32 bits."""
_BLOCKS = (128, 1024)
"""Keys of a block of attention, on GPUs and on TPUs (splash attention as MaxText's recipes set it)."""
_FULL_HEAD = 128
_SMALL_HEADS = (0.5, 1.0)
"""How the rate of attention falls with a head's size below `_FULL_HEAD`: FlashAttention-3 reaches 0.7 of it with heads of 64;
units of TPUs are filled in part."""
_SCORE_BYTES = 22
"""Per score of attention that is written: forward (scale, mask, softmax, dropout, product) and backward."""
_SENDERS = 32 / 148
"""Of a device's processors those that send experts' tokens while another micro batch computes (`moe_hybridep_num_sms`)."""
_STATE_TRAFFIC = 30
"""Bytes per parameter of an update of Adam: weight, two moments and gradient read, three of them and a 16-bit copy written."""


@dataclass(frozen=True, slots=True)
class Work:
    """A step on one device, at nominal rates; arrays where it stands for several runs.

    Attributes:
        micro, fill: micro batches, and how many of them a stage waits for the others.
        products, attention, traffic, blocks: seconds of the layers of a stage per micro batch; of one launch in each.
        head, head_traffic: seconds of the vocabulary's product and loss per micro batch.
        tensor, divided: seconds of tensor parallelism per micro batch, waited for or in asynchronous forms.
        context, experts, sends: seconds of keys and values, of experts' tokens, of sends between stages per micro batch.
        behind: seconds of experts' tokens that are exchanged while another micro batch computes.
        weights, at_once: seconds of weights and gradients that are exchanged per micro batch, and once a step.
        update, host: seconds of the optimizer, and of what goes to the host per micro batch.
        overlapped: 1 where weights and gradients are exchanged while devices compute.
    """

    micro: Any
    fill: Any
    products: Any
    attention: Any
    traffic: Any
    blocks: Any
    head: Any
    head_traffic: Any
    tensor: Any
    divided: Any
    context: Any
    experts: Any
    behind: Any
    sends: Any
    weights: Any
    at_once: Any
    update: Any
    host: Any
    overlapped: Any


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of nominal rates that programs reach, and what they hide: fields of `HardwareProfile`, arrays for several runs."""

    compute: Any
    attention: Any
    memory: Any
    link: Any
    weights: Any
    gradients: Any
    asynchronous: Any
    kernels: Any


def rates_of(profile: HardwareProfile) -> Rates:
    """The rates of a profile."""
    return Rates(
        profile.compute_efficiency, profile.attention_efficiency, profile.memory_efficiency, profile.link_efficiency,
        *(profile.hidden.get(kind, 0.0) for kind in ("weights", "gradients", "asynchronous")), KERNELS,
    )  # fmt: skip


KERNELS = 90.0
"""Kernels of a layer whose launch shows, forward and backward; fitted."""


def parts_of(work: Work, rates: Rates) -> dict[str, NDArray[np.float64]]:
    """Seconds of a step by what they are spent on."""
    products, attention = work.products / rates.compute, work.attention / rates.attention
    memory = work.traffic / rates.memory + work.blocks * rates.kernels
    head, loss = work.head / rates.compute, work.head_traffic / rates.memory
    layers = products + attention + memory
    linked = {
        name: getattr(work, name) / rates.link
        for name in ("tensor", "divided", "context", "experts", "behind", "sends", "weights", "at_once")
    }
    tensor = linked["tensor"] + linked["divided"] * (1 - rates.asynchronous)
    context = exposed(linked["context"], attention, 1.0)
    hidden = rates.weights * work.overlapped
    weights = exposed(linked["weights"], layers + head, hidden)
    host = exposed(work.host, layers, 1.0)
    experts = (
        linked["experts"] + exposed(linked["behind"], layers, 1.0) + _SENDERS * np.minimum(linked["behind"], layers)
    )
    in_micro = tensor + context + experts + linked["sends"] + weights + host
    # The last backward pass is what the exchange at the end hides behind.
    at_once = exposed(
        linked["at_once"],
        (layers + head) * 2 / 3 * np.minimum(work.micro, 1 + work.fill),
        rates.gradients * work.overlapped,
    )
    return {
        "products": work.micro * (products + head),
        "attention": work.micro * attention,
        "memory-bound": work.micro * (memory + loss),
        "tensor parallelism": work.micro * tensor,
        "other collectives": work.micro * (in_micro - tensor - weights),
        "weights and gradients": work.micro * weights + at_once,
        "bubble": work.fill * (layers + in_micro),
        "update": work.update / rates.memory,
    }


def seconds_of(work: Work, rates: Rates) -> NDArray[np.float64]:
    """Seconds of a step."""
    return np.asarray(sum(parts_of(work, rates).values()))


def stacked(works: Sequence[Work]) -> Work:
    """Several runs as one, with arrays."""
    return Work(
        **{entry.name: np.array([getattr(work, entry.name) for work in works], float) for entry in fields(Work)}
    )


class _Mesh:
    """Collectives of a plan at nominal rates: stages outermost, then data, context and tensor parallelism."""

    def __init__(self, run: Run, profile: HardwareProfile) -> None:
        degrees = (run.pp, run.dp, run.cp, run.tp)
        shape: list[int] = []
        self.axes: dict[str, tuple[int, ...]] = {}
        for name, degree in zip(("pp", "dp", "cp", "tp"), degrees, strict=True):
            primes = _primes(degree)
            self.axes[name] = tuple(range(len(shape), len(shape) + len(primes)))
            shape += primes
        self.shape = tuple(shape) or (1,)
        self.links = link_costs(profile, DeviceMatrix(self.shape), merging=False)

    def members(self, axes: Sequence[int]) -> int:
        return int(np.prod([self.shape[axis] for axis in axes], dtype=int))

    def innermost(self, names: Sequence[str], members: int) -> tuple[int, ...]:
        """Axes of the nearest so many devices of the named groups."""
        axes = [axis for name in names for axis in self.axes[name]]
        chosen: list[int] = []
        while axes and self.members(chosen) < members:
            chosen.insert(0, axes.pop())
        return tuple(chosen)

    def seconds(self, collective: Callable[..., float], axes: Sequence[int], num_bytes: float) -> float:
        """Of a collective of slices of `num_bytes`; no time in a group of one."""
        return collective(tuple(axes), [self.shape[axis] for axis in axes], num_bytes) if axes and num_bytes else 0.0


def _primes(number: int) -> list[int]:
    """Prime factors, the smallest last: near devices come in twos."""
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.insert(0, divisor)
            number //= divisor
        divisor += 1
    return factors


def work_of(run: Run) -> Work:
    """The step of a run at nominal rates."""
    profile = structs.replace(
        run.profile, compute_efficiency=1.0, memory_efficiency=1.0, link_efficiency=1.0, attention_efficiency=1.0
    )
    return _Step(run, profile).work()


class _Step:
    def __init__(self, run: Run, profile: HardwareProfile) -> None:
        self.run, self.profile, self.mesh = run, profile, _Mesh(run, profile)
        self.links: LinkCosts = self.mesh.links
        self.narrow = NARROW.get(run.precision)
        wide = "float16" if run.precision == "fp16" else "bfloat16"
        self.wide_rate = max(profile.nominal_flops(wide), profile.nominal_flops("float16"))
        self.rate = profile.nominal_flops(self.narrow) if self.narrow else self.wide_rate
        self.tokens = run.micro * run.seq / run.cp
        """Of a micro batch on one device of a tensor-parallel group."""
        self.layers = run.decoder.layers / run.pp

    # ------------------------------------------------------------------------------------------------ computing

    def products(self) -> float:
        """Seconds of the products of the average layer: forward, twice backward, and what is computed again."""
        decoder, again = self.run.decoder, self.run.again
        times = {name: 3 + again.products.get(name, 0.0) * again.layers for name in ("q", "k", "v", "o", "up", "down")}
        around = sum(size * times[name] for name, size in decoder.attention_weights.items())
        share = (decoder.matrices - 1) / decoder.matrices
        ffn = share * times["up"] + (1 - share) * times["down"]
        moe = decoder.moe_layers / decoder.layers
        wide = (1 - moe) * decoder.ffn_weights(True) + (moe and moe * decoder.ffn_weights(False))
        return 2 * self.tokens / self.run.tp * (around + ffn * wide) / self.rate

    def attention(self) -> float:
        """Seconds of attention of the average layer in its kernel; of scores that are written, at the rate of products."""
        run, decoder = self.run, self.run.decoder
        # Half of the scores are masked; beyond a window all are, but kernels compute whole blocks.
        full = run.seq / 2
        window = min(decoder.window + _BLOCKS[self.on_tpu], full) if decoder.window else full
        keys = decoder.windowed * window + (1 - decoder.windowed) * full
        forward = 2 * self.tokens * keys * decoder.heads / run.tp * (decoder.head_dim + decoder.value_dim)
        if not self.kernel:
            # All scores are computed and then masked: no kernel knows that half of them are.
            return 2 * forward * (3 + run.again.attention) / self.wide_rate
        return (
            forward
            * (3.5 + run.again.attention * run.again.layers)
            / (run.software.attention * self.profile.attention_flops_per_second(self.kernel))
            / min(decoder.head_dim / _FULL_HEAD, 1.0) ** _SMALL_HEADS[self.on_tpu]
        )

    @property
    def on_tpu(self) -> bool:
        return self.profile.platform == "tpu"

    @property
    def kernel(self) -> str:
        return self.run.software.kernel if self.profile.attention else ""

    def traffic(self) -> float:
        """Seconds of what is bound by memory in the average layer."""
        run, decoder, software = self.run, self.run.decoder, self.run.software
        tokens, tp = self.tokens, self.run.tp
        # Of tokens that are not sharded between products every device does all.
        outside = tokens / (tp if software.sequence else 1)
        heads = (decoder.heads + 2 * decoder.kv_heads) * decoder.head_dim
        moe = decoder.moe_layers / decoder.layers
        gated = decoder.top_k * decoder.expert_ffn if software.gates else 0
        ffn = (1 - moe) * decoder.ffn + moe * (gated + decoder.shared_ffn)
        # Forward, in 16 bits: two norms and two residual sums; rotation of queries and keys; the activation.
        forward = outside * decoder.hidden * 2 * (2 * 2 + 2 * 3) + tokens / tp * (
            heads * 4 + decoder.matrices * ffn * 2
        )
        rows, again = moe * outside * decoder.top_k * decoder.hidden, run.again.traffic * run.again.layers
        forward += rows * 2 * software.moves
        total = forward * (3 + again) * software.traffic
        if decoder.biased:
            total += rows * (software.biases[0] * (1 + again) + software.biases[1])
        if self.narrow:
            # Operands of products and their gradients are scaled, rounded and transposed: 2 bytes read, 2 written.
            total += (
                4
                * 2
                * tokens
                / tp
                * (2 * decoder.hidden * (tp if not software.sequence else 1) + heads + decoder.matrices * ffn)
            )
        if not self.kernel:
            total += _SCORE_BYTES * tokens * run.seq * decoder.heads / tp
        return total / self.profile.bytes_per_second

    # -------------------------------------------------------------------------------------------- communication

    def tensor(self) -> float:
        """Seconds of tensor parallelism of the average layer: gathers and scatters forward, backward, and again."""
        run, axes = self.run, self.mesh.axes["tp"]
        size = self.tokens * run.decoder.hidden * 2 / run.tp
        # What is computed again is gathered again; where all is, it is scattered again but for the last time.
        again = 0 if not run.again.products else 3 if run.again.saved == frozenset(["input"]) else 2
        # Sequence parallel: four forward, four backward and one more for the gradient of weights; else as all-reduces.
        count = (9 if run.software.sequence else 8) + again * run.again.layers
        # Attention and feed-forward layer side by side share theirs.
        return count / (2 if run.software.parallel_block else 1) * self.mesh.seconds(self.links.gather, axes, size)

    def context(self) -> float:
        """Seconds of keys and values that go round, forward, and with their gradients backward."""
        run = self.run
        size = self.tokens * 2 * run.decoder.kv_heads * run.decoder.head_dim * 2 / run.tp
        return 3 * self.mesh.seconds(self.links.gather, self.mesh.axes["cp"], size)

    def experts(self) -> float:
        """Seconds of tokens that go to their experts and back, forward and backward, of the average layer."""
        run = self.run
        if run.ep <= 1 or run.is_dense:
            return 0.0
        size = self.tokens / run.tp * run.decoder.top_k * run.decoder.hidden * 2
        axes = self.mesh.innermost(("dp", "cp", "tp"), run.ep)
        if run.software.once_per_node:
            nodes = max(run.ep // self.profile.links[0].group, 1)
            size *= nodes * (1 - (1 - 1 / nodes) ** run.decoder.top_k) / run.decoder.top_k if nodes > 1 else 1.0
        return 4 * self.mesh.seconds(self.links.all_to_all, axes, size) * run.decoder.moe_layers / run.decoder.layers

    def exchange(self) -> tuple[float, float]:
        """Seconds of weights and gradients per micro batch, and at the end of a step."""
        run, software, decoder = self.run, self.run.software, self.run.decoder
        dense = (decoder.parameters - decoder.expert_parameters) / run.tp / run.pp
        everywhere = self.mesh.axes["dp"] + self.mesh.axes["cp"]
        # Devices with the same experts are as far apart as there are others between them.
        of_experts = self.mesh.innermost(("dp", "cp"), run.ep) if run.ep > 1 else ()
        per_micro, at_once = 0.0, 0.0
        for parameters, inside in ((dense, ()), (decoder.expert_parameters / run.ep / run.tp / run.pp, of_experts)):
            outside = [axis for axis in everywhere if axis not in inside]
            group = self.mesh.members(outside)
            if group <= 1 or not parameters:
                continue
            fully = run.zero == 3
            shards = min(run.shards, group) if fully else group
            axes = self.mesh.innermost(("dp", "cp"), shards * self.mesh.members(inside))
            axes = tuple(axis for axis in axes if axis not in inside)
            width = 1 if self.narrow and software.narrow_weights else 2
            gather = self.mesh.seconds(self.links.gather, axes, width * parameters / shards)
            scatter = self.mesh.seconds(self.links.gather, axes, software.gradient_bytes * parameters / shards)
            if fully and not software.once:
                per_micro += 2 * gather + scatter
            else:
                at_once += gather + scatter
            if shards < group:
                outer = [axis for axis in outside if axis not in axes]
                at_once += self.mesh.seconds(
                    self.links.all_reduce, outer, software.gradient_bytes * parameters / shards
                )
        return per_micro, at_once

    def sends(self) -> float:
        """Seconds of activations between stages per micro batch, there and back, for each chunk."""
        run = self.run
        if run.pp == 1:
            return 0.0
        size = self.tokens * run.decoder.hidden * 2 / (run.tp if run.software.sequence or run.software.megatron else 1)
        return 2 * run.vp * self.mesh.seconds(self.links.permute, self.mesh.axes["pp"][-1:], size)

    # ------------------------------------------------------------------------------------------------ the step

    def host(self) -> float:
        """Seconds of activations that go to the host and back, per micro batch."""
        run = self.run
        if not run.again.on_host or not self.profile.host_bandwidth:
            return 0.0
        return 2 * kept_bytes(run) * self.layers / self.profile.host_bandwidth

    def work(self) -> Work:
        run, layers = self.run, self.layers
        vocabulary = run.decoder.vocab * run.decoder.hidden
        rate = self.wide_rate
        head = 3 * 2 * self.tokens * vocabulary / run.tp / rate
        tensor, experts = layers * self.tensor(), layers * self.experts()
        per_micro, at_once = self.exchange()
        states = run.decoder.parameters / run.tp / run.pp / (run.dp * run.cp if run.zero else 1)
        return Work(
            micro=run.num_micro,
            fill=(run.pp - 1) / run.vp,
            products=layers * self.products(),
            attention=layers * self.attention(),
            traffic=layers * self.traffic(),
            blocks=0.0 if run.software.graphs else layers * self.profile.launch_seconds,
            head=head,
            head_traffic=_LOGIT_BYTES * self.tokens * run.decoder.vocab / run.tp / self.profile.bytes_per_second,
            tensor=0.0 if run.software.asynchronous else tensor,
            divided=tensor if run.software.asynchronous else 0.0,
            context=layers * self.context(),
            experts=0.0 if run.software.experts_behind else experts,
            behind=experts if run.software.experts_behind else 0.0,
            sends=self.sends(),
            weights=per_micro,
            at_once=at_once,
            update=_STATE_TRAFFIC * states / self.profile.bytes_per_second,
            host=self.host(),
            overlapped=float(run.software.overlapped),
        )
