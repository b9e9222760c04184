# ruff: noqa: E501 -- rows of tables and sentences of a page
"""Tables of published training runs, read: shapes of models, plans, and what the software of a run is known to do.

Everything here is known before a run: shapes from published configurations, plans from the columns of the table, traits of the
software (attention kernel, compiled or eager, asynchronous tensor parallelism) from its source.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sporax.ir.hardware import HardwareProfile, known_profiles, load_profile

NARROW = {
    "fp8": "float8_e4m3fn",
    "mxfp8": "float8_e4m3fn",
    "int8": "int8",
    "nvfp4": "float4_e2m1fn",
    "fp4": "float4_e2m1fn",
}
"""Names of precisions and the dtype of their products."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """The shape of a decoder.

    Attributes:
        layers, hidden, ffn, heads, kv_heads, vocab: sizes; `ffn` of dense layers.
        gated: three matrices in a feed-forward layer, not two.
        head_dim: of queries and keys; `value_dim` of values.
        experts, top_k, expert_ffn, shared_ffn: of layers with experts; `dense_layers` have none.
        latent: ranks of queries and of keys with values, and rotary dims, where they are compressed (DeepSeek).
        window, windowed: tokens that a share of the layers attends to.
        biased: products of experts have biases.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    gated: bool
    head_dim: int = 0
    value_dim: int = 0
    experts: int = 0
    top_k: float = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    latent: tuple[int, ...] = ()
    window: int = 0
    windowed: float = 0.0
    biased: bool = False

    def __post_init__(self) -> None:
        if not self.head_dim:
            object.__setattr__(self, "head_dim", self.hidden // self.heads)
        if not self.value_dim:
            object.__setattr__(self, "value_dim", self.head_dim)

    @property
    def matrices(self) -> int:
        """Matrices of a feed-forward layer."""
        return 3 if self.gated else 2

    @property
    def attention_weights(self) -> Mapping[str, int]:
        """Elements of the matrices around attention, by name."""
        hidden, wide = self.hidden, self.heads * self.head_dim
        if self.latent:
            q_rank, kv_rank, rotary = self.latent
            up = self.heads * (self.head_dim - rotary + self.value_dim)
            return {
                "q": hidden * q_rank + q_rank * wide,
                "k": hidden * (kv_rank + rotary) + kv_rank * up,
                "v": 0,
                "o": self.heads * self.value_dim * hidden,
            }
        kv = hidden * self.kv_heads * self.head_dim
        return {"q": hidden * wide, "k": kv, "v": kv, "o": wide * hidden}

    def ffn_weights(self, dense: bool) -> float:
        """Elements of the feed-forward matrices that one token passes."""
        if dense:
            return self.matrices * self.hidden * self.ffn
        return (
            self.matrices * self.hidden * (self.top_k * self.expert_ffn + self.shared_ffn) + self.hidden * self.experts
        )

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def expert_parameters(self) -> int:
        """Elements of all experts."""
        return self.moe_layers * self.experts * self.matrices * self.hidden * self.expert_ffn

    @property
    def parameters(self) -> int:
        """Elements of all weights, embedding and head apart."""
        layer = sum(self.attention_weights.values()) + 2 * self.hidden
        shared = self.moe_layers * (self.hidden * self.experts + self.matrices * self.hidden * self.shared_ffn)
        dense = (self.layers - self.moe_layers) * self.matrices * self.hidden * self.ffn
        return self.layers * layer + dense + shared + self.expert_parameters + 2 * self.vocab * self.hidden


_MLA = {"head_dim": 192, "value_dim": 128, "latent": (1536, 512, 64)}
_SHAPES: Mapping[str, Decoder] = {
    "deepseek-v3": Decoder(61, 7168, 18432, 128, 128, 129280, True, experts=256, top_k=8, expert_ffn=2048, shared_ffn=2048, dense_layers=3, **_MLA),
    "kimi-k2": Decoder(61, 7168, 18432, 64, 64, 163840, True, experts=384, top_k=8, expert_ffn=2048, shared_ffn=2048, dense_layers=1, **_MLA),
    "qwen3-235b-a22b": Decoder(94, 4096, 12288, 64, 4, 151936, True, 128, experts=128, top_k=8, expert_ffn=1536),
    "qwen3-30b-a3b": Decoder(48, 2048, 6144, 32, 4, 151936, True, 128, experts=128, top_k=8, expert_ffn=768),
    "gpt-oss-120b": Decoder(36, 2880, 2880, 64, 8, 201088, True, 64, experts=128, top_k=4, expert_ffn=2880, window=128, windowed=0.5, biased=True),
    "gpt-oss-20b": Decoder(24, 2880, 2880, 64, 8, 201088, True, 64, experts=32, top_k=4, expert_ffn=2880, window=128, windowed=0.5, biased=True),
    "llama4-maverick": Decoder(48, 5120, 16384, 40, 8, 202048, True, 128, experts=128, top_k=1, expert_ffn=8192, shared_ffn=8192, dense_layers=24, window=8192, windowed=0.75),
    "llama4-scout": Decoder(48, 5120, 16384, 40, 8, 202048, True, 128, experts=16, top_k=1, expert_ffn=8192, shared_ffn=8192, window=8192, windowed=0.75),
    "gemma2-9b": Decoder(42, 3584, 14336, 16, 8, 256128, True, 256, window=4096, windowed=0.5),
    "gemma2-27b": Decoder(46, 4608, 36864, 32, 16, 256128, True, 128, window=4096, windowed=0.5),
    "gemma3-12b": Decoder(48, 3840, 15360, 16, 8, 262208, True, 256, window=1024, windowed=5 / 6),
    "gemma3-27b": Decoder(62, 5376, 21504, 32, 16, 262208, True, 128, window=1024, windowed=5 / 6),
    "mist-llama-1.3b": Decoder(24, 2048, 5504, 16, 16, 50304, True),
    "mist-llama-2.7b": Decoder(32, 2560, 6912, 32, 32, 50304, True),
    "mist-llama-7b": Decoder(32, 4096, 11008, 32, 32, 50304, True),
    "codellama-34b": Decoder(48, 8192, 22016, 64, 8, 32000, True),
    "qwen1.5-7b": Decoder(32, 4096, 11008, 32, 32, 151936, True),
    "qwen1.5-14b": Decoder(40, 5120, 13696, 40, 40, 152064, True),
    "qwen1.5-32b": Decoder(64, 5120, 27392, 40, 8, 152064, True),
    "yi-34b": Decoder(60, 7168, 20480, 56, 8, 64000, True),
    "deepseek-33b": Decoder(62, 7168, 19200, 56, 8, 32256, True),
    "qwen2.5-7b": Decoder(28, 3584, 18944, 28, 4, 152064, True),
    "qwen2.5-32b": Decoder(64, 5120, 27648, 40, 8, 152064, True),
    "qwen2.5-72b": Decoder(80, 8192, 29568, 64, 8, 152064, True),
    "qwen3-8b": Decoder(36, 4096, 12288, 32, 8, 151936, True, 128),
    "qwen3-32b": Decoder(64, 5120, 25600, 64, 8, 151936, True, 128),
    "mistral-7b": Decoder(32, 4096, 14336, 32, 8, 32000, True, window=4096, windowed=1.0),
}  # fmt: skip
"""Shapes that `models.csv` leaves to the published configurations."""


@dataclass(frozen=True, slots=True)
class Software:
    """What the software of a run is known to do.

    Attributes:
        name: of the software: rows of one name are left out together.
        kernel: of attention, as profiles call it; "" where scores are written.
        traffic: how often memory-bound work reads and writes what compiled code would once.
        sequence: tensor parallelism shards activations between products, too.
        parallel_block: attention and feed-forward layer stand side by side.
        asynchronous: collectives of tensor parallelism are divided and hidden.
        gradient_bytes: per element that is reduced between devices.
        narrow_weights: weights of 8-bit products are gathered in 8 bits.
        loss_bytes: per logit that are in memory at the loss: parts of it in 32 bits, and its gradient.
        overlapped: weights and gradients of data parallelism are exchanged while devices compute.
        once: with micro batches, weights are gathered and gradients scattered once a step.
        state: bytes per parameter of weights (as stored), gradients and optimizer state.
        whole: one compiled program: updates as gradients come, gathers matrix by matrix, computes cheap results again.
        once_per_node: a token goes to a node of several of its experts once.
        megatron: `selective` computes the core of attention again, not layers; where memory is too small, recipes of models with
            experts compute norms, activations and the products of compressed attention again (`moe_act`, `mla_up_proj`).
        experts_behind: tokens go to experts and back while another micro batch computes.
        graphs: an iteration is launched as one graph.
        attention: how much faster than in 16 bits attention is.
        moves: how often the row of a token is read or written on its way to an expert and back, forward.
        biases: bytes per element of such a row that biases of experts read and write, forward and backward.
        gates: gates of experts, and their casts to 8 bits, are kernels of their own and not done by the products around.
    """

    name: str
    kernel: str = "default"
    traffic: float = 1.0
    sequence: bool = True
    asynchronous: bool = False
    parallel_block: bool = False
    gradient_bytes: int = 4
    narrow_weights: bool = False
    loss_bytes: int = 14
    overlapped: bool = True
    once: bool = False
    state: tuple[int, int, int] = (4, 4, 8)
    whole: bool = False
    once_per_node: bool = False
    megatron: bool = False
    experts_behind: bool = False
    graphs: bool = False
    attention: float = 1.0
    moves: int = 6
    gates: bool = True
    biases: tuple[int, int] = (44, 80)
    """By default those of Megatron's `TEGroupedMLP._apply_bias`, products with probabilities, sums and copies in 32 bits (28, 40),
    and of the clamp before its gate, which no kernel does (two bounds and a copy of both halves, of each a gradient: 16, 40)."""


_MEGATRON = {"megatron": True, "state": (2, 4, 12), "loss_bytes": 8}
_NEMO = _MEGATRON | {"state": (2, 2, 10)}
"""Its fused Adam has gradients in 16 bits, and of weights in 32 bits the 16 that weights in 16 lack."""
_XLA = {"gradient_bytes": 2, "state": (4, 2, 8), "whole": True}
# Rows on TPUs as in MaxText's `RoutedMoE`: repeated, sorted, sorted back, cast to 32 bits, added up; biases are gathered by row.
_SOFTWARE: tuple[tuple[str, Software], ...] = (
    ("2205.05198", Software("Megatron-LM 2022", "", gradient_bytes=2, overlapped=False, **_MEGATRON)),
    ("2104.04473", Software("Megatron-LM 2021", "", sequence=False, gradient_bytes=2, overlapped=False, **_MEGATRON)),
    ("2402.15627", Software("MegaScale", "flash2", **_MEGATRON)),
    ("JAX-Toolbox", Software("Pax", loss_bytes=6, **_XLA)),
    ("torchtitan", Software("torchtitan", "flash2", narrow_weights=True)),
    ("llm-foundry", Software("llm-foundry", "flash2", 1.5, gradient_bytes=2, state=(4, 4, 8), loss_bytes=4)),
    (
        "Megatron-Bridge",
        Software("Megatron-Bridge", asynchronous=True, gradient_bytes=2, once_per_node=True, **_MEGATRON),
    ),
    ("NVIDIA/NeMo", Software("NeMo", asynchronous=True, gradient_bytes=2, **_NEMO)),
    ("NVIDIA/Megatron-LM", Software("Megatron-LM", asynchronous=True, **_MEGATRON)),
    ("nemo", Software("NeMo", asynchronous=True, gradient_bytes=2, **_NEMO)),
    ("gpu-recipes", Software("MaxText on GPUs", loss_bytes=6, **_XLA)),
    ("tpu-recipes", Software("MaxText on TPUs", loss_bytes=2, moves=10, biases=(24, 18), **_XLA)),
    (
        "Mist",
        Software(
            "Mist", "flash2", 1.5, sequence=False, gradient_bytes=2, megatron=True, state=(2, 2, 12), loss_bytes=8
        ),
    ),
    ("mindformers", Software("MindFormers", gradient_bytes=4, megatron=True, state=(4, 4, 8))),
    ("alpa", Software("Alpa", "", 1.0, sequence=False, loss_bytes=6, **_XLA)),
    ("Primus", Software("Primus", **_MEGATRON)),
    ("Automodel", Software("Automodel", gradient_bytes=2, loss_bytes=4, once_per_node=True)),
)
"""By a part of the source."""


def _is_one_graph(row: Mapping[str, str]) -> bool:
    """Whether Megatron-Bridge's recipe, from release 26.06 on, launches an iteration as one graph and hides experts' tokens."""
    is_newest = re.search(r"26\.0[6-9]|performance-summary\.md", row["source"]) and row["precision"].lower() == "mxfp8"
    recipes = {"deepseek-v3", "gpt-oss-120b", "qwen3-235b-a22b", "qwen3-30b-a3b"}, ("GB200", "GB300")
    model, chip = row["model"].lower(), row["chip"].upper()
    return bool(is_newest) and (
        (model in recipes[0] and chip in recipes[1]) or (model, chip) == ("qwen3-30b-a3b", "B300")
    )


def _software(row: Mapping[str, str], pp: int) -> Software:
    source, note = row["source"], row["note"].lower()
    known = next((found for key, found in _SOFTWARE if key in source), Software(source.split(" ")[0]))
    changes: dict[str, Any] = {}
    if "eager" in note:
        # Norms in 7 passes over 32 bits, rotation in complex numbers, activation and gate apart: counted in its source.
        changes["traffic"] = 2.7
    if known.name == "Pax" and note == "xla":
        changes["kernel"] = ""
    if "async tp" in note and "with async tp" not in note:
        changes["asynchronous"] = True
    if known.name == "torchtitan" and "2025" in source:
        changes["loss_bytes"] = 6  # by then the loss was compiled
    if "no sequence parallelism" in note:
        changes["sequence"] = False
    if known.name in ("torchtitan", "Automodel") and pp > 1:
        changes["once"] = True
    chip, model = row["chip"].upper(), row["model"].lower()
    if known.name == "Megatron-Bridge":
        # As its `scripts/performance/configs` have it: the plain dispatcher sends each copy, and sorts once more on either side.
        if model.startswith("gpt-oss") or (model.startswith("qwen3") and chip in ("H100", "B200", "B300")):
            changes |= {"moves": 10, "once_per_node": False}
        changes["experts_behind"] = chip == "H100" and model in ("deepseek-v3", "qwen3-235b-a22b")
        if _is_one_graph(row):
            # Attention in 8 bits as in cuDNN's own benchmark (GB300, DeepSeek-V3, 4096 tokens: 1752 and 1273 TFLOP/s).
            in_8_bits = (model, chip) != ("deepseek-v3", "GB200")
            changes |= {"experts_behind": True, "graphs": True, "attention": 1.38 if in_8_bits else 1.0}
            changes |= {"biases": (28, 40), "gates": False}
    if known.name == "MegaScale" and not note.startswith("megascale"):
        changes["name"] = "Megatron-LM of 2024"
    elif known.name == "MegaScale":
        changes["asynchronous"] = True
        changes["parallel_block"] = True
    return replace(known, **changes)


@dataclass(frozen=True, slots=True)
class Again:
    """What the backward pass computes again: shares of each product, of attention and of memory-bound work, and of what is kept.

    Attributes:
        products: share by the name of a matrix ("q", "k", "v", "o", "up", "down"; "up" is gate and up).
        attention, traffic: shares.
        layers: share of the layers that this is of.
        saved: what is kept of such a layer, by name as in `products`, with "input" and "context"; None for everything.
        on_host: what is kept is sent to the host.
        guessed: the run does not say; where memory is too small for it, more must have been computed again.
    """

    products: Mapping[str, float]
    attention: float = 0.0
    traffic: float = 0.0
    layers: float = 1.0
    saved: frozenset[str] | None = None
    on_host: bool = False
    guessed: bool = False


_ALL = dict.fromkeys(("q", "k", "v", "o", "up", "down"), 1.0)
NOTHING = Again({}, layers=0.0)
FULL = Again(_ALL, 1.0, 1.0, saved=frozenset(["input"]))
MODULES = Again({}, 0.0, 0.5, saved=frozenset(["input", "middle", "q", "k", "v", "context", "up", "experts"]))
LATENT_MODULES = Again({"q": 0.78, "k": 0.8}, 0.0, 0.5, saved=MODULES.saved - frozenset(["q", "k", "v"]))
"""What Megatron computes again of layers with experts: norms and activations, of compressed attention also the second of the two
products that make queries, keys and values (shares of their elements in DeepSeek-V3)."""

_MODULES_OF_RECIPES = {("gpt-oss-120b", chip) for chip in ("H100", "B200", "GB200")}
"""Recipes of Megatron-Bridge that compute norms and activations again where memory would do without (releases 26.02 to 26.08)."""


_POLICIES: Mapping[str, frozenset[str]] = {
    name: frozenset(saved.split())
    for name, saved in {
        "minimal": "q k v o up", "minimal_with_context": "q k v o up context", "minimal_flash": "q k v o up context",
        "minimal_offloaded": "q k v o up", "save_dot_except_mlp": "q k v o", "save_dot_except_mlpwi": "q k v o",
        "save_dot_with_context_except_mlp": "q k v o context", "save_qkv_proj": "q k v", "save_out_proj": "o",
        "qkv_proj_offloaded": "q k v",
    }.items()
}  # fmt: skip
"""What MaxText's policies of recomputation keep; the result of the last product of a layer, no backward pass reads."""


def _again(row: Mapping[str, str], software: Software) -> tuple[Again, str]:
    """What is computed again, and why that is not certain."""
    text, where = row["recompute"].strip().lower(), row["offload"].strip().lower()
    if text in ("none", "full"):
        return (FULL if text == "full" else NOTHING), ""
    if text.startswith("selective"):
        if "by stage" in text:
            counts = [float(number) for number in re.findall(r"\d+", text)]
            return Again(
                {}, 1.0, 1.0, sum(counts) / len(counts) / 10, frozenset(["q", "k", "v", "o", "up", "down", "input"])
            ), ""
        if software.megatron:
            # The core of attention: scores that are not written anyway are nothing to save.
            share = 1.0 if not software.kernel else 0.0
            return Again({}, share, 0.0, 1.0, None), ""
        if "per op" in text or "default of the config" in text:
            again = {"k": 1.0, "o": 1.0, "up": 0.5}
            return Again(again, 0.0, 1.0, 1.0, frozenset(["input", "q", "v", "up/2", "context"])), ""
        return Again(_ALL, 1.0, 1.0, 0.5, frozenset(["input"])), ""
    if text.startswith(tuple(_POLICIES)):
        # The longest name is the policy's own.
        saved = _POLICIES[max(filter(text.startswith, _POLICIES), key=len)]
        again = {name: 1.0 for name in ("q", "k", "v", "o", "up") if name not in saved}
        return Again(again, float("context" not in saved), 1.0, 1.0, saved | {"input"}, "offloaded" in text), ""
    if text.startswith("custom"):
        # Without a list: that of the same software's recipe for the same chip with a list.
        unlisted = not where and ":" not in text
        saved = {"input"} | ({"q", "k", "v", "context"} if unlisted else set())
        listed = where + text
        saved |= {name for name in ("q", "k", "v") if re.search(rf"\b{name}\b", listed)}
        saved |= {"o"} if "out" in listed else set()
        saved |= {"context"} if "context" in listed else set()
        again = {name: 1.0 for name in ("q", "k", "v", "up") if name not in saved} | (
            {} if "o" in saved else {"o": 1.0}
        )
        attention = 0.0 if "context" in saved else 1.0
        return Again(
            again, attention, 1.0, 1.0, frozenset(saved), bool(where), unlisted and text.startswith("custom")
        ), ""
    if _listed_share(row["note"]):
        return FULL, ""
    recipe = (row["model"].lower(), row["chip"].upper())
    if software.name == "Megatron-Bridge" and recipe in _MODULES_OF_RECIPES and not software.graphs:
        return replace(MODULES, guessed=True), f"recomputation is that of the newest recipe ('{row['recompute']}')"
    return replace(NOTHING, guessed=True), f"recomputation is unknown ('{row['recompute']}')"


@dataclass(frozen=True, slots=True)
class Run:
    """One row: a model, a machine, a plan, and what was published."""

    number: int
    row: Mapping[str, str]
    decoder: Decoder
    profile: HardwareProfile
    software: Software
    again: Again
    devices: int
    seq: int
    batch: int
    micro: float
    dp: int
    tp: int
    pp: int
    vp: int
    cp: int
    ep: int
    zero: int
    shards: int
    precision: str
    unsure: str
    tokens_per_second: float

    @property
    def num_micro(self) -> float:
        """Micro batches of a step."""
        return max(self.batch / (self.dp * self.micro), 1.0)

    @property
    def is_dense(self) -> bool:
        """Whether it has no experts."""
        return not self.decoder.experts

    @property
    def is_sure(self) -> bool:
        """Whether everything that decides about its time is known, and a figure was read or confirmed."""
        return not self.unsure and self.row["mark"] != "U" and self.tokens_per_second > 0


_UNKNOWN = ("", "?", "-", "n/a", "none", "unknown")
"""How a column says that it is not known."""
_COLUMNS = (
    "model", "chip", "devices", "precision", "seq", "global_batch", "micro_batch", "dp", "tp", "pp", "vp", "cp", "ep", "zero",
    "recompute", "offload", "tokens_s_dev", "step_s", "source", "mark", "note",
)  # fmt: skip
"""Columns of a table; those that a file lacks are empty."""
STAGES = re.compile(r"stages (\d+(?:\+\d+)+)")
"""Layers of each stage, as a note lists them."""
_PRECISIONS = ("", "bf16", "fp16", *NARROW)


class CannotBeExpressedError(Exception):
    """A row that the table's way has no answer for; the text says why."""


def _listed_share(note: str) -> float:
    """Share of the layers that are computed again, where a note lists them by stage."""
    stages, again = STAGES.search(note), re.search(r"recompute ([\d,]+)", note)
    if not stages or not again:
        return 0.0
    return sum(map(int, again.group(1).rstrip(",").split(","))) / sum(map(int, stages.group(1).split("+")))


def _number(row: Mapping[str, str], key: str, otherwise: float | None = None) -> float:
    """The positive number that a column begins with; `otherwise` where it is not known.

    Raises:
        CannotBeExpressedError: anything else, and a column that must be known and is not.
    """
    text = row[key]
    if text.lower() in _UNKNOWN and otherwise is not None:
        return otherwise
    found = re.match(r"(\d+(\.\d*)?|\.\d+)(?![\w.])", text)
    if not found or (key != "zero" and not float(found.group())):
        raise CannotBeExpressedError(f"'{key}' must begin with a positive number, but is '{text}'")
    return float(found.group())


def _count(row: Mapping[str, str], key: str, otherwise: int | None = None) -> int:
    """As `_number`, of what is counted."""
    found = _number(row, key, otherwise)
    if found % 1:
        raise CannotBeExpressedError(f"'{key}' must be an integer, but is '{row[key]}'")
    return int(found)


def profile_of(chip: str) -> str:
    """The name of a chip's profile."""
    name = chip.lower()
    for candidate in (name, f"tpu-{name}", f"ascend{name}"):
        if candidate in known_profiles():
            return candidate
    raise CannotBeExpressedError(f"there is no profile of the chip '{chip}'")


def read_models(path: Path) -> dict[str, Decoder | str]:
    """Shapes of models by name: those of a file, and those of published configurations; a text says what is wrong with one."""
    shapes: dict[str, Decoder | str] = dict(_SHAPES)
    for row in csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()) if path.exists() else ():
        name = row.pop("model").strip().lower()
        try:
            sizes = {key: int(row[key] or 0) for key in row if key in Decoder.__dataclass_fields__ and key != "gated"}
            shapes[name] = Decoder(gated=row["gated"].lower() in ("1", "true", "yes"), **sizes)
        except (ValueError, TypeError, ZeroDivisionError, AttributeError):
            shapes[name] = f"the row of '{name}' in {path.name} is not the shape of a decoder"
    return shapes


