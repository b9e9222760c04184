"""The public training programs that `tools/run_public_scripts.py` runs: where they are, their arguments, and their made-up data.

Sizes are small, the names of files and columns are those that the programs ask for. Data of `copies` ranks hold every sample that
many times in a row, so that each of the ranks reads what one rank would read of one copy: statistics of batches are then equal.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from sporax.mindspore.mindrecord import FileWriter

Maker = Callable[[Path, int], None]


def drawn(*shape: int, high: int = 256, kind: Any = np.int32, low: int = 0) -> np.ndarray:
    """Whole numbers that depend on their shape alone."""
    return np.random.RandomState(int(np.prod(shape))).randint(low, high, shape).astype(kind)


def mnist(folder: Path, copies: int) -> None:
    """63 images of digits."""
    place = folder / "train"
    place.mkdir(parents=True)
    images = np.repeat(drawn(63, 28, 28, kind=np.uint8), copies, 0)
    labels = np.repeat(drawn(63, high=10, kind=np.uint8), copies)
    (place / "train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, len(images), 28, 28) + images.tobytes())
    (place / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, len(labels)) + labels.tobytes())


def cifar(folder: Path, copies: int) -> None:
    """12 images of ten classes, in a file of the full length, which the wheel asks for."""
    place = folder / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    rows = np.concatenate([drawn(12, 1, high=10, kind=np.uint8), drawn(12, 3072, kind=np.uint8)], 1)
    (place / "data_batch_1.bin").write_bytes(np.resize(np.repeat(rows, copies, 0), (10000, 3073)).tobytes())


def volumes(folder: Path, copies: int) -> None:
    """Pages of cells and of their masks; a page is picked by chance, so all of them are one."""
    folder.mkdir(parents=True)
    for name, page in (
        ("volume", drawn(64, 64, kind=np.uint8)),
        ("labels", 255 * drawn(64, 64, high=2, kind=np.uint8)),
    ):
        image = PIL.Image.fromarray(page)
        image.save(folder / f"train-{name}.tif", save_all=True, append_images=[image] * (8 * copies - 1))


def coco(folder: Path, copies: int, split: str = "train2017", suffix: str = "train2017") -> None:
    """Six pictures with two boxes each."""
    pictures = folder / split
    pictures.mkdir(parents=True)
    (folder / "annotations").mkdir()
    images, boxes = [], []
    for number in range(6 * copies):
        picture = number // copies
        file = f"{number:03}.jpg"
        noise = np.random.RandomState(picture).randint(0, 255, (8, 8, 3)).astype(np.uint8)
        PIL.Image.fromarray(noise).resize((320, 320)).save(pictures / file)
        images.append({"id": number, "file_name": file, "height": 320, "width": 320})
        for box in range(2):
            size = {"bbox": [20 + 60 * box, 30 + 10 * picture, 100, 120], "area": 12000, "category_id": 1 + box}
            boxes.append({"id": len(boxes) + 1, "image_id": number, "iscrowd": 0, **size})
    categories = [{"id": 1, "name": "person"}, {"id": 2, "name": "bicycle"}]
    text = json.dumps({"images": images, "annotations": boxes, "categories": categories})
    (folder / "annotations" / f"instances_{suffix}.json").write_text(text)


def records(file: Path, copies: int, **columns: np.ndarray) -> None:
    """A file of MindRecord whose columns have the first dimension of these arrays as rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    writer = FileWriter(str(file), 1)
    kinds = {name: {"type": value.dtype.name, "shape": list(value.shape[1:])} for name, value in columns.items()}
    writer.add_schema(kinds, "made")
    rows = [{name: value[row] for name, value in columns.items()} for row in range(len(next(iter(columns.values()))))]
    writer.write_raw_data([row for row in rows for _ in range(copies)])
    writer.commit()


def sentences(folder: Path, copies: int) -> None:
    """Words and labels for fastText, in three files by length."""
    for length in (8, 16, 32):
        columns = {"src_tokens": drawn(4, length, high=50), "src_tokens_length": np.full((4, 1), length, np.int32)}
        file = folder / f"train_dataset_bs_{length}.mindrecord"
        records(file, copies, **columns, label_idx=drawn(4, 1, high=4))


def masked_words(folder: Path, copies: int) -> None:
    """Sentences with words to guess, for BERT."""
    columns = {"input_ids": drawn(12, 16, high=60), "input_mask": np.ones((12, 16), np.int32)}
    columns |= {"segment_ids": np.zeros((12, 16), np.int32), "next_sentence_labels": drawn(12, 1, high=2)}
    columns |= {"masked_lm_positions": drawn(12, 4, high=16), "masked_lm_ids": drawn(12, 4, high=60, low=1)}
    records(folder / "made.mindrecord", copies, **columns, masked_lm_weights=np.ones((12, 4), np.float32))


def translations(folder: Path, copies: int) -> None:
    """Pairs of sentences, for the Transformer."""
    columns = {}
    for part in ("source_eos", "target_sos", "target_eos"):
        columns[f"{part}_ids"] = drawn(12, 16, high=60, low=1 + len(columns))
        columns[f"{part}_mask"] = np.ones((12, 16), np.int32)
    records(folder / "made_16_00", copies, **columns)


def tokens(folder: Path, copies: int, length: int = 17, words: int = 60, rows: int = 12) -> None:
    """Running text, for language models."""
    records(folder / "made.mindrecord", copies, input_ids=drawn(rows, length, high=words))


