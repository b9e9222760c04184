"""Data sets in published formats give what MindSpore gives of the same files (`tools/golden/make_sources.py`)."""

import json
import re
import wave
from pathlib import Path

import cloudpickle
import numpy as np
import PIL.Image
import pytest
import source_cases
import source_files

import sporax.mindspore.dataset as ds

GOLDEN = json.loads((Path(__file__).parent / "golden_sources.json").read_text(encoding="utf-8"))
CASES = [(name, files, arguments) for name, cases in source_cases.CASES.items() for files, arguments in cases]
ERRORS = {"TypeError": TypeError, "ValueError": ValueError, "RuntimeError": RuntimeError}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("sources")


@pytest.mark.parametrize(("name", "files", "arguments"), CASES, ids=[f"{name}-{args}" for name, _, args in CASES])
def test_a_format_is_read_as_mindspore_reads_it(root, name, files, arguments):
    expected = GOLDEN[f"{name}({arguments})"]
    ds.config.set_num_parallel_workers(1)  # as when it was recorded: it says in which order files are read
    folder = source_files.write(files, root)
    if "error" in expected:
        with pytest.raises(ERRORS[expected["error"]], match=f"For '{name}'"):
            source_cases.read(ds, name, arguments, folder)
        return
    actual = source_cases.read(ds, name, arguments, folder)
    if name in source_cases.UNORDERED:
        actual["rows"].sort(key=str)
        expected["rows"].sort(key=str)
    for row in (*actual["rows"], *expected["rows"]) if name in source_cases.NOT_COMPARED else ():
        row[source_cases.NOT_COMPARED[name]] = None
    assert actual == expected


def broken(folder, name, change):
    """Put `change(content)` in the place of the file `name`; a new copy of the folder is made first."""
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    return path


def cut(content):
    return content[: len(content) - 5]


def first_line(text):
    return lambda content: text.encode() + b"\n" + content.split(b"\n", 1)[1]


