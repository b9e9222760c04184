"""The public training programs that `tools/run_public_scripts.py` runs: where they are, their arguments, and their made-up data.

Sizes are small, the names of files and columns are those that the programs need. Data of `copies` ranks hold every sample that
many times in a row, so that each of the ranks reads what one rank would read of one copy: statistics of batches are then equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from run_samples import write_data

import sporax.mindspore as ms
from sporax.mindspore.mindrecord import FileWriter

Maker = Callable[[Path, int], None]


def drawn(*shape: int, high: int = 256, kind: Any = np.int32, low: int = 0) -> np.ndarray:
    """Whole numbers that depend on their shape alone."""
    return np.random.RandomState(int(np.prod(shape))).randint(low, high, shape).astype(kind)


def mnist(folder: Path, copies: int) -> None:
    """Images of digits."""
    write_data(folder)


def cifar(folder: Path, copies: int) -> None:
    """12 images of ten classes, in a file of the full length, which the wheel requires."""
    place = folder / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    rows = np.concatenate([drawn(12, 1, high=10, kind=np.uint8), drawn(12, 3072, kind=np.uint8)], 1)
    (place / "data_batch_1.bin").write_bytes(np.resize(np.repeat(rows, copies, 0), (10000, 3073)).tobytes())


def cells(folder: Path, copies: int) -> None:
    """Pictures of cells with masks; the program shuffles them by itself, so all of them are one."""
    for number in range(8 * copies):
        place = folder / f"{number:02}"
        place.mkdir(parents=True)
        PIL.Image.fromarray(drawn(64, 64, 3, kind=np.uint8)).save(place / "image.png")
        PIL.Image.fromarray(255 * drawn(64, 64, high=2, kind=np.uint8)).save(place / "mask.png")


def picture(file: Path, number: int, height: int, width: int) -> None:
    """Coarse colours as an image file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.RandomState(number).randint(0, 255, (8, 8, 3)).astype(np.uint8)
    PIL.Image.fromarray(noise).resize((width, height)).save(file)


