"""Entries of public repositories that were drawn by chance, which no test, row or note had used.

Method: entries are files `train*.py`, `eval*.py`, `run_*.py` and the like that start from the command line, a folder counts once;
`random.Random(59)` shuffles the folders and chooses one of the entries in each. Data and sizes are made as in
`tools/_public_scripts.py`. Nothing was left out because it does not run. The last two are of a second draw (seed 61, of
the subjects `recommend`, `gnn`, `hpc`, `nlp` and `audio`), the first to train on rows and on edges.
"""

from __future__ import annotations

import json
import pickle
import wave
from pathlib import Path

import numpy as np
import PIL.Image
from _public_scripts import FIRST_12, Program, cifar, classes, coco, drawn, nothing, picture, records

from sporax.mindspore.mindrecord import FileWriter


def features(folder: Path, copies: int) -> None:
    """Rows of features with a class each, for training and evaluation."""
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        rows = np.repeat(drawn(12, 25, 50, high=9, kind=np.float32) / 9, copies, 0)
        labels = np.repeat(drawn(12, high=1024), copies)
        (folder / f"feature_{part}.pkl").write_bytes(pickle.dumps((list(rows), list(labels), list(range(len(rows))))))


def dark_patches(folder: Path, copies: int) -> None:
    """Patches of 17 by 17 pixels, dark and as they were."""
    columns = {
        name: drawn(12, 289 + add, kind=np.float32)[:, :289] / 256
        for add, name in enumerate(("noise_darkened", "origin"))
    }
    records(folder / "train" / "train_1250patches_per_image.mindrecords", copies, **columns)


def trust(folder: Path, copies: int) -> None:
    """Who trusts whom, and who does not."""
    folder.mkdir(parents=True)
    pairs = [(a, b) for a in range(80) for b in range(80) if (a * 7 + b * 3) % 13 == 0]
    lines = [f"{a},{b},{1 if (a + b) % 3 else -1}\n" for a, b in pairs]
    (folder / "trust.csv").write_text("from,to,sign\n" + "".join(lines))


def scenes(folder: Path, copies: int) -> None:
    """Pictures with a word each, whose corners are in a file of text; the program reads them in any order, so all are one."""
    (folder / "words").mkdir(parents=True)
    for number in range(12 * copies):
        picture(folder / "pictures" / f"{number:03}.jpg", 0, 128, 128)
        (folder / "words" / f"gt_{number:03}.txt").write_text("16,16,96,16,96,64,16,64,word\n")


def outlined(folder: Path, copies: int) -> None:
    """Pictures as they are on disk with seven maps each, and the weights of a VGG."""
    picture(folder / "picture.jpg", 1, 64, 64)
    writer = FileWriter(str(folder / "made.mindrecord"), 1)
    writer.add_schema({"image": {"type": "bytes"}, "label": {"type": "float32", "shape": [7, 16, 16]}}, "made")
    maps = drawn(7, 16, 16, high=2, kind=np.float32)
    writer.write_raw_data([{"image": (folder / "picture.jpg").read_bytes(), "label": maps}] * (6 * copies))
    writer.commit()
    sizes = [
        (3, 64),
        (64, 64),
        (64, 128),
        (128, 128),
        (128, 256),
        (256, 256),
        (256, 256),
        (256, 512),
        *[(512, 512)] * 5,
    ]
    names = [
        f"conv{block}_{layer}" for block, layers in enumerate((2, 2, 3, 3, 3), 1) for layer in range(1, layers + 1)
    ]
    weights = {
        name: (drawn(3, 3, *size, low=-50, high=50, kind=np.float32) / 2000, np.zeros(size[1], np.float32))
        for name, size in zip(names, sizes, strict=True)
    }
    np.save(folder / "vgg16.npy", weights, allow_pickle=True)