DAMAGE = [
    # (data set, files, arguments, file to change, change, what the message says besides the file)
    ("EMnistDataset", "emnist", "'{d}', 'mnist'", "emnist-mnist-train-images-idx3-ubyte", cut, "record 2 at offset"),
    ("QMnistDataset", "qmnist", "'{d}', 'train'", "qmnist-train-labels-idx2-int", cut, "record 2 at offset"),
    ("STL10Dataset", "stl10", "'{d}'", "train_X.bin", cut, "record 1 at offset 27648"),
    ("SVHNDataset", "svhn", "'{d}'", "test_32x32.mat", cut, "cannot be read"),
    ("USPSDataset", "usps", "'{d}'", "usps.t", lambda content: content[:-15], "line 1: IndexError"),
    ("SemeionDataset", "semeion", "'{d}'", "semeion.data", first_line("1.0 0.0"), "line 1: .*266"),
    ("CelebADataset", "celeba", "'{d}'", "list_attr_celeba.txt", cut, "line 6: .*40 attributes"),
    ("LFWDataset", "lfw", "'{d}'", "lfw-names.txt", first_line("Someone\t2"), "'Ann_Lee'"),
    (
        "LFWDataset",
        "lfw",
        "'{d}', 'pairs'",
        "pairsDevTrain.txt",
        lambda c: c.replace(b"1\t2", b"1\tx"),
        "line 2: ValueError",
    ),
    ("Places365Dataset", "places365", "'{d}'", "places365_train_standard.txt", cut, "line 2: ValueError"),
    ("Flowers102Dataset", "flowers102", "'{d}'", "setid.mat", lambda content: b"x", "cannot be read"),
    ("ManifestDataset", "manifest", "'{d}/data.manifest'", "data.manifest", first_line("{"), "line 1: JSONDecodeError"),
    (
        "CocoDataset",
        "coco",
        "'{d}/images', '{d}/instances.json'",
        "instances.json",
        lambda c: c.replace(b"bbox", b"box"),
        "image 1: the attribute of 'bbox' is missing",
    ),
    ("VOCDataset", "voc", "'{d}', 'Detection'", "Annotations/2007_000002.xml", cut, "ValueError"),
    (
        "KITTIDataset",
        "kitti",
        "'{d}'",
        "data_object_label_2/training/label_2/000001.txt",
        first_line("Van 1"),
        "line 1: .*15 fields",
    ),
    (
        "WIDERFaceDataset",
        "widerface",
        "'{d}'",
        "wider_face_split/wider_face_train_bbx_gt.txt",
        lambda c: c[:-30],
        "line 4: .*",
    ),
    (
        "FlickrDataset",
        "flickr",
        "'{d}/images', '{d}/captions.token'",
        "captions.token",
        first_line("1_a.jpg#9\tx"),
        "has 4|has 6",
    ),
    (
        "CityscapesDataset",
        "cityscapes",
        "'{d}', task='polygon'",
        "gtFine/train/bochum/bochum_000001_000019_gtFine_polygons.json",
        cut,
        "JSONDecodeError",
    ),
    ("SBDataset", "sbd", "'{d}'", "cls/2008_000000.mat", cut, "cannot be read"),
    ("CMUArcticDataset", "cmu_arctic", "'{d}'", "cmu_us_aew_arctic/etc/txt.done.data", first_line("( a"), "line 1"),
    ("CMUArcticDataset", "cmu_arctic", "'{d}'", "cmu_us_aew_arctic/wav/arctic_a0002.wav", cut, "broken"),
    ("LJSpeechDataset", "lj_speech", "'{d}'", "metadata.csv", first_line("a|b"), "line 1"),
    ("LibriTTSDataset", "libri_tts", "'{d}'", "dev-clean/116/288045/116_288045.trans.tsv", first_line("a"), "line 1"),
    (
        "TedliumDataset",
        "tedlium",
        "'{d}/TEDLIUM_release1', 'release1', 'dev'",
        "TEDLIUM_release1/dev/sph/Al_2009.sph",
        lambda c: c[:1400],
        "ends at sample 800, but the file has 188",
    ),
    ("AGNewsDataset", "ag_news", "'{d}', 'train'", "train.csv", first_line('"3","x"'), "ends in line 1 .* has 2"),
    (
        "CLUEDataset",
        "clue",
        "'{d}/afqmc.json'",
        "afqmc.json",
        first_line('{"label": "1"}'),
        "line 1: the attribute of 'sentence1' is missing",
    ),
    ("CoNLL2000Dataset", "conll", "'{d}'", "train.txt", first_line("a b"), "line 1 .* has 2"),
    ("SST2Dataset", "sst2", "'{d}'", "train.tsv", lambda content: content[:-3], "line 3"),
    (
        "SQuADDataset",
        "squad",
        "'{d}/v1.1'",
        "v1.1/dev-v1.1.json",
        lambda c: c.replace(b"answer_start", b"start"),
        "question 0: the attribute of",
    ),
    ("Multi30kDataset", "multi30k", "'{d}', 'train'", "training/train.de", lambda content: b"eins\n", "2 and 1"),
    (
        "IWSLT2016Dataset",
        "iwslt2016",
        "'{d}', 'test'",
        "texts/de/en/de-en/IWSLT16.TED.tst2014.de-en.en.xml",
        lambda c: b"<x/>",
        "<seg>",
    ),
    ("WikiTextDataset", "wikitext", "'{d}'", "wiki.test.tokens", lambda content: b"fine\n\xff\n", "line at offset 5"),
    (
        "TFRecordDataset",
        "tfrecord",
        "'{d}/a.tfrecord'",
        "a.tfrecord",
        lambda c: c[:60] + b"?" + c[61:],
        "record 0: .*checksum",
    ),
    (
        "TFRecordDataset",
        "tfrecord",
        "'{d}/a.tfrecord'",
        "a.tfrecord",
        lambda c: c[:8] + b"?" + c[9:],
        "record 0 at offset 0 has a length",
    ),
    ("TFRecordDataset", "tfrecord", "'{d}/a.tfrecord'", "a.tfrecord", cut, "record 2 at offset .* only"),
]


@pytest.mark.parametrize(
    ("name", "files", "arguments", "file", "change", "text"),
    DAMAGE,
    ids=[f"{item[0]}-{Path(item[3]).name}" for item in DAMAGE],
)
def test_a_broken_file_is_named_with_the_place(tmp_path, name, files, arguments, file, change, text):
    folder = source_files.write(files, tmp_path)
    path = broken(folder, file, change)
    with pytest.raises(RuntimeError, match=f"(?s)For '{name}'.*{text}") as caught:
        source_cases.read(ds, name, arguments, folder)
    assert path.stem in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    folder = source_files.write("classes", tmp_path)
    data = ds.Caltech256Dataset(str(folder), shuffle=False)
    data.get_dataset_size()
    (folder / "001.ak47" / "001_0002.jpg").unlink()
    with pytest.raises(RuntimeError, match=r"001_0002\.jpg' cannot be read"):
        list(data)
    (folder / "001.ak47" / "001_0001.jpg").write_bytes(b"no image")
    with pytest.raises(RuntimeError, match=r"001_0001\.jpg.* Invalid image"):
        list(ds.Caltech256Dataset(str(folder), decode=True, shuffle=False))