@dataclass(frozen=True)
class Program:
    """A program: `source` is the key of a checkout, `folder` of it holds `script`.

    `arguments` may name `{data}` and `{folder}`; `config` replaces entries of a YAML file of the program, by which the program
    gets the path of a changed copy as `{config}`; `on_eight` are further arguments where there are eight devices; `settings`
    change arguments of the program's classes that it holds in its source; `copies` is how often ranks repeat a sample, 1 where
    all devices share the data of one; `why` says what of the wheel or of eight devices cannot be.
    """

    source: str
    folder: str
    script: str
    data: Maker
    arguments: str
    on_eight: str = ""
    config: str = ""
    entries: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    copies: int = 8
    why: str = ""


CPU = "--device_target CPU"
FIRST_12: dict[str, dict[str, Any]] = {"mindspore.dataset:Cifar10Dataset": {"num_samples": 12}}
PROGRAMS = {
    "lenet": Program(
        "models",
        "research/cv/lenet",
        "train.py",
        mnist,
        f"{CPU} --data_path {{data}} --ckpt_path out --batch_size 21 --epoch_size 1",
    ),
    "resnet": Program(
        "models",
        "official/cv/ResNet",
        "train.py",
        cifar,
        "--config_path {config} --device_target CPU --data_path {data}/cifar-10-batches-bin --output_dir out",
        "--device_target GPU --run_distribute True --device_num 8",
        "config/resnet18_cifar10_config.yaml",
        {"batch_size": 4, "epoch_size": 1, "warmup_epochs": 0, "train_image_size": 32, "lr_init": 0.01},
        FIRST_12,
    ),
    "vgg": Program(
        "models",
        "official/cv/VGG/vgg16",
        "train.py",
        cifar,
        "--config_path {config} --data_dir {data} --device_target CPU",
        "--device_target GPU --is_distributed 1",
        "cifar10_config.yaml",
        {"batch_size": 4, "max_epoch": 1, "image_size": [32, 32], "warmup_epochs": 0, "lr_max": 0.01},
        FIRST_12,
    ),
    "unet": Program(
        "models",
        "official/cv/Unet",
        "train.py",
        volumes,
        "--config_path {config} --data_path {data} --output_path out --device_target CPU",
        "--run_distribute True",
        "unet_simple_config.yaml",
        {"dataset": "ISBI", "image_size": [64, 64], "batch_size": 2, "epochs": 1, "distribute_epochs": 1, "repeat": 1},
    ),
    "ssd": Program(
        "models",
        "official/cv/SSD",
        "train.py",
        coco,
        "--config_path {config} --data_path {data} --coco_root . --output_path out --device_target CPU",
        "--device_target GPU --run_distribute True --device_num 8",
        "config/ssd300_config.yaml",
        {"batch_size": 2, "epoch_size": 1, "warmup_epochs": 0},
    ),
    "yolov3": Program(
        "models",
        "official/cv/YOLOv3",
        "train.py",
        lambda folder, copies: coco(folder, copies, "train2014", "train2014"),
        "--config_path {config} --data_dir {data} --is_distributed 0 --device_target CPU",
        "--is_distributed 1 --device_target Ascend",
        "default_config.yaml",
        {"per_batch_size": 2, "max_epoch": 1, "training_shape": "64", "pretrained_backbone": "", "log_interval": 1}
        | {"backbone_layers": [1, 1, 1, 1, 1], "need_modelarts_dataset_unzip": False},
    ),
    "fasttext": Program(
        "models",
        "research/nlp/fasttext",
        "train.py",
        sentences,
        "--config_path {config} --dataset_path {data} --device_target CPU",
        "--run_distribute True",
        "ag_config.yaml",
        {"buckets": [8, 16, 32], "vocab_size": 50, "batch_size": 4, "epoch": 1, "warmup_steps": 2},
    ),
    "bert": Program(
        "models",
        "official/nlp/Bert",
        "run_pretrain.py",
        masked_words,
        "--config_path {config} --data_dir {data} --device_target Ascend",
        "--distribute true --device_num 8",
        "pretrain_config.yaml",
        {
            "base_batch_size": 4,
            "epoch_size": 1,
            "enable_data_sink": "false",
            "enable_save_ckpt": "false",
            "train_steps": 3,
            "data_sink_steps": 3,
        }
        | {"do_shuffle": "false", "bert_network": "base", "dataset_format": "mindrecord"}
        | {
            "base_net_cfg": {"seq_length": 16, "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2}
            | {"num_attention_heads": 4, "intermediate_size": 64, "hidden_act": "gelu", "hidden_dropout_prob": 0.0}
            | {"attention_probs_dropout_prob": 0.0, "max_position_embeddings": 16, "type_vocab_size": 2}
            | {"initializer_range": 0.02, "use_relative_positions": False}
            | {"dtype": "mstype.float32", "compute_type": "mstype.float32"}
        },
    ),
    "transformer": Program(
        "models",
        "official/nlp/Transformer",
        "train.py",
        translations,
        "--config_path {config} --data_path {data}/made --device_target CPU",
        "--distribute true --device_num 8 --device_target GPU",
        "default_config.yaml",
        {
            "batch_size": 4,
            "epoch_size": 1,
            "seq_length": 16,
            "vocab_size": 60,
            "hidden_size": 32,
            "num_hidden_layers": 2,
        }
        | {"num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 16, "bucket_boundaries": [16]}
        | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    ),
    "gpt": Program(
        "models",
        "official/nlp/GPT",
        "train.py",
        tokens,
        "--data_path {data} --epoch_size 1 --sink_size 3 --warmup_step 1 --start_lr 1e-2 --model_parallel_num 1",
        "--distribute true --device_num 8",
        settings={
            "src.utils:GPTConfig": {"seq_length": 16, "vocab_size": 60, "embedding_size": 32, "num_layers": 2}
            | {"num_heads": 4, "dropout_rate": 0.0}
        },
    ),
}
