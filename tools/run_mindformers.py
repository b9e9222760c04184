"""Train one tiny model of an unchanged mindformers 1.0 on one device and on eight, and compare.

    git clone --branch r1.0 https://github.com/mindspore-lab/mindformers /tmp/mf   # and what its requirements.txt names
    PYTHONPATH=/tmp/mf sporax run tools/run_mindformers.py llama one.npz
    PYTHONPATH=/tmp/mf sporax run --local_devices 8 tools/run_mindformers.py llama eight.npz --devices 8 --against one.npz

Models: llama, gpt2, bert. Their own `TransformerOpParallelConfig` cuts them on eight devices. GPT-2 calculates in float16 in two
places, whatever its configuration says.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from mindformers import BertConfig, BertForPreTraining, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from mindformers.modules.transformer import TransformerOpParallelConfig

import mindspore as ms
from mindspore import nn

BATCH, LENGTH, WORDS = 4, 16, 64
_TYPES = ("compute_dtype", "softmax_compute_type", "layernorm_compute_type", "param_init_type", "rotary_dtype")
IN_FLOAT32 = dict.fromkeys(_TYPES, "float32")
SIZES = {"batch_size": BATCH, "seq_length": LENGTH, "hidden_size": 32, "num_layers": 2, "vocab_size": WORDS}
#: Model -> (data parallel, model parallel) on eight devices. BERT looks one row of positions up, which data cannot be cut by.
DEGREES = {"llama": (2, 4), "gpt2": (2, 4), "bert": (1, 8)}
TOLERANCE = {"llama": 1e-5, "gpt2": 1e-3, "bert": 1e-3}


def model(name: str, parallel: Any) -> Any:
    """A model of two small layers."""
    common = {**SIZES, **IN_FLOAT32, "parallel_config": parallel, "use_past": False}
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(num_heads=4, multiple_of=16, **common))
    dropout = ("hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_dropout_rate", "attention_dropout_rate")
    common |= dict.fromkeys((*dropout, "embedding_dropout_prob"), 0.0) | {"max_position_embeddings": LENGTH}
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config(num_heads=4, **common))
    heads = {"num_heads": 8, "num_attention_heads": 8, "num_hidden_layers": 2}
    sizes = {"embedding_size": 32, "intermediate_size": 64, "dtype": "float32", "is_training": True}
    return BertForPreTraining(BertConfig(**heads, **sizes, **common))


def batch(name: str) -> list[ms.Tensor]:
    """The inputs of a step."""
    random = np.random.RandomState(0)
    if name != "bert":
        return [ms.Tensor(random.randint(0, WORDS, (BATCH, LENGTH + 1)), ms.int32)]
    words, labels = (random.randint(0, WORDS, (BATCH, count)) for count in (LENGTH, 4))
    places, following = random.randint(0, LENGTH, (BATCH, 4)), random.randint(0, 2, (BATCH, 1))
    whole, first = np.ones((BATCH, LENGTH)), np.zeros((BATCH, LENGTH))
    numbers = [ms.Tensor(value, ms.int32) for value in (words, whole, first, following, places, labels)]
    return [*numbers, ms.Tensor(np.ones((BATCH, 4)), ms.float32)]


def main() -> None:
    """Two steps of SGD from fixed weights; the weights go into a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(DEGREES))
    parser.add_argument("file")
    parser.add_argument("--devices", type=int, default=1, choices=(1, 8))
    parser.add_argument("--against", help="a file of another run: its weights must be the same")
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    data, slices = 1, 1
    if options.devices > 1:
        data, slices = DEGREES[options.model]
        ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=options.devices, full_batch=True)
    network = model(options.model, TransformerOpParallelConfig(data_parallel=data, model_parallel=slices))
    random = np.random.RandomState(5)
    for parameter in sorted(network.get_parameters(), key=lambda parameter: parameter.name):
        value = random.uniform(-0.1, 0.1, parameter.shape) + ("norm" in parameter.name or "gamma" in parameter.name)
        if parameter.dtype == ms.float32:
            parameter.set_data(ms.Tensor(value, ms.float32))
    step = nn.TrainOneStepCell(network, nn.SGD(network.trainable_params(), learning_rate=0.1)).set_train()
    losses = [float(step(*batch(options.model)).asnumpy().reshape(-1)[0]) for _ in range(2)]
    print(f"{options.model} on {data} x {slices}: losses {losses}")
    weights = {parameter.name: parameter.asnumpy() for parameter in network.trainable_params()}
    np.savez(options.file, **weights)
    if options.against:
        with np.load(options.against) as others:
            worst = max(
                np.abs(weights[name] - others[name]).max() / np.abs(others[name]).max() for name in others.files
            )
        print(f"largest difference of a weight, relative to its largest value: {worst:.1e}")
        if not worst <= TOLERANCE[options.model]:
            raise SystemExit(f"more than {TOLERANCE[options.model]}")


if __name__ == "__main__":
    main()