def _decoder(row: Mapping[str, str], models: Mapping[str, Decoder | str]) -> Decoder:
    shape = re.search(r"shape \([^)]*\):\s*(\d+(?: \d+){6})", row["note"])
    if shape:
        layers, hidden, ffn, heads, kv, vocab, gated = map(int, shape.group(1).split()[:7])
        return Decoder(layers, hidden, ffn, heads, kv, vocab, bool(gated))
    found = models.get(row["model"].lower(), f"the shape of '{row['model']}' is in neither table")
    if isinstance(found, str):
        raise CannotBeExpressedError(found)
    return found


def _checked(run: Run) -> Run:
    """The run.

    Raises:
        CannotBeExpressedError: its plan does not fit its model, machine and batch.
    """
    decoder, devices, listed = run.decoder, run.devices, STAGES.search(run.row["note"])
    stages = [int(count) for count in listed.group(1).strip("+").split("+")] if listed else []
    lists = [re.search(rf"{name} ([\d,/]+)", run.row["note"]) for name in ("recompute", "optimizer offload")]
    entries = [found.group(1).rstrip(",").split(",") for found in (lists if stages else lists[1:]) if found]
    degrees = f"data {run.dp} x tensor {run.tp} x stages {run.pp} x context {run.cp}"
    problems = {
        f"{degrees} are not {devices} devices": run.dp * run.tp * run.pp * run.cp != devices,
        f"{run.pp} stages of {run.vp} chunks have more parts than {decoder.layers} layers, embedding and head": run.pp
        * run.vp
        > decoder.layers + 2,
        f"the note lists {len(stages)} stages, the plan has {run.pp}": bool(stages) and len(stages) != run.pp,
        "the note's lists of layers or shares are not one number per stage": any(
            len(texts) != run.pp or not all(re.fullmatch(r"\d+(/[1-9]\d*)?", text) for text in texts)
            for texts in entries
        ),
        f"{run.tp} devices of tensor parallelism have {decoder.heads} heads": run.tp > decoder.heads,
        f"{run.ep} devices have {decoder.experts} experts": decoder.experts > 0
        and run.ep > min(decoder.experts, devices),
        f"a batch of {run.batch} is less than a sequence for each of {run.dp} groups of {run.cp} devices": run.batch
        * run.cp
        < run.dp,
        f"the precision '{run.precision}' is none of {', '.join(_PRECISIONS[1:])}": run.precision not in _PRECISIONS,
        f"the chip '{run.row['chip']}' has no rate of products of {run.precision}": run.precision in NARROW
        and run.profile.rate_name(NARROW[run.precision]) in ("bfloat16", "default"),
    }
    for problem, there in problems.items():
        if there:
            raise CannotBeExpressedError(problem)
    return run