def labelled(folder: Path, copies: int) -> None:
    """Twelve pictures of three things, in a list."""
    lines = ["image_id class_id\n"]
    for number in range(12 * copies):
        picture(folder / f"{number:03}.jpg", number // copies, 64, 64)
        lines.append(f"{number:03}.jpg {number // copies // 4 + 1}\n")
    (folder / "test.txt").write_text("".join(lines))


def seen_things(folder: Path, copies: int) -> None:
    """Pictures with boxes for an evaluation."""
    coco(folder, copies, "val2017", "val2017")


def all_of_cifar(folder: Path, copies: int) -> None:
    """Images of ten classes for a test, whose file is as long as the real one."""
    cifar(folder, copies)
    place = folder / "cifar-10-batches-bin"
    (place / "data_batch_1.bin").rename(place / "test_batch.bin")


def small_and_large(folder: Path, copies: int) -> None:
    """Pictures in two sizes."""
    for number in range(4):
        picture(folder / "Set5" / "HR" / f"{number}.png", number, 48, 48)
        picture(folder / "Set5" / "LR_bicubic" / "X2" / f"{number}x2.png", number, 24, 24)


def cars(folder: Path, copies: int) -> None:
    """Pictures of cars with 36 points each."""
    for part in ("train", "query", "test"):
        lines = []
        for number in range(24 * copies if part == "train" else 6):
            same = number // copies if part == "train" else number
            name = f"{number:04}_c001.jpg"
            picture(folder / "veri" / f"image_{part}" / name, same, 64, 64)
            points = ",".join(f"{(same * 5 + k) % 60},{(same * 3 + k) % 60},0.9" for k in range(36))
            lines.append(f"{name},{same},{same % 2},{same % 2},{points}\n")
        (folder / "veri" / f"label_{part}.csv").write_text("".join(lines))


def streets(folder: Path, copies: int) -> None:
    """Pictures of streets with a class for each pixel."""
    lines = []
    for number in range(6 * copies):
        picture(folder / f"{number:03}.png", number // copies, 64, 64)
        PIL.Image.fromarray(drawn(64, 64, high=34, kind=np.uint8)).save(folder / f"{number:03}_gt.png")
        lines.append(f"{number:03}.png {number:03}_gt.png\n")
    (folder / "train.lst").write_text("".join(lines))


def things(folder: Path, copies: int) -> None:
    """Pictures with boxes, for training."""
    coco(folder, copies, "train2014", "train2014")


def people(folder: Path, copies: int) -> None:
    """Pictures of a person each, with the places of 17 joints."""
    for split in ("train2017", "val2017"):
        images, found, boxes = [], [], []
        for number in range(6 * copies):
            picture(folder / split / f"{number:012}.jpg", number // copies, 128, 96)
            images.append({"id": number, "file_name": f"{number:012}.jpg", "height": 128, "width": 96})
            joints = [value for joint in range(17) for value in (20 + 3 * joint, 16 + 5 * joint, 2)]
            box = {"image_id": number, "category_id": 1, "bbox": [8, 8, 80, 110]}
            found.append(
                {"id": number + 1, "iscrowd": 0, "area": 8800, "keypoints": joints, "num_keypoints": 17, **box}
            )
            boxes.append({"score": 0.9, **box})
        (folder / "annotations").mkdir(exist_ok=True)
        categories = [{"id": 1, "name": "person", "keypoints": [str(joint) for joint in range(17)], "skeleton": []}]
        text = json.dumps({"images": images, "annotations": found, "categories": categories})
        (folder / "annotations" / f"person_keypoints_{split}.json").write_text(text)
        (folder / "boxes.json").write_text(json.dumps(boxes))


def speech(folder: Path, copies: int) -> None:
    """Four sounds of a second with the words in them."""
    folder.mkdir(parents=True)
    lines = []
    for number in range(4):
        sound = np.sin(np.arange(16000) * (0.05 + 0.02 * number)) * 8000
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(sound.astype(np.int16).tobytes())
        (folder / f"{number}.txt").write_text("TWO WORDS\n")
        lines.append(f"{folder}/{number}.wav,{folder}/{number}.txt\n")
    (folder / "test.csv").write_text("".join(lines))


def views(folder: Path, copies: int) -> None:
    """Views of adverts with 39 features each, a row each."""
    columns = {"feat_ids": drawn(12, 39, high=200), "feat_vals": drawn(12, 39, high=9, kind=np.float32) / 9}
    records(folder / "train_input_part.mindrecord00", copies, **columns, label=drawn(12, 1, high=2, kind=np.float32))


def edges(folder: Path, copies: int) -> None:
    """A graph of 24 nodes, each with three edges."""
    folder.mkdir(parents=True)
    lines = [f"{node} {(node + step) % 24} 1.0\n" for node in range(24) for step in (1, 5, 7)]
    (folder / "edges.txt").write_text("".join(lines))


DRAWN = {
    "augvit_eval": Program(
        "models",
        "research/cv/augvit",
        "eval.py",
        cifar,
        "--checkpoint_path made.ckpt --dataset_path {data}/cifar-10-batches-bin --platform GPU",
        settings=FIRST_12,
        constants={"src.config:config_gpu.batch_size": 4},
        copies=1,
        results=["result"],
        why="fails in both: its `Block` calls `super(Block).__init__()`, which initializes nothing",
    ),
    "attention_cluster": Program(
        "models",
        "research/cv/AttentionCluster",
        "train.py",
        features,
        "--device GPU --data_dir {data} --result_dir out --summary_dir summary --batch_size 4 --epochs 1",
        "--distributed True",
    ),
    "pfnn_eval": Program(
        "models",
        "research/hpc/pfnn",
        "eval.py",
        nothing,
        "--device cpu --g_path g.ckpt --f_path f.ckpt",
        copies=1,
        results=["Error"],
    ),
    "psenet": Program(
        "models",
        "research/cv/psenet",
        "train.py",
        scenes,
        "--config_path {config} --device_target GPU",
        "--run_distribute True",
        "default_config.yaml",
        {"TRAINDATA_IMG": "{data}/pictures", "TRAINDAT_GT": "{data}/words", "TRAIN_LONG_SIZE": 640, "EPOCH_NUM": 1}
        | {"BACKBONE_LAYER_NUMS": [1, 1, 1, 1], "WARMUP_STEP": 1},
        why="its loss takes pictures of 640 x 640; not run to the end",
    ),
    "advanced_east": Program(
        "models",
        "research/cv/advanced_east",
        "train_single_size.py",
        outlined,
        "--data_path {data}/made.mindrecord --device_target CPU",
        "--is_distributed 1",
        constants={"src.config:config.vgg_npy": "{data}/vgg16.npy", "src.config:config.epoch_num": 1},
        why="its own step reduces no gradients; one process that acts for all ranks raises an error for it",
    ),
    "llnet": Program(
        "models",
        "research/cv/llnet",
        "train.py",
        dark_patches,
        "--config_path {config} --dataset_path {data} --device_target GPU",
        "--is_distributed True",
        "default_config.yaml",
        {"train_batch_size": 4, "pretrain_epoch_size": 1, "finetrain_epoch_size": 1},
        why="its own step reduces no gradients; one process that acts for all ranks raises an error for it",
    ),
    "deepbsde": Program(
        "models",
        "research/hpc/deepbsde",
        "train.py",
        nothing,
        "--config_path {config}",
        "",
        "config/HJBLQ_config.yaml",
        {
            "dim": 10,
            "num_time_interval": 5,
            "num_hiddens": [16, 16],
            "num_iterations": 3,
            "batch_size": 4,
            "valid_size": 8,
        }
        | {"logging_frequency": 3, "lr_boundaries": [2]},
        copies=1,
        why="losses equal to 3e-6, weights to 3.1e-6 at the median",
    ),
    "sgcn_eval": Program(
        "models",
        "research/gnn/sgcn",
        "eval.py",
        trust,
        "--device_target GPU --checkpoint_auc a.ckpt --checkpoint_f1 f.ckpt --edge_path {data}/trust.csv",
        copies=1,
        results=["AUC", "F1"],
        why="scores are as near as 5e-7, so that rounding moves the AUC: 1e-7 added to the inputs moves the wheel's by 2e-3",
    ),
    "metric_learn_eval": Program(
        "models",
        "research/cv/metric_learn",
        "eval.py",
        labelled,
        "--dataset_path {data} --ckpt_path made.ckpt --device_target GPU",
        settings={"src.dataset:create_dataset0": {"batch_size": 4}},
        copies=1,
        results=["eval_recall"],
    ),
    "maskrcnn_eval": Program(
        "models",
        "official/cv/MaskRCNN/maskrcnn_mobilenetv1",
        "eval.py",
        seen_things,
        "--config_path {config} --coco_root {data} --ann_file {data}/annotations/instances_val2017.json --device_target CPU",
        "",
        "default_config.yaml",
        {
            "need_modelarts_dataset_unzip": False,
            "img_width": 128,
            "img_height": 128,
            "test_batch_size": 1,
            "mindrecord_dir": "out",
        }
        | {
            "feature_shapes": [str(size) for size in (32, 16, 8, 4, 2) for _ in "xy"],
            "rpn_nms_pre": 100,
            "rpn_max_num": 100,
        }
        | {"rpn_nms_post": 100, "rpn_proposal_nms_pre": 100, "rpn_proposal_nms_post": 100, "rpn_proposal_max_num": 100},
        copies=1,
        results=["Average"],
        why="not run to the end",
    ),
    "non_local_eval": Program(
        "models",
        "research/cv/Non_local",
        "eval.py",
        all_of_cifar,
        "--dataset cifar10 --test_data_path {data}/cifar-10-batches-bin --ckpt made.ckpt --batch_size 4 --n_threads 1 "
        "--root_path out",
        settings=FIRST_12,
        copies=1,
        results=["result"],
    ),
    "rdn_eval": Program(
        "models",
        "research/cv/RDN",
        "eval.py",
        small_and_large,
        "--dir_data {data} --data_test Set5 --ext img --scale 2 --device_target GPU --ckpt_path made.ckpt --RDNconfig A --G0 8",
        copies=1,
        results=["psnr", "ssim"],
    ),
    "multi_task_net": Program(
        "models",
        "research/cv/PAMTRI/MultiTaskNet",
        "train.py",
        cars,
        "--distribute False --root {data} --dataset veri --height 64 --width 64 --max-epoch 1 --train-batch 8 "
        "--device_target CPU",
        "--distribute True",
        settings={"src.model.DenseNet:DenseNet121": {"is_pretrained": False}},
        why="not run to the end; it draws its batches by Python's chance",
    ),
    "hrnet_seg": Program(
        "models",
        "research/cv/HRNetW48_seg",
        "train.py",
        streets,
        "--data_url {data} --train_url out --end_epoch 1",
        "--run_distribute True",
        settings={
            "src.dataset.cityscapes:Cityscapes": {"crop_size": [64, 64], "base_size": 64},
            "src.loss:CrossEntropyWithWeights": {"image_size": [64, 64]},
        },
        constants={
            f"src.config:hrnetw48_config.extra.{stage}.{name}": value
            for stage, branches in {"STAGE2": 2, "STAGE3": 3, "STAGE4": 4}.items()
            for name, value in {
                "NUM_MODULES": 1,
                "NUM_BLOCKS": [1] * branches,
                "NUM_CHANNELS": [8, 16, 32, 64][:branches],
            }.items()
        }
        | {"src.config:hrnetw48_config.extra.STAGE1.NUM_BLOCKS": [1], "src.config:task_config.batchsize": 2},
    ),
    "lresnet": Program(
        "models",
        "research/cv/lresnet100e_ir",
        "train.py",
        classes,
        "--config_path {config} --data_url {data}/train --device_target GPU",
        "--run_distribute True --device_num 8",
        "lresnet100e_ir_config_gpu.yaml",
        {"epoch_size": 1, "batch_size": 4, "num_classes": 16, "lr_init": 0.01},
        why="100 layers; not run to the end",
    ),
    "rfcn": Program(
        "models",
        "research/cv/rfcn",
        "train.py",
        things,
        "--config_path {config} --coco_root {data} --mindrecord_dir out --device_target GPU",
        "--run_distribute True",
        "default_config.yaml",
        {
            "img_width": 128,
            "img_height": 128,
            "batch_size": 2,
            "epoch_size": 1,
            "resnet_block": [1, 1, 1, 1],
            "warmup_step": 1,
        }
        | {
            "rpn_proposal_nms_pre": 100,
            "rpn_proposal_nms_post": 100,
            "rpn_proposal_max_num": 100,
            "num_bboxes_stage2": 100,
        }
        | {"num_expected_pos_stage2": 16, "num_expected_neg_stage2": 64, "num_expected_total_stage2": 64}
        | {"num_parallel_workers": 1, "python_multiprocessing": False, "sgd_step": [1]},
        why="a step trains; then its `float` of an array of one number fails under NumPy 2.4",
    ),
    "lite_hrnet": Program(
        "models",
        "research/cv/lite-hrnet",
        "train.py",
        people,
        "--train_url out",
        "--run_distribute True",
        constants={
            "configs.litehrnet_18_coco_256x192:total_epochs": 1,
            "configs.litehrnet_18_coco_256x192:data.samples_per_gpu": 2,
            "configs.litehrnet_18_coco_256x192:data.train.ann_file": "{data}/annotations/person_keypoints_train2017.json",
            "configs.litehrnet_18_coco_256x192:data.train.img_prefix": "{data}/train2017/",
        },
        why="not run to the end",
    ),
    "alpha_pose_eval": Program(
        "models",
        "research/cv/AlphaPose",
        "eval.py",
        people,
        "--config_path {config} --checkpoint_path made.ckpt --TEST_device_target CPU",
        "",
        "default_config.yaml",
        {
            "DATASET_ROOT": "{data}/",
            "TEST_BATCH_SIZE": 2,
            "TEST_COCO_BBOX_FILE": "{data}/boxes.json",
            "TEST_OUTPUT_DIR": "out/",
        },
        copies=1,
        results=["AP"],
    ),
    "deepspeech_eval": Program(
        "models",
        "official/audio/DeepSpeech2",
        "eval.py",
        speech,
        "--pretrain_ckpt made.ckpt --device_target CPU",
        constants={
            "src.config:eval_config.DataConfig.test_manifest": "{data}/test.csv",
            "src.config:eval_config.DataConfig.batch_size": 2,
            "src.config:eval_config.ModelConfig.hidden_size": 32,
            "src.config:eval_config.ModelConfig.hidden_layers": 2,
            "src.config:eval_config.save_output": None,
        },
        in_copy=True,
        copies=1,
        results=["WER"],
        why="needs the package `deepspeech_pytorch`, which was not installed",
    ),
    "sdne": Program(
        "models",
        "research/gnn/sdne",
        "train.py",
        edges,
        "--data_path {data}/edges.txt --device_target CPU --epochs 1 --dataset WIKI",
        constants={"src.config:cfg.WIKI.batch": 8, "src.config:cfg.WIKI.hidden_size": [16, 8]}
        | {"src.config:cfg.WIKI.reconstruction.check": False},
        copies=1,
        why="not distributed: one of the eight devices works",
    ),
    "deep_and_cross": Program(
        "models",
        "research/recommend/deep_and_cross",
        "train.py",
        views,
        "--data_path {data} --device_target GPU --epochs 1 --batch_size 4 --vocab_size 200 --emb_dim 4 "
        "--deep_layer_dim 16 16 --cross_layer_num 2",
        "--is_distributed 1",
        settings={"src.datasets:create_dataset": {"line_per_sample": 1}},
        copies=1,
        why="it sets no parallel mode: one of the eight devices works",
    ),
}