def epochs(data):
    """Two epochs; the first once more from its second row on, after saving and restoring."""
    iterator = data.create_tuple_iterator(num_epochs=2, output_numpy=True)
    read = [[[source_cases.describe(value) for value in row] for row in iterator] for _ in range(2)]
    first = data.create_tuple_iterator(num_epochs=2, output_numpy=True)
    next(first)
    state = json.loads(json.dumps(first.get_state()))
    first.release()
    second = data.create_tuple_iterator(num_epochs=2, output_numpy=True)
    second.set_state(state)
    assert [[source_cases.describe(value) for value in row] for row in second] == read[0][1:]
    return read


OF_FILES = sorted(source_cases.CASES.keys() - {"GeneratorDataset", "NumpySlicesDataset", "PaddedDataset"})


@pytest.mark.parametrize("name", OF_FILES)
def test_every_format_is_deterministic_and_resumes(root, name):
    """Threads, another process, and an iterator restored in mid-epoch all give the same rows."""
    cases = source_cases.CASES[name]
    files, arguments = next((f, a) for f, a in cases if len(GOLDEN[f"{name}({a})"].get("rows", ())) > 1)
    call = f"make({arguments.format(d=source_files.write(files, root))}, num_parallel_workers={{}})"
    ds.config.set_seed(3)

    def make(workers):
        return eval(call.format(workers), {"make": getattr(ds, name)})

    alone = epochs(make(1))
    by_three = epochs(make(3))
    if name == "USPSDataset":  # of several files, whose rows come in another order from more workers
        assert [sorted(map(str, rows)) for rows in by_three] == [sorted(map(str, rows)) for rows in alone]
        assert epochs(make(3)) == by_three
    else:
        assert by_three == alone
    assert sorted(map(str, alone[0])) == sorted(map(str, alone[1]))
    sent = cloudpickle.loads(cloudpickle.dumps(make(1)))  # as worker processes receive it
    assert epochs(sent) == alone


# -- what the wheel cannot answer, or answers at random ------------------------------------------------------------


def values(data):
    return [[value.tolist() for value in row] for row in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]