def read_run(number: int, columns: Mapping[str, str | None], models: Mapping[str, Decoder | str]) -> Run:
    """A row with everything that follows from it.

    Raises:
        CannotBeExpressedError: the model, the chip or the plan is not known.
    """
    row = {key: str(columns.get(key) or "").strip() for key in _COLUMNS}
    decoder, profile = _decoder(row, models), load_profile(profile_of(row["chip"]))
    devices, seq, note = _count(row, "devices"), _count(row, "seq"), row["note"]
    stages = STAGES.search(note)
    pp = stages.group(1).count("+") + 1 if stages and not row["pp"] else _count(row, "pp", 1)
    tp, cp, ep, vp = (_count(row, key, 1) for key in ("tp", "cp", "ep", "vp"))
    software = _software(row, pp)
    again, unsure = _again(row, software)
    dp = _count(row, "dp", max(devices // (tp * pp * cp), 1))
    zero = 3 if "FSDP" in note and dp > 1 and not row["recompute"].startswith("custom") else _count(row, "zero", 0)
    halves = re.search(r"(\d+) x (\d+)", row["zero"])
    micro = _number(row, "micro_batch", 1)
    # Of programs that count the batch of a device, those of one group hold one batch together.
    micro = micro * cp if micro < 1 else micro
    # Without a batch: so many micro batches that bubbles are small.
    batch = _count(row, "global_batch", max(int(dp * micro * (8 * pp if pp > 1 else 1)), 1))
    # A micro batch is a part of a group's batch.
    micro = min(micro, batch / dp)
    capacity = re.search(r"capacity (\d+(\.\d+)?)", note)
    if capacity and decoder.experts:
        # So many rows are there for each expert, filled or not.
        decoder = replace(decoder, top_k=decoder.top_k * float(capacity.group(1)))
    again = replace(again, layers=_listed_share(note)) if _listed_share(note) else again
    unsure = "" if _listed_share(note) else unsure
    if not row["global_batch"]:
        unsure = unsure or "the batch is unknown"
    if not row["micro_batch"] and not stages:
        unsure = unsure or "the micro batch is unknown"
    if pp > 1 and not row["vp"] and not stages:
        unsure = unsure or "the chunks of a stage are unknown"
    seconds = _number(row, "step_s", 0.0)
    rate = _number(row, "tokens_s_dev", 0.0) or (batch * seq / seconds / devices if seconds else 0.0)
    return _checked(Run(
        number, row, decoder, profile, software, again, devices, seq, batch, micro, dp, tp, pp, vp,
        cp, ep, zero, int(halves.group(2)) if halves else dp * (cp if zero == 3 else 1), re.split(r"[^a-z0-9]", row["precision"].lower())[0], unsure, rate,
    ))  # fmt: skip


def read_runs(path: Path, models: Mapping[str, Decoder | str]) -> list[tuple[int, Mapping[str, str], Run | str]]:
    """All rows of a file: number, columns, and the run or why it cannot be expressed."""
    rows: list[tuple[int, Mapping[str, str], Run | str]] = []
    for number, row in enumerate(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())):
        try:
            rows.append((number, row, read_run(number, row, models)))
        except CannotBeExpressedError as problem:
            rows.append((number, row, str(problem)))
    return rows
