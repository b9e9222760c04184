"""Small files in the published formats of data sets, written byte for byte the same everywhere.

`tools/golden/make_sources.py` has the MindSpore wheel read them and records what it gives for `source_cases.CASES`;
`test_source_formats.py` demands the same of this package. No import of either package here.
"""

import gzip
import json
import struct
import wave
import zlib
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse


def _bytes(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def _put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content, encoding="utf-8")


def png(path, seed, height=2, width=3, gray=False):
    """An image file (PNG, whatever its name ends in) of random pixels."""
    pixels = _bytes(seed, height, width) if gray else _bytes(seed, height, width, 3)
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    parts = (
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 0 if gray else 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines, 0)),  # stored, as compressors differ
        (b"IEND", b""),
    )
    chunks = (struct.pack(">I", len(data)) + kind + data + _crc(kind + data) for kind, data in parts)
    _put(path, b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def _crc(data):
    return struct.pack(">I", zlib.crc32(data))


def wav(path, seed, count=5, rate=8000, channels=1):
    """A sound file of random 16-bit samples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(_bytes(seed, count * channels * 2).tobytes())


def mat(path, **arrays):
    """A MATLAB file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, arrays)


def _idx(path, array, magic, kind="u1"):
    header = struct.pack(f">{1 + array.ndim}I", magic, *array.shape)
    _put(path, header + array.astype(f">{kind}").tobytes())


def mnist(folder):
    for k, part in enumerate(("train", "t10k")):
        _idx(folder / f"{part}-images-idx3-ubyte", _bytes(k, 3, 28, 28), 2051)
        _idx(folder / f"{part}-labels-idx1-ubyte", _bytes(k + 9, 3) % 10, 2049)


def emnist(folder):
    for k, name in enumerate(("mnist", "letters")):
        for part, count in (("train", 3), ("test", 2)):
            _idx(folder / f"emnist-{name}-{part}-images-idx3-ubyte", _bytes(k + count, count, 28, 28), 2051)
            _idx(folder / f"emnist-{name}-{part}-labels-idx1-ubyte", _bytes(k + count, count) % 26, 2049)


def qmnist(folder):
    for k, (name, count) in enumerate((("qmnist-train", 3), ("qmnist-test", 4), ("xnist", 2))):
        _idx(folder / f"{name}-images-idx3-ubyte", _bytes(k, count, 28, 28), 2051)
        _idx(folder / f"{name}-labels-idx2-int", np.arange(count * 8).reshape(count, 8) + 10 * k, 3074, "u4")


def stl10(folder):
    for k, (name, count) in enumerate((("train", 2), ("test", 3), ("unlabeled", 1))):
        _put(folder / f"{name}_X.bin", _bytes(k, count, 3, 96, 96).tobytes())
        if name != "unlabeled":
            _put(folder / f"{name}_y.bin", (_bytes(k, count) % 10 + 1).tobytes())


def svhn(folder):
    for k, name in enumerate(("train", "test", "extra")):
        mat(folder / f"{name}_32x32.mat", X=_bytes(k, 32, 32, 3, 2), y=np.array([[10], [k + 1]], np.uint8))


def usps(folder):
    values = np.random.default_rng(0).integers(-10, 11, (3, 256)) / 10
    lines = [
        f"{label} " + " ".join(f"{i + 1}:{v:.7f}" for i, v in enumerate(row)) + " "
        for label, row in enumerate(values, 1)
    ]
    _put(folder / "usps", "\n".join(lines) + "\n")
    _put(folder / "usps.t", lines[1] + "\n")


def semeion(folder):
    lines = []
    for k in range(3):
        pixels = " ".join(f"{v:.4f}" for v in _bytes(k, 256) % 2)
        lines.append(pixels + " " + " ".join(str(int(i == k + 4)) for i in range(10)) + " ")
    _put(folder / "semeion.data", "\n".join(lines) + "\n")


def phototour(folder):
    place = folder / "liberty"
    for k in range(2):
        _bmp(place / f"patches000{k}.bmp", _bytes(k, 1024, 1024))
    _put(place / "info.txt", "".join(f"{k // 2} 0\n" for k in range(258)))
    _put(place / "m50_100000_100000_0.txt", "0 5 0 257 5 0 0\n1 2 0 3 9 0 0\n")


