"""Peak memory of a training step on one device, by stage: weights and state, activations of micro batches, logits, buffers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from _published_table import FULL, LATENT_MODULES, MODULES, NARROW, STAGES, Run

_BUFFERS = 5e8
"""Bytes of libraries, collectives and what an allocator loses."""
_EAGER = 1.15
"""Activations of eager programs: results of operators that a compiler would compute again."""


def activations(run: Run) -> Mapping[str, float]:
    """Bytes of a layer's activations of one micro batch on one device, by name; attention in one kernel, 16 bits."""
    decoder = run.decoder
    tokens = 2 * run.micro * run.seq / run.cp / run.tp
    around = tokens * (1 if run.software.sequence else run.tp) * decoder.hidden
    moe = decoder.moe_layers / decoder.layers
    ffn = (1 - moe) * decoder.ffn + moe * (decoder.top_k * decoder.expert_ffn + decoder.shared_ffn)
    kv = tokens * decoder.kv_heads * decoder.head_dim
    sizes = {
        "input": around, "norms": around, "middle": around, "q": tokens * decoder.heads * decoder.head_dim, "k": kv, "v": kv,
        "context": tokens * decoder.heads * decoder.value_dim, "up": tokens * (decoder.matrices - 1) * ffn, "act": tokens * ffn,
        "experts": moe * around * decoder.top_k,
    }  # fmt: skip
    if run.precision in NARROW and run.software.megatron:
        # Operands of 8-bit products are kept in 8 bits.
        sizes |= {name: sizes[name] / 2 for name in ("norms", "context", "act")}
    if not run.software.kernel:
        sizes["scores"] = 2.5 * tokens * run.seq * decoder.heads
    return sizes


def kept_bytes(run: Run) -> float:
    """Bytes of one layer's activations of a micro batch that its recomputation keeps, on one device."""
    sizes = {**activations(run)}
    sizes |= {"up/2": sizes["up"] / 2, "o": sizes["middle"]}
    return sum(sizes.get(name, 0.0) for name in (run.again.saved or ()))


def layer_bytes(run: Run, recomputed: float) -> float:
    """Bytes of the average layer's activations where a share of the layers is computed again."""
    whole = sum(activations(run).values()) * (_EAGER if run.software.traffic > 1 else 1.0)
    if run.again.attention and run.again.saved is None:
        whole -= activations(run).get("scores", 0.0)
    kept = 0.0 if run.again.on_host else kept_bytes(run)
    return recomputed * min(kept, whole) + (1 - recomputed) * whole


def stages_of(run: Run) -> list[tuple[int, float]]:
    """Layers of each stage, and the share of them that is computed again."""
    listed = STAGES.search(run.row["note"])
    layers = (
        [int(number) for number in listed.group(1).split("+")]
        if listed
        else [-(-run.decoder.layers // run.pp)] * run.pp
    )
    again = re.search(r"recompute ([\d,]+)", run.row["note"])
    if listed and again:
        return [
            (count, int(number) / count)
            for count, number in zip(layers, again.group(1).rstrip(",").split(","), strict=True)
        ]
    share = run.again.layers if run.again.saved is not None else 0.0
    return [(count, share) for count in layers]


def peaks(run: Run) -> list[float]:
    """Bytes at the peak of each stage's devices."""
    return [_peak(run, stage, layers, recomputed) for stage, (layers, recomputed) in enumerate(stages_of(run))]


def _peak(run: Run, stage: int, layers: int, recomputed: float) -> float:
    decoder, software = run.decoder, run.software
    ends = decoder.vocab * decoder.hidden / run.tp
    first, last = stage == 0, stage == run.pp - 1
    experts = decoder.expert_parameters / decoder.layers / run.tp / run.ep
    layer = (
        (decoder.parameters - 2 * decoder.vocab * decoder.hidden - decoder.expert_parameters) / decoder.layers / run.tp
    )
    group = run.dp * run.cp
    states = _state_bytes(run, layers * layer + ends * (first + last), group, _on_host(run)[stage])
    states += _state_bytes(run, layers * experts, max(group // run.ep, 1), _on_host(run)[stage])
    # A stage has micro batches in flight for itself and all behind it; with chunks some more.
    flight = min(run.pp - stage + (run.pp - 1) / run.vp * (run.vp > 1), run.num_micro) if run.pp > 1 else 1.0
    kept = flight * layers * layer_bytes(run, recomputed)
    loss = last * software.loss_bytes * run.micro * run.seq / run.cp * decoder.vocab / run.tp
    # The loss comes before the first layer is computed again: one of both is at the peak, with the weights that it gathers.
    return states + kept + max(loss, _computing(run, recomputed)) + _gathered(run, layer + experts, ends) + _BUFFERS


def _computing(run: Run, recomputed: float) -> float:
    """Bytes of the layer that is computed backward: what it computes again, and gradients."""
    sizes = activations(run)
    if run.software.whole:
        # Attention and feed-forward part one after another, with the gradient of one of their arrays.
        return 1.5 * (sizes["up"] + sizes["act"])
    return sum(sizes.values()) * (1.5 if recomputed else 0.5)


def _gathered(run: Run, layer: float, ends: float) -> float:
    """Bytes of weights that are there whole: of the layer that computes and the next one, and gradients of one."""
    if run.zero < 3 or run.shards == 1:
        return 0.0
    if run.software.whole:
        return layer / 2 * (2 + run.software.gradient_bytes)
    return layer * (2 * 2 + run.software.gradient_bytes) + ends * 2


def _on_host(run: Run) -> list[float]:
    """Share of each stage's optimizer state that is on the host."""
    found = re.search(r"optimizer offload ([\d,/]+)", run.row["note"])
    shares = [float(Fraction(text)) for text in found.group(1).rstrip(",").split(",")] if found else []
    return shares or [0.0] * run.pp


def _state_bytes(run: Run, parameters: float, group: int, on_host: float = 0.0) -> float:
    weights, gradients, moments = run.software.state
    shards = min(run.shards, group) if run.zero == 3 else group
    in_slices = run.zero == 3 or "in slices" in run.row["note"]
    if run.software.whole and run.num_micro == 1 and in_slices:
        gradients = 0
    return parameters * (
        weights / (shards if in_slices else 1)
        + gradients / (shards if run.zero >= 2 or in_slices else 1)
        + moments * (1 - on_host) / (shards if run.zero >= 1 else 1)
    )


def completed(run: Run) -> Run:
    """The run with what it does not say of its recomputation: the least that fits; at last inputs go to the host."""
    if not run.again.guessed:
        return run
    modules = LATENT_MODULES if run.decoder.latent else MODULES
    for again in (run.again, *([modules] if run.software.megatron and not run.is_dense else []), FULL):
        found = replace(run, again=again)
        if max(peaks(found)) <= run.profile.memory_bytes:
            return found
    return replace(run, again=replace(FULL, on_host=True))