def coco(folder: Path, copies: int, split: str = "train2017", suffix: str = "train2017") -> None:
    """Six pictures with two boxes each."""
    pictures, images, found = folder / split, [], []
    (folder / "annotations").mkdir(parents=True)
    for number in range(6 * copies):
        file = f"{number:03}.jpg"
        picture(pictures / file, number // copies, 320, 320)
        images.append({"id": number, "file_name": file, "height": 320, "width": 320})
        for box in range(2):
            size = {
                "bbox": [20 + 60 * box, 30 + 10 * (number // copies), 100, 120],
                "area": 12000,
                "category_id": 1 + box,
            }
            found.append({"id": len(found) + 1, "image_id": number, "iscrowd": 0, **size})
    categories = [{"id": 1, "name": "person"}, {"id": 2, "name": "bicycle"}]
    text = json.dumps({"images": images, "annotations": found, "categories": categories})
    (folder / "annotations" / f"instances_{suffix}.json").write_text(text)


def records(file: Path, copies: int, files: int = 1, **columns: np.ndarray) -> None:
    """Files of MindRecord whose columns have the first dimension of these arrays as rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    writer = FileWriter(str(file), files)
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


def guessed_words(folder: Path, copies: int) -> None:
    """The same as eight files beside mindnlp's program, which takes weights of words for weights of classes: as many of both."""
    columns = {"input_ids": drawn(24, 16, high=60), "input_mask": np.ones((24, 16), np.int32)}
    columns |= {"segment_ids": np.zeros((24, 16), np.int32), "next_sentence_label": drawn(24, 1, high=2)}
    columns |= {"masked_lm_positions": drawn(24, 8, high=16), "masked_lm_ids": drawn(24, 8, high=60, low=1)}
    file = folder / "merge_and_save_mindrecord" / "bert_pretrain_data.mindrecord"
    records(file, copies, files=8, **columns, masked_lm_weights=np.ones((24, 8), np.float32))
    (folder / "outputs").mkdir()


def nothing(folder: Path, copies: int) -> None:
    """The program makes its data."""
    folder.mkdir(parents=True)


def tokens(folder: Path, copies: int, first: int = 0) -> None:
    """Running text, for language models."""
    records(folder / "made.mindrecord", copies, input_ids=drawn(12, 17, high=60, low=first))


def words_alone(folder: Path, copies: int) -> None:
    """Running text without padding or ends of documents: parts of a batch have equally many words that count."""
    tokens(folder, copies, 10)


def masked_tokens(folder: Path, copies: int) -> None:
    """Running text and which words of it count."""
    counts = np.ones((12, 17), np.int32)
    records(folder / "made.mindrecord", copies, input_ids=drawn(12, 17, high=60), attention_mask=counts)


def clicks(folder: Path, copies: int) -> None:
    """Views with and without a click, a thousand in a row of the file."""
    for part, rows in (("train_input_part.mindrecord00", 24), ("test_input_part.mindrecord0", 8)):
        values = drawn(rows, 39000, high=100).astype(np.float32) / 100
        columns = {"feat_ids": drawn(rows, 39000, high=200), "feat_vals": values}
        records(folder / part, 1, **columns, label=drawn(rows, 1000, high=2, kind=np.float32))


def adverts(folder: Path, copies: int) -> None:
    """Views of adverts by 26 kinds of features and 13 numbers."""
    columns = {"feat_ids": drawn(24, 26, high=20), "feat_vals": drawn(24, 13, high=9, kind=np.float32)}
    for part in ("train_input_part.mindrecord000", "test_input_part.mindrecord00"):
        records(folder / part, copies, **columns, label=drawn(24, 1, high=2, kind=np.float32))


def faces(folder: Path, copies: int) -> None:
    """Twelve faces of three people, a folder each."""
    for number in range(12 * copies):
        picture(folder / "faces" / str(number // copies // 4) / f"{number:03}.jpg", number // copies, 112, 112)


def classes(folder: Path, copies: int) -> None:
    """The same as pictures of three classes."""
    faces(folder, copies)
    (folder / "faces").rename(folder / "train")


def boxes(folder: Path, copies: int) -> None:
    """Six pictures with two boxes each, in files of text; the large ones fit anchors of all sizes."""
    names = [f"{number:03}" for number in range(6 * copies)]
    (folder / "labels" / "train").mkdir(parents=True)
    for number, name in enumerate(names):
        picture(folder / "images" / "train" / f"{name}.jpg", number // copies, 64, 64)
        middle = 0.3 + 0.05 * (number // copies)
        text = f"0 0.5 {middle:.2f} 0.8 0.5\n1 0.6 {middle:.2f} 0.2 0.5\n"
        (folder / "labels" / "train" / f"{name}.txt").write_text(text)
    (folder / "train.txt").write_text("".join(f"./images/train/{name}.jpg\n" for name in names))


def written_words(folder: Path, copies: int) -> None:
    """Twelve pictures of a word each."""
    words = ["house", "tree", "stone", "river"]
    lines = []
    for number in range(12 * copies):
        picture(folder / "words" / f"{number:03}.png", number // copies, 32, 100)
        lines.append(f"{number:03}.png\t{words[number // copies % 4]}\n")
    (folder / "words.txt").write_text("".join(lines))


def signs(folder: Path, copies: int) -> None:
    """Six pictures with the outlines of two words each."""
    lines = []
    for number in range(6 * copies):
        picture(folder / "signs" / f"{number:03}.png", number // copies, 128, 128)
        far = 60 + 4 * (number // copies)
        outlines = [[[8, 8], [far, 8], [far, 40], [8, 40]], [[16, 64], [far + 40, 64], [far + 40, 100], [16, 100]]]
        words = [{"transcription": "word", "points": outline} for outline in outlines]
        lines.append(f"{number:03}.png\t{json.dumps(words)}\n")
    (folder / "signs.txt").write_text("".join(lines))


def traffic(folder: Path, copies: int) -> None:
    """Speeds on five roads, whose map is a matrix."""
    place = folder / "made"
    place.mkdir(parents=True)
    np.savetxt(place / "adj.csv", drawn(5, 5, high=2), delimiter=",")
    np.savetxt(place / "feature.csv", drawn(37, 5, low=1), delimiter=",", header="a,b,c,d,e", comments="")


def opinions(folder: Path, copies: int) -> None:
    """Sentences of people who like a film, and of others."""
    folder.mkdir(parents=True)
    for name, word in (("rt-polarity.pos", "good"), ("rt-polarity.neg", "bad")):
        lines = [f"film {number % 5} was {word} {'very ' * (number % 3)}and long\n" for number in range(8)]
        (folder / name).write_text("".join(lines))


def captchas(folder: Path, copies: int) -> None:
    """Twelve pictures of words, by their numbers in a list."""
    words = ["house", "tree", "stone", "river"]
    lines = []
    for number in range(12 * copies):
        picture(folder / f"{number:03}.png", number // copies, 32, 100)
        lines.append(f"{number:03}.png {number // copies % 4}\n")
    (folder / "lexicon.txt").write_text("".join(f"{word}\n" for word in words))
    (folder / "annotation_train.txt").write_text("".join(lines))


def numbers(folder: Path, copies: int) -> None:
    """Pictures of a number, which is in the names of the files; the program reads them in any order, so all of them are one."""
    for number in range(24 * copies):
        picture(folder / f"{number:03}-1397.png", 0, 64, 160)


def incomes(folder: Path, copies: int) -> None:
    """People, by numbers, with what they earn and whether they are married."""
    for part in ("train", "eval"):
        people = drawn(12, 499, high=9, kind=np.float32) / 9
        labels = {name: np.eye(2, dtype=np.float32)[drawn(12, high=2)] for name in ("income_labels", "married_labels")}
        records(folder / f"{part}.mindrecord", copies, data=people, **labels)


def sharp_pictures(folder: Path, copies: int) -> None:
    """Twelve small pictures with sharper ones."""
    columns = {
        name: drawn(12, 1, 20 + add, 20, kind=np.float32)[:, :, :20] / 256 for add, name in enumerate(("lr", "hr"))
    }
    records(folder / "srcnn.mindrecord00", copies, **columns)


def next_words(folder: Path, copies: int) -> None:
    """Running text with its mask, and the table of words of a trained GPT-2."""
    ids = drawn(12, 16, high=60)
    records(folder / "made.mindrecord", copies, input_ids=ids, input_mask=np.ones((12, 16), np.int32), label_ids=ids)
    table = np.random.RandomState(0).standard_normal((64, 32)).astype(np.float32)
    ms.save_checkpoint(
        [{"name": "gpt2_embedding_lookup.embedding_table", "data": ms.Tensor(table)}], str(folder / "gpt2.ckpt")
    )


@dataclass(frozen=True)
class Program:
    """A program: `source` is the key of a checkout, `folder` of it holds `script`.

    `arguments` may name `{data}` and `{folder}`; `config` replaces entries of a YAML file of the program, by which the program
    gets the path of a changed copy as `{config}`; `on_eight` are further arguments where there are eight devices; `settings`
    change arguments of the program's classes that it holds in its source, `constants` its attributes; `package` is a checkout
    that it imports; `copies` is how often ranks repeat a sample, 1 where all devices share the data of one; a program that reads
    and writes beside itself runs in a copy of its folder, with the data in it (`in_copy`), where texts of the script are
    `mended`; an evaluation has words of the lines that it prints its `results` in; `computes` is the type that the program
    chooses; `why` says what of the wheel or of eight devices cannot be.
    """

    source: str
    folder: str
    script: str
    data: Maker
    arguments: str
    on_eight: str = ""
    config: str = ""
    entries: dict[str, Any] = field(default_factory=dict)
    entries_on_eight: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    constants_on_eight: dict[str, Any] = field(default_factory=dict)
    package: str = ""
    copies: int = 8
    in_copy: bool = False
    mended: dict[str, str] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    computes: str = "float32"
    why: str = ""


FIRST_12: dict[str, dict[str, Any]] = {"mindspore.dataset:Cifar10Dataset": {"num_samples": 12}}
SMALL = {"batch_size": 4, "hidden_size": 32, "num_layers": 2, "seq_length": 16, "vocab_size": 64} | dict.fromkeys(
    ("compute_dtype", "layernorm_compute_type", "softmax_compute_type", "rotary_dtype", "param_init_type"), "float32"
)
IN_THREE_STEPS = {
    "runner_config": {"epochs": 1, "batch_size": 4, "sink_mode": False, "sink_size": 1},
    "callbacks": [{"type": "MFLossMonitor"}],
    "lr_schedule": {"learning_rate": 1e-2, "warmup_ratio": 0.0},
    "parallel_config": {"data_parallel": 1, "model_parallel": 1, "pipeline_stage": 1, "micro_batch_num": 1},
    "use_parallel": False,
    "optimizer": {"learning_rate": 1e-2},
    "runner_wrapper": {"scale_sense": {"loss_scale_value": 1024}},
}
NO_DROPOUT = {"hidden_dropout_rate": 0.0, "attention_dropout_rate": 0.0}
MINDFORMER = "--config {config} --run_mode train --train_dataset_dir {data}/made.mindrecord"
PANGU = (
    "--mode self_define --run_type train --distribute false --data_url {data} --seq_length 16 --vocab_size 64 "
    "--embedding_size 32 --num_layers 2 --num_heads 4 --per_batch_size 4 --param_init_type fp32 --epoch_size 1 "
    "--sink_size 1 --full_batch 1 --start_lr 1e-2 --warmup_step 1 --op_level_model_parallel_num 1 --word_emb_dp 1 "
    "--eod_id 9 --optimizer_shard 0"
)
WORDS_IN_A_FILE = {"type": "RecDataset", "dataset_root": "{data}", "data_dir": "words", "label_file": "words.txt"}
OF_WRITTEN_WORDS = {
    "dataset": WORDS_IN_A_FILE | {"shuffle": False},
    "loader": {"batch_size": 4, "shuffle": False, "num_workers": 1},
}
SCALE_1024 = {"mindspore.nn.wrap.loss_scale:DynamicLossScaleUpdateCell": {"loss_scale_value": 1024}}
OF_ADAMW = (
    "its own AdamW runs, but counts no steps, nor does it under the wheel: it compares versions as texts, where 2.10 is less "
    "than 2.2"
)
AGAIN = "not run again since crops and flips are fixed; "
TRAINER = str(Path(__file__).with_name("_mindnlp_trainer.py").resolve())
OUR_TRAINER = (
    "started by `tools/_mindnlp_trainer.py`, since mindnlp's examples download data; its `Trainer` does not distribute, so on "
    "eight the gradients are averaged by `ReducedAdam` of that file"
)
OF_BERT = OUR_TRAINER + "; biases of keys are not trained: their gradients are rounding"
PROGRAMS = {
    "lenet": Program(
        "models",
        "research/cv/lenet",
        "train.py",
        mnist,
        "--device_target CPU --data_path {data} --ckpt_path out --batch_size 21 --epoch_size 1",
        copies=1,
        why="not distributed: one of the eight devices works",
    ),
    "resnet": Program(
        "models",
        "official/cv/ResNet",
        "train.py",
        cifar,
        "--config_path {config} --device_target Ascend --data_path {data}/cifar-10-batches-bin --output_dir out",
        "--run_distribute True --device_num 8",
        "config/resnet18_cifar10_config.yaml",
        {"batch_size": 4, "epoch_size": 1, "warmup_epochs": 0, "train_image_size": 32, "lr_init": 0.01},
        {"lr_max": 0.0125},
        FIRST_12,
        computes="float16",
        why="float16 by the program's choice (`amp_level` O3); one step in float32: 1.2e-4 to the wheel, for one ulp 2.9e-4",
    ),
    "vgg": Program(
        "models",
        "official/cv/VGG/vgg16",
        "train.py",
        cifar,
        "--config_path {config} --data_dir {data} --device_target CPU",
        "--device_target Ascend --is_distributed 1",
        "cifar10_config.yaml",
        {"batch_size": 4, "max_epoch": 1, "image_size": [32, 32], "warmup_epochs": 0, "lr_max": 0.01},
        settings=FIRST_12,
        computes="float16",
        why="float16 by the program's choice (`amp_level` O2); one step in float32: 0.26 to the wheel and for one ulp, 1.5e-5 "
        "between these two: the input of one ReLU is 3e-6 from 0, where float32 is off by 1e-5",
    ),
    "unet": Program(
        "models",
        "official/cv/Unet",
        "train.py",
        cells,
        "--config_path {config} --data_path {data} --output_path out --device_target CPU",
        "--run_distribute True",
        "unet_nested_cell_config.yaml",
        {"image_size": [32, 32], "batch_size": 2, "epochs": 1, "distribute_epochs": 1, "repeat": 1}
        | {"train_augment": False, "run_eval": False},
        computes="float16",
        why="float16 by the program's choice (`amp_level` O3); in float32 1.6e-06 to the wheel",
    ),
    "ssd": Program(
        "models",
        "official/cv/SSD",
        "train.py",
        coco,
        "--config_path {config} --data_path {data} --coco_root . --output_path out --device_target CPU",
        "--device_target Ascend --run_distribute True --device_num 8",
        "config/ssd300_config.yaml",
        {"batch_size": 2, "epoch_size": 1, "warmup_epochs": 0},
        why="the wheel's `Less` is made to take a number first; one step of equal batches: 1.5 to the wheel, for one ulp 2.0; "
        "the wheel's first BatchNorms (45000 values a channel) are up to 1e-5 from float64, ours 7e-8, and the last have two "
        "values; not checked: whether eight ranks read what the one device reads",
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
        why="one step: gradients are 7.7e-3 (median) from those in float64, the wheel's 3.4e-2; for one ulp 6.5e-5 to 7e-3, "
        "depending on which LeakyReLU changes its side; on eight, the ranks share the program's cache of sizes, and all but the "
        "first draw other colours",
    ),
    "fasttext": Program(
        "models",
        "research/nlp/fasttext",
        "train.py",
        sentences,
        "--config_path {config} --dataset_path {data} --device_target CPU",
        "--run_distribute True --lr 0.2",
        "ag_config.yaml",
        {"buckets": [8, 16, 32], "vocab_size": 50, "batch_size": 4, "epoch": 1, "warmup_steps": 2, "lr": 2.0},
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
        "--config_path {config} --data_path {data}/made --device_target Ascend",
        "--distribute true --device_num 8",
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
        why="float16 by the program's choice; the wheel has no NPUGetFloatStatusV2 on CPUs",
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
        why="the wheel has no `parallel._transformer`",
    ),
    "pangu_alpha": Program(
        "models",
        "official/nlp/Pangu_alpha",
        "train.py",
        words_alone,
        PANGU,
        "--distribute true --op_level_model_parallel_num 4 --per_batch_size 2",
        settings=SCALE_1024,
        package="mindformers",
        copies=1,
        why="biases of keys have no gradient but rounding, which Adam scales up; all else 1.3e-2: float16",
    ),
    "pangu_alpha_stages": Program(
        "models",
        "official/nlp/Pangu_alpha",
        "train.py",
        words_alone,
        PANGU,
        "--distribute true --op_level_model_parallel_num 2 --per_batch_size 1 --stage_num 2 --micro_size 2 --word_emb_dp 0 "
        "--micro_batch_interleaved 1",
        settings=SCALE_1024,
        package="mindformers",
        copies=1,
        why="with stages the program norms after its query layer, else before; one device with the former: equal losses",
    ),
    "deepfm": Program(
        "models",
        "official/recommend/DeepFM",
        "train.py",
        clicks,
        "--config_path {config} --dataset_path {data} --ckpt_path out --device_target CPU --do_eval False",
        "--device_target Ascend --batch_size 1000",
        "default_config.yaml",
        {"data_vocab_size": 200, "batch_size": 8000, "data_emb_dim": 8, "deep_layer_args": [[32, 16, 16, 16], "relu"]}
        | {"keep_prob": 1.0, "train_epochs": 1, "convert_dtype": False},
        copies=1,
    ),
    "wide_and_deep": Program(
        "models",
        "official/recommend/Wide_and_Deep",
        "train_and_eval_auto_parallel.py",
        clicks,
        "--config_path {config} --data_path {data} --ckpt_path out --stra_ckpt out --device_target CPU --full_batch True",
        "--batch_size 1000 --device_target Ascend",
        "default_config.yaml",
        {"vocab_size": 200, "batch_size": 8000, "emb_dim": 8, "deep_layer_dim": [32, 16, 16, 16], "epochs": 1},
        copies=1,
        why="`gradients_mean` divides by the devices, as where MindSpore compiles it, with the mark `cross_batch` and without",
    ),
    "dlrm": Program(
        "models",
        "research/recommend/dlrm",
        "train.py",
        adverts,
        "--config_path {config} --dataset_path {data} --ckpt_path out/ --do_eval False",
        "",
        "npu_config.yaml",
        {"categorical_feature_sizes": [20] * 26, "data_vocab_size": 520, "batch_size": 8, "data_emb_dim": 8}
        | {"bottom_mlp_args": [16, 8], "top_mlp_args": [16, 1], "convert_dtype": False},
    ),
    "wide_and_deep_shards": Program(
        "models",
        "official/recommend/Wide_and_Deep",
        "train_and_eval_distribute.py",
        clicks,
        "--config_path {config} --data_path {data} --ckpt_path out --device_target CPU",
        "--batch_size 1000 --device_target Ascend",
        "default_config.yaml",
        {"vocab_size": 200, "batch_size": 8000, "emb_dim": 8, "deep_layer_dim": [32, 16, 16, 16], "epochs": 1},
        copies=1,
    ),
    "mindcv": Program(
        "mindcv",
        "",
        "train.py",
        classes,
        "--data_dir {data} --model resnet18 --batch_size 4 --epoch_size 1 --image_resize 32 --num_classes 3 --opt momentum "
        "--scheduler constant --warmup_epochs 0 --dataset_sink_mode False --ckpt_save_dir out --lr 0.01",
        "--distribute",
        why="one step: 1.1e-4 to the wheel, for one ulp 1.3e-4, eight to one 1.7e-7; statistics of four samples (BatchNorm) "
        "magnify rounding",
    ),
    "mindyolo": Program(
        "mindyolo",
        "",
        "train.py",
        boxes,
        "--config {config} --device_target CPU --save_dir out --epochs 1 --per_batch_size 2 --img_size 64 --ms_amp_level O0 "
        "--log_interval 2",
        "--is_parallel True",
        "configs/yolov5/yolov5n.yaml",
        {
            "__BASE__": ["{home}/configs/coco.yaml", "{home}/configs/yolov5/hyp.scratch-low.yaml"],
            "data": {
                "train_set": "{data}/train.txt",
                "num_parallel_workers": 1,
                "train_transforms": [
                    {"func_name": "letterbox", "scaleup": False},
                    {"func_name": "label_norm", "xyxy2xywh_": True},
                    {"func_name": "label_pad", "padding_size": 8, "padding_value": -1},
                    {"func_name": "image_norm", "scale": 255.0},
                    {"func_name": "image_transpose", "bgr2rgb": True, "hwc2chw": True},
                ],
            },
            "optimizer": {"nesterov": False},
        },
        # The program multiplies its loss by the number of ranks.
        {"optimizer": {"lr_init": 0.01 / 8, "warmup_bias_lr": 0.1 / 8, "gp_weight_decay": 0.0005 * 8}},
        why="without Nesterov's momentum, which the wheel's kernel for CPUs leaves out. In one of 128 channels a max pooling "
        "takes the other of two near values, which shifts of norms before it follow. The wheel adds losses of earlier steps to "
        "those that it prints (`x = Tensor(0.0); x += 1` under `jit` gives 1, 2, 3); biases of objectness differ by 8.1e-4, why "
        "is not known. Its loss is multiplied by the number of ranks; on eight, rates are divided by it",
    ),
    "mindface": Program(
        "mindface",
        "mindface/recognition",
        "train.py",
        faces,
        "--config {config} --device_target Ascend --device_num 1",
        "--device_num 8",
        "configs/train_config_casia.yaml",
        {"data_url": "{data}/faces", "num_classes": 16, "epochs": 1, "train_url": "out"}
        | {"backbone": "mobilefacenet", "batch_size": 4},
        why=AGAIN
        + "commit 87a6783, the last that needs no `moxing`; losses equal to 2e-4, weights to 2e-3 at the median: what "
        "differs more are biases of batch norms near 0",
    ),
    "mindocr_crnn": Program(
        "mindocr",
        "",
        "tools/train.py",
        written_words,
        "--config {config} -o system.distribute=False",
        "system.distribute=True",
        "configs/rec/crnn/crnn_resnet34.yaml",
        {
            "system": {"amp_level": "O0", "val_while_train": False},
            "loss": {"batch_size": 4},
            "optimizer": {"opt": "adam"},
            "scheduler": {"num_epochs": 1, "warmup_epochs": 0, "decay_epochs": 1},
            "train": OF_WRITTEN_WORDS,
        },
        why=AGAIN + OF_ADAMW + ", so `adam` is measured; equal losses, shifts of norms follow rounding",
    ),
    "mindocr_dbnet": Program(
        "mindocr",
        "",
        "tools/train.py",
        signs,
        "--config {config} -o system.distribute=False",
        "system.distribute=True",
        "configs/det/dbnet/db_r18_icdar15.yaml",
        {
            "system": {"val_while_train": False},
            "model": {"backbone": {"pretrained": False}, "neck": {"out_channels": 64}},
            "scheduler": {"num_epochs": 1, "warmup_epochs": 0},
            "train": {
                "dataset_sink_mode": False,
                "dataset": {
                    "dataset_root": "{data}",
                    "data_dir": "signs",
                    "label_file": "signs.txt",
                    "shuffle": False,
                    "transform_pipeline": [
                        {"DecodeImage": {"img_mode": "RGB", "to_float32": False}},
                        {"DetLabelEncode": None},
                        {"ValidatePolygons": None},
                        {"ShrinkBinaryMap": {"min_text_size": 8, "shrink_ratio": 0.4}},
                        {"BorderMap": {"shrink_ratio": 0.4, "thresh_min": 0.3, "thresh_max": 0.7}},
                        {
                            "NormalizeImage": {
                                "bgr_to_rgb": False,
                                "is_hwc": True,
                                "mean": "imagenet",
                                "std": "imagenet",
                            }
                        },
                        {"ToCHWImage": None},
                    ],
                },
                "loader": {"batch_size": 2, "shuffle": False, "num_workers": 1},
            },
        },
    ),
    "mindformers_llama": Program(
        "mindformers",
        "",
        "run_mindformer.py",
        words_alone,
        MINDFORMER,
        "--use_parallel True",
        "configs/llama/run_llama_7b.yaml",
        IN_THREE_STEPS
        | {"model": {"model_config": SMALL | {"num_heads": 4, "multiple_of": 16, "checkpoint_name_or_path": ""}}},
        {"runner_config": {"batch_size": 2}, "parallel_config": {"data_parallel": 2, "model_parallel": 4}},
        copies=1,
    ),
    "mindformers_llama_stages": Program(
        "mindformers",
        "",
        "run_mindformer.py",
        words_alone,
        MINDFORMER,
        "--use_parallel True",
        "configs/llama/run_llama_7b.yaml",
        IN_THREE_STEPS
        | {"model": {"model_config": SMALL | {"num_heads": 4, "multiple_of": 16, "checkpoint_name_or_path": ""}}},
        {"runner_config": {"batch_size": 1}}
        | {"parallel_config": {"data_parallel": 2, "model_parallel": 2, "pipeline_stage": 2, "micro_batch_num": 2}},
        copies=1,
    ),
    "mindformers_gpt2": Program(
        "mindformers",
        "",
        "run_mindformer.py",
        masked_tokens,
        MINDFORMER,
        "--use_parallel True",
        "configs/gpt2/run_gpt2.yaml",
        IN_THREE_STEPS
        | {"model": {"model_config": SMALL | NO_DROPOUT | {"num_heads": 4, "checkpoint_name_or_path": ""}}},
        {
            "runner_config": {"batch_size": 1},
            "parallel": {"parallel_mode": 2, "full_batch": True, "search_mode": "sharding_propagation"},
            "parallel_config": {"data_parallel": 4, "model_parallel": 2},
        },
        copies=1,
        why="auto_parallel. Biases of keys have no gradient but rounding, which Adam scales up; all else 1.3e-2: float16",
    ),
    "mindnlp_bert_pretrain": Program(
        "mindnlp",
        "llm/pretrain/bert",
        "run_pretrain.py",
        guessed_words,
        "--use_ascend True --jit True --do_train True --lr 1e-2 --warmup_steps 1 --train_batch_size 8 --epochs 1 --save_steps 2 "
        "--do_load_ckpt False --config config/bert_config_small.json",
        settings={
            "src.config:BertConfig": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}
            | {"num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 16}
        },
        in_copy=True,
        mended={
            "save_bert_small_checkpoint": "save_bert_min_checkpoint",
            "BertConfig(args.config)": "BertConfig(output_attentions=True)",
        }
        | {"config.dataset_mindreocrd_dir": "''", "config.warmup_steps": "0"},
        why="mistakes of the program are mended: a function and three settings that it lacks, and the path of a configuration "
        "in place of its values; the wheel has no `ms_function`",
    ),
    "mindnlp_bert": Program(
        "mindnlp",
        "mindnlp/engine/trainer",
        TRAINER,
        nothing,
        "bert",
        "--distributed",
        package="mindnlp",
        copies=1,
        why=OF_BERT,
    ),
    "mindnlp_bert_jit": Program(
        "mindnlp",
        "mindnlp/engine/trainer",
        TRAINER,
        nothing,
        "bert_jit",
        "--distributed",
        package="mindnlp",
        copies=1,
        why=OF_BERT,
    ),
    "mindnlp_llama": Program(
        "mindnlp",
        "mindnlp/engine/trainer",
        TRAINER,
        nothing,
        "llama",
        "--distributed",
        package="mindnlp",
        copies=1,
        why=OUR_TRAINER,
    ),
    "mindnlp_llama_lora": Program(
        "mindnlp",
        "mindnlp/engine/trainer",
        TRAINER,
        nothing,
        "llama_lora",
        "--distributed",
        package="mindnlp",
        copies=1,
        why=OUR_TRAINER + "; under the wheel mindnlp's `PeftModel` calls itself for ever",
    ),
    "tgcn": Program(
        "models",
        "research/cv/tgcn",
        "train.py",
        traffic,
        "",
        "--distributed True",
        constants={
            f"src.config:ConfigTGCN.{name}": value
            for name, value in {
                "data_path": "{data}",
                "dataset": "made",
                "hidden_dim": 8,
                "epochs": 1,
                "batch_size": 8,
            }.items()
        }
        | {"src.config:ConfigTGCN.weight_decay": 0.0, "src.config:ConfigTGCN.save_best": False},
        constants_on_eight={"src.config:ConfigTGCN.batch_size": 1},
        copies=1,
        why="its loss is a sum",
    ),
    "textcnn": Program(
        "models",
        "research/nlp/textcnn",
        "train.py",
        opinions,
        "--config_path {config} --data_path {data} --output_path out --device_target Ascend",
        "",
        "mr_config.yaml",
        {"batch_size": 2, "epoch_size": 1, "word_len": 16, "vec_length": 8, "base_lr": 1e-2},
        copies=1,
        why="not distributed: one of the eight devices works; it shuffles by Python's `random`, whose seed is set: with another "
        "one weights are 1.1 apart",
    ),
    "crnn": Program(
        "models",
        "official/cv/CRNN",
        "train.py",
        captchas,
        "--config_path {config} --train_dataset_path {data} --output_dir out --device_target Ascend",
        "--run_distribute True",
        "default_config.yaml",
        {"batch_size": 4, "epoch_size": 1, "model_version": "V2", "hidden_size": 32},
        computes="float16",
        why="float16 by the program's choice; one step in float32: 4.2e-2 to the wheel, for one ulp 2.3e-2, each in one channel "
        "of 512 before a ReLU",
    ),
    "mmoe": Program(
        "models",
        "research/recommend/mmoe",
        "train.py",
        incomes,
        "--config_path {config} --data_path {data}/ --ckpt_path out/ --device_target Ascend",
        "--run_distribute True",
        "default_config.yaml",
        {"batch_size": 4, "epoch_size": 1, "learning_rate": 0.01},
        {"learning_rate": 0.008},
        why="float16 by the program's choice, and its step divides by the number of ranks twice, which Adam undoes but for its "
        "`eps`; in float32, to one device that divides as often: 4.3e-7",
    ),
    "srcnn": Program(
        "models",
        "research/cv/srcnn",
        "train.py",
        sharp_pictures,
        "--config_path {config} --data_path {data} --output_path out",
        "--run_distribute True",
        "config.yaml",
        {"batch_size": 4, "epoch_size": 1},
        why="gradients of eight devices are added up (`gradients_mean` is not set), which Adam undoes but for its `eps` of 1e-7",
    ),
    "dcgan": Program(
        "models",
        "research/cv/dcgan",
        "train.py",
        classes,
        "--device_target Ascend --data_url {data}/train --train_url out",
        "--run_distribute True",
        constants={"src.config:dcgan_imagenet_cfg.batch_size": 4, "src.config:dcgan_imagenet_cfg.epoch_size": 1}
        | {"src.config:dcgan_imagenet_cfg.feature_size": 8},
        copies=1,
        why="not distributed: it sets `device_num=1` on Ascend, so one of the eight devices works",
    ),
    "gpt2_finetune": Program(
        "models",
        "research/nlp/gpt2",
        "run_language_model.py",
        next_words,
        "--device_id 0 --do_train true --do_eval false --train_data_file_path {data}/made.mindrecord "
        "--load_pretrain_ckpt_path {data}/gpt2.ckpt",
        settings={
            "src.GPT2_model:GPT2Config": {"batch_size": 4, "seq_length": 16, "vocab_size": 64, "d_model": 32}
            | {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 16}
        }
        | SCALE_1024,
        copies=1,
        why="not distributed: one of the eight devices works",
    ),
    "cflownets": Program(
        "models",
        "research/gflownets/cflownets",
        "cfn_grid_final.py",
        nothing,
        "",
        constants={
            f"config:CONFIG.{name}": value
            for name, value in {"batch_size": 4, "hidden_dim": 16, "max_frames": 6, "start_timesteps": 4}.items()
        }
        | {"config:CONFIG.sample_flow_num": 9, "config:CONFIG.critic_lr": 1e-3, "config:CONFIG.device_platform": "CPU"},
        copies=1,
        why="not distributed: one of the eight devices works; the wheel fails with a SystemError of `pyboost_ones`; under NumPy "
        "2.2, its `math.cos` of an array fails under later ones",
    ),
    "squeezenet": Program(
        "models",
        "research/cv/squeezenet",
        "train.py",
        cifar,
        "--config_path {config} --data_path {data}/cifar-10-batches-bin --output_path out --device_target CPU",
        "--run_distribute True",
        "squeezenet_cifar10_config.yaml",
        {"batch_size": 4, "epoch_size": 1, "warmup_epochs": 0, "lr_init": 0.01},
        settings={**FIRST_12, "mindspore.nn:Momentum": {"use_nesterov": False}},
        why="without Nesterov's momentum, which the wheel's kernel for CPUs leaves out",
    ),
    "warpctc": Program(
        "models",
        "research/cv/warpctc",
        "train.py",
        numbers,
        "--config_path {config} --train_data_dir {data} --device_target Ascend",
        "--run_distribute True",
        "default_config.yaml",
        {"batch_size": 8, "epoch_size": 1, "hidden_size": 16, "save_checkpoint": False},
        {"learning_rate": 0.01 / 8},
        why="the program multiplies its rate by the number of ranks; on eight, it is divided by it",
    ),
    "mindcv_functions": Program(
        "mindcv",
        "",
        "train_with_func.py",
        classes,
        "--data_dir {data} --model resnet18 --batch_size 4 --epoch_size 1 --image_resize 32 --num_classes 3 --opt momentum "
        "--scheduler constant --warmup_epochs 0 --ckpt_save_dir out --lr 0.01",
        "--distribute",
        why="as `mindcv`, after one step too",
    ),
    "mindocr_rare": Program(
        "mindocr",
        "",
        "tools/train.py",
        written_words,
        "--config {config} -o system.distribute=False",
        "system.distribute=True",
        "configs/rec/rare/rare_resnet34.yaml",
        {
            "system": {"amp_level": "O0", "val_while_train": False},
            "model": {"neck": {"hidden_size": 32}, "head": {"hidden_size": 32}},
            "optimizer": {"opt": "adam"},
            "scheduler": {"num_epochs": 1, "warmup_epochs": 0, "decay_epochs": 1},
            "train": OF_WRITTEN_WORDS,
        },
        why=AGAIN
        + OF_ADAMW
        + ", so `adam` is measured; losses equal to 1.6e-4; shifts of norms (BatchNorm of four samples) follow rounding, median "
        "of all weights 1.7e-2",
    ),
    "mindformers_bloom": Program(
        "mindformers",
        "",
        "run_mindformer.py",
        words_alone,
        MINDFORMER,
        "--use_parallel True",
        "configs/bloom/run_bloom_560m.yaml",
        IN_THREE_STEPS
        | {"model": {"model_config": SMALL | NO_DROPOUT | {"num_heads": 4, "checkpoint_name_or_path": ""}}},
        {"runner_config": {"batch_size": 2}, "parallel_config": {"data_parallel": 2, "model_parallel": 4}},
        copies=1,
        why="biases of keys have no gradient but rounding, which Adam scales up; all else 8.5e-3: float16; in float32 1.9e-6",
    ),
}