def _bmp(path, gray):
    height, width = gray.shape
    pixels = np.repeat(gray[::-1, :, None], 3, axis=2).tobytes()
    header = struct.pack("<2sIHHI", b"BM", 54 + len(pixels), 0, 0, 54)
    _put(
        path, header + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(pixels), 2835, 2835, 0, 0) + pixels
    )


def classes(folder):
    """One folder per class."""
    for k, name in enumerate(("001.ak47", "002.flag")):
        for i in range(2):
            png(folder / name / f"{name[:3]}_000{i + 1}.jpg", 10 * k + i)


def rendered_sst2(folder):
    for k, part in enumerate(("train", "test", "valid")):
        for j, kind in enumerate(("negative", "positive")):
            png(folder / part / kind / "0001.png", 10 * k + j)


def sun397(folder):
    _put(folder / "ClassName.txt", "/a/abbey\n/a/apartment_building/outdoor\n/b/badlands\n")
    for k, name in enumerate(("a/abbey", "a/apartment_building/outdoor", "b/badlands")):
        png(folder / name / f"sun_{k}.jpg", k)


def food101(folder):
    for k, name in enumerate(("apple_pie/100", "apple_pie/101", "baby_back_ribs/102")):
        png(folder / "images" / f"{name}.jpg", k)
    _put(folder / "meta" / "train.txt", "apple_pie/100\nbaby_back_ribs/102\n")
    _put(folder / "meta" / "test.txt", "apple_pie/101\n")
    _put(folder / "meta" / "classes.txt", "apple_pie\nbaby_back_ribs\n")


def lsun(folder):
    for k, name in enumerate(("bedroom_train", "bedroom_val", "classroom_train", "classroom_val")):
        png(folder / name / "1_1.jpg", k)
    png(folder / "test" / "2_1.jpg", 9)


def omniglot(folder):
    for k, part in enumerate(("images_background", "images_evaluation")):
        for j, name in enumerate(("Greek/character01", "Greek/character02", "Latin/character01")):
            png(folder / part / name / f"0{j}.png", 10 * k + j)


def places365(folder):
    for k, name in enumerate(("/a/airfield/001.jpg", "/b/bar/002.jpg")):
        for size in ("256", "large"):
            png(folder / f"data_{size}_standard{name}", k)
            png(folder / f"data_{size}_challenge{name}", k + 5)
    _put(folder / "categories_places365.txt", "/a/airfield 0\n/b/bar 1\n")
    _put(folder / "places365_train_standard.txt", "/a/airfield/001.jpg 0\n/b/bar/002.jpg 1\n")
    _put(folder / "places365_train_challenge.txt", "/b/bar/002.jpg 1\n/a/airfield/001.jpg 0\n")
    _put(folder / "places365_val.txt", "Places365_val_1.jpg 1\n")
    for size in ("256", "large"):
        png(folder / f"val_{size}" / "Places365_val_1.jpg", 20)


def div2k(folder):
    for k in (1, 2):
        png(folder / "DIV2K_train_HR" / f"000{k}.png", k)
        png(folder / "DIV2K_train_LR_bicubic" / "X2" / f"000{k}x2.png", k + 5)
        png(folder / "DIV2K_train_LR_x8" / f"000{k}x8.png", k + 9)
        png(folder / "DIV2K_train_LR_wild" / f"000{k}x4w.png", k + 12)
    png(folder / "DIV2K_valid_HR" / "0801.png", 20)
    png(folder / "DIV2K_valid_LR_bicubic" / "X2" / "0801x2.png", 21)
    png(folder / "DIV2K_train_LR_mild" / "0001x4m.png", 22)
    png(folder / "DIV2K_train_LR_mild" / "0002x4m.png", 23)


def flickr(folder):
    for k in range(2):
        png(folder / "images" / f"{k}_a.jpg", k)
    lines = [f"{k}_a.jpg#{i}\ta caption {k} {i} .\n" for k in range(2) for i in range(5)]
    _put(folder / "captions.token", "".join(lines))