def test_a_schema_says_dtypes_and_shapes(root):
    path = str(source_files.write("tfrecord", root) / "a.tfrecord")
    schema = ds.Schema()
    schema.add_column("names", "string", [2])
    schema.add_column("image", np.uint8)
    schema.add_column("label", "int32", [])
    assert values(ds.TFRecordDataset(path, schema, shuffle=False)) == [
        [["ab", "c" * (k + 1)], [k, k + 1, 200], k - 1] for k in range(3)
    ]
    again = ds.Schema()
    again.from_json(json.loads(schema.to_json()))
    assert again.to_json() == schema.to_json() == str(schema)
    assert values(ds.TFRecordDataset(path, schema, ["label"], shuffle=False)) == [[-1], [0], [1]]
    schema.columns[2] = type(schema.columns[2])("label", "int32", (3,))
    with pytest.raises(RuntimeError, match=r"a\.tfrecord' is broken at record 0: .*reshape"):
        values(ds.TFRecordDataset(path, schema, shuffle=False))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ds.Schema().add_column("x", "float8"), TypeError),
        (lambda: ds.Schema().add_column("x", "int32", 3), TypeError),
        (lambda: ds.Schema().add_column(3, "int32"), TypeError),
        (lambda: ds.Schema().parse_columns([{"name": "x"}]), RuntimeError),
        (lambda: ds.Schema().parse_columns(3), RuntimeError),
        (lambda: ds.Schema().from_json({"columns": {}, "numRows": 0}), RuntimeError),
        (lambda: ds.Schema().from_json({"numRows": 1}), RuntimeError),
        (lambda: ds.Schema().from_json({"columns": {}, "rows": 1}), RuntimeError),
        (lambda: ds.Schema("none.json"), ValueError),
    ],
)
def test_schemas_refuse(make, error):
    with pytest.raises(error, match="For 'Schema"):
        make()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((1, True, None, 0), [[203, 200, 100, 101, 202, 201, 103, 102], [201, 303, 300, 200, 203, 301, 202, 302]]),
        ((1, True, None, 1), [[303, 300, 0, 1, 302, 301, 3, 2], [101, 3, 0, 100, 103, 1, 102, 2]]),
        ((2, True, None, 0), [[203, 102, 100, 200, 103, 202, 201, 101], [300, 303, 202, 200, 301, 302, 201, 203]]),
        ((2, True, 5, 0), [[100, 101, 102, 201, 200], [301, 300, 202, 201, 200]]),
        ((1, "files", None, 0), [[100, 101, 102, 103, 200, 201, 202, 203], [200, 201, 202, 203, 300, 301, 302, 303]]),
        ((2, "files", 5, 0), [[100, 200, 101, 201, 102], [200, 300, 201, 301, 202]]),
        ((1, True, 10, None), [[1, 2, 300, 202, 201, 203, 301, 0, 3, 200], [202, 101, 203, 300, 100, 201, 301, 200, 303, 302]]),
        (
            (2, True, None, None),
            [
                [3, 200, 300, 202, 0, 301, 100, 101, 102, 103, 302, 303, 1, 2, 201, 203],
                [2, 303, 3, 102, 200, 201, 300, 302, 1, 203, 101, 202, 100, 0, 103, 301],
            ],
        ),
    ],
)  # fmt: skip
def test_files_of_records_come_in_mindspores_order(tmp_path, settings, expected):
    """Four files of four rows each, by one worker or two, all or one of two shards; recorded with MindSpore."""
    workers, shuffle, num_samples, shard = settings
    paths = [tmp_path / f"{number}.tfrecord" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(source_files.records([source_files.example(id=[100 * number + row]) for row in range(4)]))
    ds.config.set_seed(7)
    data = ds.TFRecordDataset(
        list(map(str, paths)), num_samples=num_samples, num_parallel_workers=workers,
        shuffle=ds.Shuffle.FILES if shuffle == "files" else shuffle,
        num_shards=None if shard is None else 2, shard_id=shard,
    )  # fmt: skip
    iterator = data.create_tuple_iterator(num_epochs=2, output_numpy=True)
    assert [[int(row[0][0]) for row in iterator] for _ in range(2)] == expected


def test_lines_of_several_files_come_in_mindspores_order(tmp_path):
    paths = [tmp_path / f"{number}.txt" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_text("".join(f"{number}-{row}\n" for row in range(6)))
    ds.config.set_seed(7)
    data = ds.TextFileDataset(list(map(str, paths)), num_parallel_workers=2)
    expected = "0-4 1-4 1-2 2-3 0-2 1-3 1-5 2-4 0-0 2-1 1-0 0-1 0-3 2-2 2-0 2-5 0-5 1-1"
    assert " ".join(row[0] for row in values(data)) == expected


def test_files_of_records_are_shared_as_wholes(root):
    folder = source_files.write("tfrecord", root)
    paths = [str(folder / "a.tfrecord"), str(folder / "b.tfrecord")]

    def shard(rank, count=2, **options):
        data = ds.TFRecordDataset(paths, None, ["label"], shuffle=False, num_shards=count, shard_id=rank, **options)
        return [row[0][0] for row in values(data)]

    assert [shard(0), shard(1)] == [[-1, 0, 1], [2]]
    assert [shard(rank, 3, shard_equal_rows=True) for rank in range(3)] == [[-1, 0], [1, 2], [-1, 0]]
    with pytest.raises(RuntimeError, match="Got 2 and 3"):
        shard(0, 3)
    # Files are dealt out again in each pass, and a rank's share has the size of those that it gets.
    shares = [
        [[row[0][0] for row in iterator] for _ in range(3)]
        for iterator in (
            ds.TFRecordDataset(
                paths, None, ["label"], shuffle=ds.Shuffle.FILES, num_shards=2, shard_id=rank
            ).create_tuple_iterator(num_epochs=3, output_numpy=True)
            for rank in range(2)
        )
    ]
    assert shares == [[[2], [-1, 0, 1], [-1, 0, 1]], [[-1, 0, 1], [2], [2]]]
    ds.config.set_seed(7)
    data = ds.TFRecordDataset(paths, None, ["label"], num_shards=2, shard_id=0)
    iterator = data.create_tuple_iterator(num_epochs=5, output_numpy=True)
    passes = [[row[0][0] for row in iterator] for _ in range(5)]
    assert passes == [[2], [-1, 1, 0], [0, -1, 1], [0, 1, -1], [2]]
    # The wheel counts the files in the order of their list, whichever a rank gets.
    for rank, sizes in ((0, (3, 9, 2)), (1, (1, 3, 1))):
        data = ds.TFRecordDataset(paths, None, ["label"], num_shards=2, shard_id=rank)
        assert (data.get_dataset_size(), data.repeat(3).get_dataset_size(), data.batch(2).get_dataset_size()) == sizes
    assert ds.TFRecordDataset(paths, num_shards=2, shard_id=0).batch(2).is_sharded()
    assert not ds.TFRecordDataset(paths).is_sharded()
    with pytest.raises(ValueError, match="compression_type is not within the valid set"):
        ds.TFRecordDataset(paths, compression_type="LZ4")
    with pytest.raises(RuntimeError, match=r"a\.tfrecord' cannot be read"):
        ds.TFRecordDataset(paths, compression_type="GZIP")


def test_checksums_of_long_records():
    from sporax.mindspore.dataset._sources.tfrecord import crc32c

    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    for length in (0, 1, 3, 4, 5, 4095, 4096, 4097, 4099, 9000):
        data = np.random.default_rng(length).bytes(length)
        assert crc32c(data) == source_files.crc32c(data)


def test_random_rows_keep_to_the_schema():
    schema = ds.Schema()
    schema.add_column("x", "float32", [2, 3])
    schema.add_column("y", "int64", [])
    data = ds.RandomDataset(5, schema, shuffle=False)
    assert (data.get_col_names(), len(data), data.output_shapes()) == (["x", "y"], 5, [[2, 3], []])
    assert data.output_types() == [np.float32, np.int64]
    assert values(data) == values(data) != values(ds.RandomDataset(5, schema, ["y"], shuffle=False))
    assert ds.RandomDataset(3, columns_list=["a", "b"]).get_col_names() == ["a", "b"]
    assert len(ds.RandomDataset()) > 0
    with pytest.raises(RuntimeError, match="column name: q does not exist"):
        ds.RandomDataset(5, schema, ["q"])
    schema.add_column("z", "string")
    with pytest.raises(ValueError, match="column 'z' holds strings"):
        ds.RandomDataset(5, schema)


def test_fake_images():
    data = ds.FakeImageDataset(4, (2, 3, 1), 5, shuffle=False)
    assert (len(data), data.output_shapes(), data.output_types()) == (4, [[2, 3, 1], []], [np.uint8, np.uint32])
    assert values(data) == values(data) != values(ds.FakeImageDataset(4, (2, 3, 1), 5, base_seed=1, shuffle=False))
    with pytest.raises(ValueError, match="image_size should be a list or tuple of length 3, but got 2"):
        ds.FakeImageDataset(image_size=(2, 2))
    with pytest.raises(TypeError, match=r"Argument image_size\[0\] with value -1 is not of type"):
        ds.FakeImageDataset(image_size=("-1", 28, 3))
    # MindSpore 2.10's labels.
    for seed, labels in ((0, [5, 4, 4, 5, 9, 2, 8, 0, 8, 0, 7, 1]), (3, [5, 9, 2, 8, 0, 8, 0, 7, 1, 1, 7, 5])):
        data = ds.FakeImageDataset(12, (2, 2, 3), 10, seed, shuffle=False)
        assert [int(row["label"]) for row in data.create_dict_iterator(output_numpy=True)] == labels


def test_classes_are_reported(root):
    write = source_files.write
    coco, voc = write("coco", root), write("voc", root)
    assert ds.VOCDataset(str(voc), "Detection").get_class_indexing() == {"cat": 0, "dog": 1}
    assert ds.CocoDataset(str(coco / "images"), str(coco / "instances.json")).get_class_indexing() == {
        "dog": [5],
        "cat": [9],
    }
    panoptic = ds.CocoDataset(str(coco / "images"), str(coco / "panoptic.json"), "Panoptic")
    assert panoptic.get_class_indexing() == {"dog": [5, 1], "cat": [9, 0]}
    listed = write("manifest", root) / "data.manifest"
    listed.write_text(listed.read_text().replace('"usage": "train"', '"usage": "TRAIN"'))
    manifest = ds.ManifestDataset(str(listed))
    assert (manifest.get_class_indexing(), manifest.num_classes()) == ({"cat": 0, "dog": 1}, 2)
    assert ds.Caltech101Dataset(str(write("caltech101", root))).get_class_indexing() == {"Faces": 0, "anchor": 1}


def test_a_manifest_leaves_out_what_is_no_image_and_refuses_what_is_empty(tmp_path):
    listed = source_files.write("manifest", tmp_path) / "data.manifest"
    (listed.parent / "0.jpg").write_bytes(b"text")
    manifest = ds.ManifestDataset(str(listed))
    assert (manifest.get_dataset_size(), manifest.get_class_indexing()) == (1, {"cat": 0})
    (listed.parent / "0.jpg").write_bytes(b"")
    with pytest.raises(RuntimeError, match="Invalid manifest file, failed to read"):
        ds.ManifestDataset(str(listed)).get_dataset_size()


def test_names_of_faces_follow_the_files_own_order(root):
    path = source_files.write("widerface", root) / "wider_face_split" / "wider_face_train_bbx_gt.txt"
    before = path.read_text()
    path.write_text("0--Parade/a_0.jpg\n1\n1 2 30 40 1 0 1 7 8 9\n")
    row = next(ds.WIDERFaceDataset(str(path.parents[1]), "train").create_dict_iterator(output_numpy=True))
    path.write_text(before)
    assert [row[name].tolist() for name in ("bbox", "invalid", "occlusion", "pose")] == [
        [[1, 2, 30, 40]],
        [7],
        [8],
        [9],
    ]


def test_arguments_that_are_not_offered_are_refused(root):
    folder = str(source_files.write("classes", root))
    ds.Caltech256Dataset(folder, cache=None)
    with pytest.raises(TypeError, match="Argument cache with value 3 is not of type .*DatasetCache"):
        ds.Caltech256Dataset(folder, cache=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        ds.Caltech256Dataset(folder, colour=3)
    with pytest.raises(TypeError, match="extra_metadata with value"):
        ds.VOCDataset(str(source_files.write("voc", root)), extra_metadata=3)
    with pytest.raises(NotImplementedError, match="do not say their part"):
        len(ds.GTZANDataset(str(source_files.write("gtzan", root)), "train"))
    with pytest.raises(RuntimeError, match="no valid data matching the dataset API"):
        len(ds.Caltech256Dataset(str(root / "classes" / "001.ak47")))


def numbers(text):
    return float(str(text))


def csv(root):
    return ds.CSVDataset(str(source_files.write("tables", root) / "h.csv"), shuffle=False)


def no_such(word):
    return {}[str(word)]


def refuse_one(value):
    return 1 / (int(value.reshape(-1)[0]) - 1)


def refuse_flag(content):
    pixels = source_cases.describe(content)
    if pixels[2] in FLAGS:
        raise ValueError("a flag")
    return content


FLAGS = {row[0][2] for row in GOLDEN["ImageFolderDataset('{d}')"]["rows"] if row[1][2] == [1]}


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (
            lambda root: ds.ImageFolderDataset(str(source_files.write("classes", root))).map(refuse_flag, "image", "x"),
            r"002\.flag/002_000[12]\.jpg",
        ),
        (
            lambda root: (
                ds.TFRecordDataset(str(source_files.write("tfrecord", root) / "a.tfrecord"), None, ["label"])
                .shuffle(3)
                .repeat(2)
                .map(refuse_one, "label")
                .batch(2)
            ),
            r"record 2 of .*a\.tfrecord",
        ),
        (lambda root: (csv(root) + csv(root)).skip(2).map(no_such, "p"), r"number 0 of .*h\.csv"),
        (
            lambda root: (ds.NumpySlicesDataset([7], "z").zip(csv(root))).map(no_such, "p"),
            r"number 0 of the source, number 0 of .*h\.csv",
        ),
        (
            lambda root: ds.TextFileDataset(str(source_files.write("tables", root) / "a.txt")).map(numbers, "text"),
            r"the line at offset \d+ of .*a\.txt",
        ),
        (lambda root: ds.NumpySlicesDataset([3, 1], shuffle=False).map(refuse_one).batch(2), "number 1 of the source"),
        (lambda root: ds.GeneratorDataset([3, 1], "x", shuffle=False).map(refuse_one), "number 1 of the source"),
        (lambda root: ds.GeneratorDataset(lambda: iter([3, 1]), "x").map(refuse_one), "number 1"),
    ],
)
def test_a_row_that_an_operation_refuses_is_named(tmp_path, make, place):
    with pytest.raises(RuntimeError, match=rf"(The row is|The corresponding data file is:) \S*{place}\.$") as caught:
        list(make(tmp_path))
    assert len(re.findall("The row is|data file is", str(caught.value))) == 1
    assert ("data file is" in str(caught.value)) == ("." in place)  # names of files alone have endings here


def test_a_file_in_the_working_folder_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").write_text("one\n")
    with pytest.raises(RuntimeError, match=r"The corresponding data file is: the line at offset 0 of words\.$"):
        list(ds.TextFileDataset("words").map(no_such, "text"))


@pytest.mark.parametrize(
    ("width", "data", "expected"),
    [
        (1, bytes([0, 128, 255]), [-128 / 127, 0, 1]),
        (2, np.array([-32768, 1, 32767], "<i2").tobytes(), [-32768 / 32767, 1 / 32767, 1]),
        (3, b"\0\0\x80\1\0\0\xff\xff\x7f", [-8388608 / 8388607, 1 / 8388607, 1]),
        (4, np.array([-(2**31), 0, 2**31 - 1], "<i4").tobytes(), [-1, 0, 1]),
    ],
)
def test_sounds_of_every_width(tmp_path, width, data, expected):
    path = tmp_path / "1_0.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, width, 8000, 0, "NONE", ""))
        file.writeframes(data)
    ((actual, rate, label),) = ds.YesNoDataset(str(tmp_path)).create_tuple_iterator(num_epochs=1, output_numpy=True)
    assert (actual.dtype, actual.shape, rate, label.tolist()) == (np.float32, (1, 3), 8000, [1, 0])
    np.testing.assert_allclose(actual[0], expected, rtol=1e-6)
    for content, text in (
        (path.read_bytes()[:-width], "ends within number 2"),
        (path.read_bytes()[:20], "broken"),
        (b"x", "broken"),
    ):
        path.write_bytes(content)
        with pytest.raises(RuntimeError, match=f"1_0\\.wav.*{text}"):
            list(ds.YesNoDataset(str(tmp_path)))


def test_columns_of_words_may_be_aligned_by_spaces(tmp_path):
    (tmp_path / "test.txt").write_text("He PRP B-NP\nreckons   VBZ  B-VP\n\n")
    (row,) = ds.CoNLL2000Dataset(str(tmp_path), "test").create_dict_iterator(output_numpy=True, num_epochs=1)
    assert [column.tolist() for column in row.values()] == [["He", "reckons"], ["PRP", "VBZ"], ["B-NP", "B-VP"]]


def test_each_polygon_of_a_thing_is_a_row(tmp_path):
    PIL.Image.new("RGB", (2, 2)).save(tmp_path / "a.png")
    thing = {"image_id": 1, "iscrowd": 0, "category_id": 1, "segmentation": [[1, 2, 3], [4, 5]]}
    content = {
        "images": [{"id": 1, "file_name": "a.png"}],
        "annotations": [thing],
        "categories": [{"id": 1, "name": "x"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    (row,) = ds.CocoDataset(str(tmp_path), str(tmp_path / "a.json"), "Stuff").create_dict_iterator(
        output_numpy=True, num_epochs=1
    )
    assert row["segmentation"].tolist() == [[1, 2, 3], [4, 5, -1]] and row["iscrowd"].tolist() == [[0]]


def test_images_are_decrypted(root):
    folder = str(source_files.write("classes", root))
    plain = values(ds.ImageFolderDataset(folder, shuffle=False))
    requested = []

    def decrypt(path):
        requested.append(path)
        return bytes(byte ^ 1 for byte in Path(path).read_bytes())

    decrypted = values(ds.ImageFolderDataset(folder, shuffle=False, decrypt=decrypt))
    assert len(requested) == len(plain)
    assert [[byte ^ 1 for byte in row[0]] for row in decrypted] == [list(row[0]) for row in plain]
    with pytest.raises(RuntimeError, match="return value of the decrypt function is not of type bytes"):
        values(ds.ImageFolderDataset(folder, decrypt=lambda path: path))
    with pytest.raises(TypeError, match="Argument decrypt is not a callable object, but got <class 'int'>"):
        ds.ImageFolderDataset(folder, decrypt=3)