def flowers102(folder):
    for k in range(1, 5):
        png(folder / "jpg" / f"image_0000{k}.jpg", k)
        png(folder / "segmim" / f"segmim_0000{k}.jpg", k + 10)
    mat(folder / "imagelabels.mat", labels=np.array([[7, 8, 9, 10]], np.uint8))
    mat(folder / "setid.mat", trnid=[[2, 4]], valid=[[1]], tstid=[[3]])


def celeba(folder):
    names = [f"{k:06d}.jpg" for k in range(1, 5)]
    for k, name in enumerate(names):
        png(folder / name, k)
    rows = [name + " " + " ".join(" 1" if (k + i) % 3 else "-1" for i in range(40)) for k, name in enumerate(names)]
    header = " ".join(f"attr_{i}" for i in range(40))
    _put(folder / "list_attr_celeba.txt", f"4\n{header}\n" + "\n".join(rows) + "\n")
    parts = "".join(f"{name} {part}\n" for name, part in zip(names, (0, 1, 2, 0), strict=True))
    _put(folder / "list_eval_partition.txt", parts)


def caltech101(folder):
    for k, (category, annotation) in enumerate((("Faces", "Faces_2"), ("anchor", "anchor"))):
        for i in range(2):
            png(folder / "101_ObjectCategories" / category / f"image_000{i + 1}.jpg", 10 * k + i)
            contour = np.arange(6.0).reshape(2, 3) + i
            mat(folder / "Annotations" / annotation / f"annotation_000{i + 1}.mat", obj_contour=contour)


def lfw(folder):
    for k, name in enumerate(("Ann_Lee", "Bob_Ray", "Cy_Young")):
        for i in (1, 2):
            for kind in ("lfw", "lfw_funneled", "lfw-deepfunneled"):
                png(folder / kind / name / f"{name}_000{i}.jpg", 10 * k + i)
    _put(folder / "lfw-names.txt", "Ann_Lee\t2\nBob_Ray\t2\nCy_Young\t2\n")
    _put(folder / "people.txt", "2\n2\nAnn_Lee\t2\nBob_Ray\t1\n1\nCy_Young\t2\n")
    _put(folder / "peopleDevTrain.txt", "2\nAnn_Lee\t2\nBob_Ray\t1\n")
    _put(folder / "peopleDevTest.txt", "1\nCy_Young\t2\n")
    _put(folder / "pairs.txt", "2\t1\nAnn_Lee\t1\t2\nAnn_Lee\t1\tBob_Ray\t2\nCy_Young\t1\t2\nBob_Ray\t1\tCy_Young\t1\n")
    _put(folder / "pairsDevTrain.txt", "1\nAnn_Lee\t1\t2\nAnn_Lee\t1\tBob_Ray\t2\n")
    _put(folder / "pairsDevTest.txt", "1\nCy_Young\t1\t2\nBob_Ray\t1\tCy_Young\t1\n")


def kitti(folder):
    labels = folder / "data_object_label_2" / "training" / "label_2"
    for k in range(2):
        png(folder / "data_object_image_2" / "training" / "image_2" / f"00000{k}.png", k)
        png(folder / "data_object_image_2" / "testing" / "image_2" / f"00000{k}.png", k + 5)
    line = "{} 0.25 {} -1.50 1.00 2.00 3.50 4.00 1.40 1.60 3.90 -2.50 1.70 13.20 -1.60\n"
    _put(labels / "000000.txt", line.format("Car", 1) + line.format("Pedestrian", 0))
    _put(labels / "000001.txt", line.format("Van", 3) + line.format("Car", 2))


def widerface(folder):
    split = folder / "wider_face_split"
    truth = ""
    for k in range(2):
        png(folder / "WIDER_train" / "images" / "0--Parade" / f"a_{k}.jpg", k)
        png(folder / "WIDER_val" / "images" / "0--Parade" / f"b_{k}.jpg", k + 3)
        png(folder / "WIDER_test" / "images" / "0--Parade" / f"c_{k}.jpg", k + 6)
        boxes = "".join(f"{i} {k} 30 40 1 0 1 2 2 2 \n" for i in range(k + 1))
        truth += f"0--Parade/a_{k}.jpg\n{k + 1}\n{boxes}"
    _put(split / "wider_face_train_bbx_gt.txt", truth)
    _put(split / "wider_face_val_bbx_gt.txt", truth.replace("/a_", "/b_"))
    _put(split / "wider_face_test_filelist.txt", "0--Parade/c_0.jpg\n0--Parade/c_1.jpg\n")


def cityscapes(folder):
    parts = {"gtFine": ("train", "val", "test"), "gtCoarse": ("train", "train_extra", "val")}
    for mode, part in [("gtFine", part) for part in parts["gtFine"]] + [
        ("gtCoarse", part) for part in parts["gtCoarse"]
    ]:
        for k, city in enumerate(("aachen", "bochum")):
            stem = f"{city}_00000{k}_000019"
            png(folder / "leftImg8bit" / part / city / f"{stem}_leftImg8bit.png", k)
            target = folder / mode / part / city
            for i, kind in enumerate(("color", "instanceIds", "labelIds")):
                png(target / f"{stem}_{mode}_{kind}.png", 10 * k + i, gray=kind != "color")
            _put(target / f"{stem}_{mode}_polygons.json", json.dumps({"imgHeight": k, "objects": []}))


def sbd(folder):
    for k in range(3):
        png(folder / "img" / f"2008_00000{k}.jpg", k)
        boundaries = np.empty((20, 1), object)
        for i in range(20):
            boundaries[i, 0] = scipy.sparse.csc_matrix(np.eye(2, 3, i % 3, dtype=np.uint8))
        truth = {"Segmentation": _bytes(k, 2, 3) % 21, "Boundaries": boundaries}
        mat(folder / "cls" / f"2008_00000{k}.mat", GTcls=truth)
    _put(folder / "train.txt", "2008_000002\n2008_000000\n")
    _put(folder / "train_noval.txt", "2008_000000\n")
    _put(folder / "val.txt", "2008_000001\n")


def sbu(folder):
    names = ("3326/3596303505_3ce4c20529", "2522/4182181099_c3c23ab1cc", "1111/no_file")
    for k, name in enumerate(names[:2]):
        png(folder / "sbu_images" / f"m_{name.replace('/', '_')}.jpg", k)
    urls = "".join(f"http://static.flickr.com/{name}.jpg\n" for name in names)
    _put(folder / "SBU_captioned_photo_dataset_urls.txt", urls)
    _put(folder / "SBU_captioned_photo_dataset_captions.txt", "a dog .\n two cats \nnothing\n")


def manifest(folder):
    lines = []
    for k, (usage, label) in enumerate((("train", "dog"), ("train", "cat"), ("eval", "dog"), ("inference", "cat"))):
        png(folder / f"{k}.jpg", k)
        mark = {"type": "modelarts/image_classification", "name": label, "annotated-by": "human"}
        lines.append(json.dumps({"source": str(folder / f"{k}.jpg"), "usage": usage, "annotation": [mark]}))
    _put(folder / "data.manifest", "\n".join(lines) + "\n")


def coco(folder):
    images = [{"id": k + 1, "file_name": f"00{k}.jpg", "height": 2, "width": 3} for k in range(2)]
    for k in range(2):
        png(folder / "images" / f"00{k}.jpg", k)
    kinds = [
        {"id": 5, "name": "dog", "supercategory": "animal", "isthing": 1},
        {"id": 9, "name": "cat", "supercategory": "animal", "isthing": 0},
    ]
    marks = [
        {"id": 10 + i, "image_id": image, "category_id": kind, "bbox": [i, 1, 2.5, 2], "iscrowd": i % 2, "area": 4.0}
        | {"segmentation": [[i, 1, 2, 2, 3, 3.5]], "num_keypoints": 2, "keypoints": [1, 2, 2, 4, 5, i]}
        for i, (image, kind) in enumerate(((1, 5), (1, 9), (2, 9)))
    ]
    _put(folder / "instances.json", json.dumps({"images": images, "annotations": marks, "categories": kinds}))
    stuff = [{**mark, "iscrowd": 0} for mark in marks]
    stuff[1] |= {"segmentation": {"counts": [4, 2], "size": [2, 3]}, "iscrowd": 1}
    _put(folder / "stuff.json", json.dumps({"images": images, "annotations": stuff, "categories": kinds}))
    captions = [{"id": i, "image_id": 1 + i % 2, "caption": f"caption {i}"} for i in range(3)]
    _put(folder / "captions.json", json.dumps({"images": images, "annotations": captions}))
    parts = [
        {
            "image_id": k + 1,
            "file_name": f"00{k}.png",
            "segments_info": [
                {"id": 1, "category_id": 5, "bbox": [k, 0, 3, 4], "area": 6, "iscrowd": 0},
                {"id": 2, "category_id": 9, "bbox": [1, 1, 2, 2], "area": 7, "iscrowd": 1},
            ],
        }
        for k in range(2)
    ]
    _put(folder / "panoptic.json", json.dumps({"images": images, "annotations": parts, "categories": kinds}))


def voc(folder):
    for k in range(3):
        name = f"2007_00000{k}"
        png(folder / "JPEGImages" / f"{name}.jpg", k)
        png(folder / "SegmentationClass" / f"{name}.png", k + 5)
        things = "".join(
            f"<object><name>{thing}</name><pose>Left</pose><truncated>{k % 2}</truncated><difficult>{i}</difficult>"
            f"<bndbox><xmin>{i + 1}</xmin><ymin>2</ymin><xmax>{i + 30}</xmax><ymax>40</ymax></bndbox></object>"
            for i, thing in enumerate(("dog", "cat")[: k + 1])
        )
        _put(
            folder / "Annotations" / f"{name}.xml", f"<annotation><filename>{name}.jpg</filename>{things}</annotation>"
        )
    for kind in ("Segmentation", "Main"):
        _put(folder / "ImageSets" / kind / "train.txt", "2007_000000\n2007_000002\n")
        _put(folder / "ImageSets" / kind / "val.txt", "2007_000001\n")


def cmu_arctic(folder):
    for name in ("aew", "bdl"):
        place = folder / f"cmu_us_{name}_arctic"
        for k in (1, 2):
            wav(place / "wav" / f"arctic_a000{k}.wav", k, rate=16000)
        _put(
            place / "etc" / "txt.done.data", '( arctic_a0001 "Author of it." )\n( arctic_a0002 "Not at this, case." )\n'
        )


def gtzan(folder):
    for k, name in enumerate(("blues", "disco")):
        for i in range(2):
            wav(folder / name / f"{name}.0000{i}.wav", 10 * k + i, rate=22050)


def libri_tts(folder):
    for part in ("dev-clean", "test-clean"):
        place = folder / part / "116" / "288045"
        lines = []
        for k in range(2):
            wav(place / f"116_288045_00000{k}_000000.wav", k, rate=24000)
            lines.append(f"116_288045_00000{k}_000000\tMr. {k}, yes\tMister {k}, yes\n")
        _put(place / "116_288045.trans.tsv", "".join(lines))


def lj_speech(folder):
    for k in (1, 2):
        wav(folder / "wavs" / f"LJ001-000{k}.wav", k, rate=22050)
    _put(folder / "metadata.csv", "LJ001-0001|Page 1, of|Page one, of\nLJ001-0002|in being|in being\n")


def speech_commands(folder):
    for k, name in enumerate(("cat", "dog")):
        for i in range(3):
            wav(folder / name / f"b{k}3{i}_nohash_{i}.wav", 10 * k + i, rate=16000)
    _put(folder / "testing_list.txt", "cat/b030_nohash_0.wav\n")
    _put(folder / "validation_list.txt", "dog/b131_nohash_1.wav\n")


def yes_no(folder):
    for k, name in enumerate(("0_0_0_0_1_1_1_1", "1_0_1_0_1_0_1_0")):
        wav(folder / f"{name}.wav", k)


def imdb(folder):
    for part in ("train", "test"):
        for kind in ("pos", "neg"):
            for k in range(2):
                _put(folder / part / kind / f"{k}_{k + 3}.txt", f"{part} {kind} {k}: a film.<br />Fine")


def _csv(folder, rows):
    _put(folder / "train.csv", "\n".join(rows) + "\n")
    _put(folder / "test.csv", rows[0] + "\n")


def ag_news(folder):
    _csv(folder, ['"3","A title","He said ""no"", twice"', '"4","Two","b, c"'])


def yelp(folder):
    _csv(folder, ['"1","good food"', '"2","bad ""service"", cold"'])


def yahoo(folder):
    _csv(folder, ['"5","why?","because, really","so"', '"6","how?","","yes"'])


def clue(folder):
    lines = {
        "afqmc": [
            {"sentence1": "a", "sentence2": "b c", "label": "0"},
            {"sentence1": "d", "sentence2": "e", "label": "1"},
        ],
        "afqmc_test": [{"id": 7, "sentence1": "a", "sentence2": "b"}],
        "tnews": [{"label": "102", "label_desc": "news", "sentence": "s t", "keywords": "k,l"}],
        "tnews_test": [{"id": 3, "sentence": "s", "keywords": ""}],
        "iflytek": [{"label": "11", "label_des": "map", "sentence": "x y"}],
        "iflytek_test": [{"id": 4, "sentence": "x"}],
        "cmnli": [{"sentence1": "p", "sentence2": "q", "label": "neutral"}],
        "cmnli_test": [{"id": 5, "sentence1": "p", "sentence2": "q"}],
        "wsc": [
            {
                "idx": 2,
                "label": "true",
                "text": "t u",
                "target": {"span1_index": 0, "span2_index": 3, "span1_text": "t", "span2_text": "u"},
            }
        ],
        "wsc_test": [
            {
                "idx": 3,
                "text": "t u",
                "target": {"span1_index": 1, "span2_index": 2, "span1_text": "t", "span2_text": "u"},
            }
        ],
        "csl": [{"id": 1, "abst": "text", "keyword": ["a", "b"], "label": "1"}],
        "csl_test": [{"id": 2, "abst": "text", "keyword": ["c", "d"]}],
    }
    for name, rows in lines.items():
        _put(folder / f"{name}.json", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def conll(folder):
    _put(folder / "train.txt", "Confidence NN B-NP\nin IN B-PP\n\nRock NNP B-NP\n. . O\n\n")
    _put(folder / "test.txt", "It PRP B-NP\n\n")


def udpos(folder):
    text = "The\tDET\tDT\ndog\tNOUN\tNN\n\nHi\tINTJ\tUH\n\n"
    for name in ("train", "dev", "test"):
        _put(folder / f"en-ud-tag.v2.{name}.txt", text if name == "train" else text[-13:])


def enwik9(folder):
    _put(folder / "enwik9", "<mediawiki>\n  <page>\n\n    text é\n</page>\n")


def penn_treebank(folder):
    for name in ("train", "valid", "test"):
        _put(folder / f"ptb.{name}.txt", f" aer banknote {name} \n\n mr. <unk> is \n")


def wikitext(folder):
    for name in ("train", "valid", "test"):
        _put(folder / f"wiki.{name}.tokens", f" \n = Robert {name} = \n \n\n He is . \n")


def sst2(folder):
    _put(folder / "train.tsv", "sentence\tlabel\nhide new \t0\ncontains no wit\t1\n")
    _put(folder / "dev.tsv", "sentence\tlabel\nit 's fine\t1\n")
    _put(folder / "test.tsv", "index\tsentence\n0\tuneasy mishmash\n1\tthis film\n")


def squad(folder):
    for version in ("v1.1", "v2.0"):
        for part in ("train", "dev"):
            questions = [
                {"id": "1", "question": f"Who {part}?", "answers": [{"text": "Ann", "answer_start": 4}]},
                {
                    "id": "2",
                    "question": "Two?",
                    "answers": [{"text": "x", "answer_start": 1}, {"text": "y z", "answer_start": 7}],
                },
            ]
            if version == "v2.0":
                questions.append({"id": "3", "question": "None?", "answers": [], "is_impossible": True})
            data = [{"title": "T", "paragraphs": [{"context": "Was Ann here?", "qas": questions}]}]
            text = json.dumps({"data": data, "version": version})
            _put(folder / version / f"{part}-{version}.json", text)


def multi30k(folder):
    for place, name in (("training", "train"), ("validation", "val"), ("mmt16_task1_test", "test")):
        for language in ("de", "en"):
            _put(folder / place / f"{name}.{language}", f"{language} eins {name}.\n{language} zwei.\n")


def iwslt2016(folder):
    _iwslt(folder / "texts" / "de" / "en" / "de-en", "IWSLT16.TED", "de-en", ("tst2013", "tst2014"))


def iwslt2017(folder):
    place = folder / "texts" / "DeEnItNlRo" / "DeEnItNlRo" / "DeEnItNlRo-DeEnItNlRo"
    _iwslt(place, "IWSLT17.TED", "de-en", ("dev2010", "tst2010"))


def _iwslt(place, prefix, pair, sets):
    for language in pair.split("-"):
        train = f"<url>http://x</url>\n<title>T</title>\n{language} eins & so\n{language} zwei\n<talkid>1</talkid>\n"
        _put(place / f"train.tags.{pair}.{language}", train)
        for name in sets:
            lines = "".join(f'<seg id="{i}"> {language} {name} {i} </seg>\n' for i in (1, 2))
            text = f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<srcset>\n<doc docid="1">\n<title>T</title>\n{lines}</doc>\n</srcset>\n</mteval>\n'
            _put(place / f"{prefix}.{name}.{pair}.{language}.xml", text)


def tedlium(folder):
    for place in (folder / "TEDLIUM_release1" / "dev", folder / "TEDLIUM_release-3" / "data"):
        samples = _bytes(3, 2 * 800).tobytes()
        header = b"NIST_1A\n   1024\nsample_count -i 800\nsample_n_bytes -i 2\nchannel_count -i 1\n"
        header += b"sample_byte_format -s2 01\nsample_rate -i 16000\nsample_coding -s3 pcm\nend_head\n"
        _put(place / "sph" / "Al_2009.sph", header.ljust(1024, b"\0") + samples)
        lines = "Al_2009 1 Al_2009 0.00 0.01 <o,f0,male> we are here\nAl_2009 1 Al_2009 0.02 0.05 <o,f0,male> ok\n"
        _put(place / "stm" / "Al_2009.stm", lines)


def tables(folder):
    _put(folder / "a.csv", '1,2.5,x\n-3,4,"y,z ""q"""\n5,6e-1,\n')
    _put(folder / "h.csv", "p,q\n1,2\n3,4\n")
    _put(folder / "a.txt", "hello world\n\n line 2 \nlast é")


def _varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def _field(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def example(**features):
    """A tf.train.Example: lists of bytes, float or int by name."""
    entries = b""
    for name, values in features.items():
        if isinstance(values[0], bytes):
            kind = _field(1, b"".join(_field(1, value) for value in values))
        elif isinstance(values[0], float):
            kind = _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            kind = _field(3, _field(1, b"".join(map(_varint, values))))
        entries += _field(1, _field(1, name.encode()) + _field(2, kind))
    return _field(1, entries)


def crc32c(data):
    """CRC-32C, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def _masked(data):
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def records(examples):
    """The records of a TFRecord file."""
    lengths = (struct.pack("<Q", len(item)) for item in examples)
    return b"".join(n + _masked(n) + item + _masked(item) for n, item in zip(lengths, examples, strict=True))


def tfrecord(folder):
    rows = [
        example(image=[bytes([k, k + 1, 200])], label=[k - 1], scores=[0.5 * k, -1.5], names=[b"ab", b"c" * (k + 1)])
        for k in range(4)
    ]
    _put(folder / "a.tfrecord", records(rows[:3]))
    _put(folder / "b.tfrecord", records(rows[3:]))
    _put(folder / "a.gz", gzip.compress(records(rows[:3]), mtime=0))
    _put(folder / "a.zlib", zlib.compress(records(rows[:3])))
    schema = {
        "numRows": 2,
        "columns": {
            "label": {"type": "int64", "rank": 0, "t_impl": "none"},
            "scores": {"type": "float32", "rank": 1, "shape": [2]},
        },
    }
    _put(folder / "schema.json", json.dumps(schema))


BUILDERS = {
    name: function
    for name, function in list(globals().items())
    if callable(function)
    and not name.startswith("_")
    and name not in ("png", "wav", "mat", "example", "crc32c", "records")
    and getattr(function, "__module__", None) == __name__
    and name != "Path"
}


def write(name, root):
    """The folder of a data set, written anew under `root`."""
    folder = Path(root) / name
    if not folder.exists():
        BUILDERS[name](folder)
    return folder
