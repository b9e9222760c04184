"""Pipelines as JSON: what is written is MindSpore's form, and what is read gives the same rows."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import source_cases
import source_files
import vision_cases

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import text, transforms, vision
from sporax.mindspore.dataset._json import decoded_operation, encoded_operation

from .conftest import rows
from .test_augmentation import RANDOM, image_for

NAMES = {"np": np, **{name: getattr(vision, name) for name in vision.__all__}}
RECORDED = json.loads(Path(__file__).with_name("golden_sources.json").read_text(encoding="utf-8"))
SOURCES = [
    (name, files, arguments)
    for name, cases in source_cases.CASES.items()
    for files, arguments in cases
    if name not in ("GeneratorDataset", "NumpySlicesDataset", "PaddedDataset")
    and "error" not in RECORDED[f"{name}({arguments})"]
]
OPERATIONS = {
    "transforms": [
        lambda: transforms.TypeCast("int32"),
        lambda: transforms.TypeCast(np.float16),
        lambda: transforms.Fill(3),
        lambda: transforms.Mask(transforms.Relational.GT, 2),
        lambda: transforms.PadEnd([9], 1),
        lambda: transforms.Slice(slice(0, 2)),
        lambda: transforms.Slice([1, 0]),
        lambda: transforms.Slice(...),
        lambda: transforms.Concatenate(0, np.array([7, 8])),
        lambda: transforms.Duplicate(),
        lambda: transforms.Unique(),
        lambda: transforms.OneHot(9, 0.1),
        lambda: transforms.Compose([transforms.Fill(2), transforms.TypeCast("float32")]),
        lambda: transforms.RandomApply([transforms.Fill(2)], 0.5),
        lambda: transforms.RandomChoice([transforms.Fill(2), transforms.Fill(3)]),
    ],
    "text": [
        lambda: text.WhitespaceTokenizer(),
        lambda: text.UnicodeCharTokenizer(with_offsets=True),
        lambda: text.NormalizeUTF8(text.NormalizeForm.NFC),
        lambda: text.RegexReplace("b", "x"),
        lambda: text.BasicTokenizer(lower_case=True, normalization_form=text.NormalizeForm.NFD),
        lambda: text.BertTokenizer(text.Vocab.from_list(["a", "b", "##c", "[UNK]"])),
    ],
}


def through_json(dataset):
    return ds.deserialize(json.loads(json.dumps(ds.serialize(dataset))))


def assert_returns(dataset):
    """The pipeline read from JSON, checked to be the same."""
    ds.config.set_seed(5)
    back = through_json(dataset)
    assert ds.compare(dataset, back)
    assert rows(back, 2) == rows(dataset, 2)
    return back


def same(first, second):
    one, two = ([value] if not isinstance(value, tuple) else list(value) for value in (first, second))
    assert len(one) == len(two) and all(
        np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one, two, strict=True)
    )


def assert_operation_returns(operation, value):
    document = json.loads(json.dumps(encoded_operation(operation)))
    back = decoded_operation(document)
    assert type(back) is type(operation) and encoded_operation(back) == document
    same(operation(value), back(value))


def images(count=6, **options):
    return ds.FakeImageDataset(count, (6, 5, 3), 2, **options)


@pytest.mark.parametrize(("case", "kind"), vision_cases.CASES, ids=str)
def test_transforms_of_images_return(case, kind):
    assert_operation_returns(eval(case, NAMES), vision_cases.INPUTS[kind])


@pytest.mark.parametrize("make", RANDOM)
def test_random_transforms_return(make):
    ds.config.set_seed(3)
    assert_operation_returns(make(), image_for(make()))


@pytest.mark.parametrize("make", OPERATIONS["transforms"])
def test_transforms_of_any_data_return(make):
    assert_operation_returns(make(), np.array([1, 2, 3]))


@pytest.mark.parametrize("make", OPERATIONS["text"])
def test_transforms_of_text_return(make):
    assert_operation_returns(make(), np.array("a b abc"))


def test_a_vocabulary_returns():
    lookup = text.Lookup(text.Vocab.from_list(["a", "b"], ["<unk>"]), "<unk>")
    assert_operation_returns(lookup, np.array(["b", "z"]))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("sources")


@pytest.mark.parametrize(("name", "files", "arguments"), SOURCES, ids=[f"{name}-{args}" for name, _, args in SOURCES])
def test_sources_return(root, name, files, arguments):
    folder = source_files.write(files, root)
    few = "" if "num_samples" in arguments else ", num_samples=3"
    dataset = eval(f"make({arguments.format(d=folder)}{few})", {"make": getattr(ds, name)})
    assert rows(dataset)
    assert_returns(dataset)


SAMPLERS = {
    "sequential": lambda: ds.SequentialSampler(1, 3),
    "random": lambda: ds.RandomSampler(True, 4),
    "distributed": lambda: ds.DistributedSampler(2, 1, num_samples=2, offset=1),
    "subset": lambda: ds.SubsetSampler([3, 1]),
    "random subset": lambda: ds.SubsetRandomSampler([3, 1, 0]),
    "weighted": lambda: ds.WeightedRandomSampler([1.0, 0.0, 2.0], 3),
    "by class": lambda: ds.PKSampler(1, shuffle=True),
    "row numbers": lambda: [4, 2],
    "iterable": lambda: ds.IterSampler([4, 2]),
}


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
def test_samplers_return(make):
    assert_returns(images(sampler=make()))


def test_stacked_samplers_return():
    sampler = ds.SequentialSampler(0, 2)
    sampler.add_child(ds.RandomSampler())
    assert_returns(images(sampler=sampler))
    changed = images()
    changed.use_sampler(ds.SubsetSampler([1, 0]))
    assert_returns(changed)


def test_a_sampler_of_the_programs_own_is_refused():
    class Own(ds.Sampler):
        def __iter__(self):
            yield 0

    with pytest.raises(TypeError, match="For 'serialize', the sampler Own"):
        ds.serialize(images(sampler=Own()))


def numbers(path):
    path.write_text("".join(f"{'a' * (i % 4 + 1)}\n" for i in range(7)))
    return ds.TextFileDataset(str(path), shuffle=False)


STEPS = {
    "map": lambda d: d.map(text.UnicodeCharTokenizer(), "text", ["letters"], num_parallel_workers=2),
    "map of several": lambda d: d.map(transforms.Duplicate(), ["text"], ["one", "two"]),
    "batch": lambda d: d.batch(2, True),
    "padded batch": lambda d: d.map(text.UnicodeCharTokenizer()).padded_batch(3, pad_info={"text": ([5], "z")}),
    "padded batch of all": lambda d: d.map(text.UnicodeCharTokenizer()).padded_batch(3, pad_info={}),
    "bucket": lambda d: d.map(text.UnicodeCharTokenizer()).bucket_batch_by_length(
        ["text"], [2, 4], [1, 2, 1], pad_info={"text": ([None], "z")}
    ),
    "shuffle": lambda d: d.shuffle(4),
    "repeat": lambda d: d.repeat(2),
    "skip": lambda d: d.skip(2),
    "take": lambda d: d.take(2),
    "take all": lambda d: d.take(),
    "split": lambda d: d.split([4, 3])[1],
    "split in order": lambda d: d.split([4, 3], randomize=False)[1],
    "rename": lambda d: d.rename("text", "line"),
    "project": lambda d: d.map(transforms.Duplicate(), "text", ["a", "b"]).project(["b"]),
    "zip": lambda d: d.zip(d.rename("text", "other").skip(1)),
    "concat": lambda d: d + d.take(2),
    "sync": lambda d: d.sync_wait("c", 9),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_steps_return(tmp_path, step):
    dataset = step(numbers(tmp_path / "lines.txt"))
    assert type(assert_returns(dataset)) is type(dataset)


def test_parts_of_a_source_and_shared_concatenations_return():
    part = images().split([4, 2])[1]
    assert_returns(part)
    both = images(3, shuffle=False) + images(3, shuffle=False)
    both.use_sampler(ds.DistributedSampler(2, 1, shuffle=False))
    assert_returns(both)


def test_a_long_pipeline_returns_with_its_random_numbers(tmp_path):
    pipeline = (
        images(7)
        .map([vision.RandomCrop(4, padding=1), vision.RandomHorizontalFlip(0.3), vision.HWC2CHW()], "image")
        .map(transforms.OneHot(2), "label")
        .shuffle(3)
        .repeat(2)
        .batch(4)
    )
    file = tmp_path / "pipeline.json"
    document = ds.serialize(pipeline, str(file))
    assert document == json.loads(file.read_text()) == pipeline.to_json()
    ds.config.set_seed(2)
    assert rows(ds.deserialize(json_filepath=str(file))) == rows(pipeline)


def test_the_form_is_mindspores(tmp_path):
    """Recorded with MindSpore 2.10, of which the number of workers and `connector_queue_size` depend on settings."""
    ds.config.set_num_parallel_workers(2)
    pipeline = ds.ImageFolderDataset(str(tmp_path), num_samples=3, shuffle=True, extensions=[".png"])
    operations = [vision.Decode(), vision.Resize((3, 4)), vision.HWC2CHW(), transforms.TypeCast("float32")]
    document = ds.serialize(pipeline.map(operations, "image").batch(2, True).rename("image", "x"))
    assert document["op_type"] == "Rename"
    assert document["input_columns"] == ["image"] and document["output_columns"] == ["x"]
    (batch,) = document["children"]
    (mapped,) = batch.pop("children")
    assert batch == {
        "batch_size": 2,
        "connector_queue_size": 16,
        "drop_remainder": True,
        "input_columns": [],
        "num_parallel_workers": 2,
        "op_type": "Batch",
        "output_columns": [],
    }
    assert [operation["tensor_op_name"] for operation in mapped["operations"]] == [
        "Decode",
        "Resize",
        "HwcToChw",
        "TypeCast",
    ]
    assert mapped["operations"][1]["tensor_op_params"] == {"size": [3, 4], "interpolation": 0}
    assert mapped["operations"][2]["tensor_op_params"] is None
    (source,) = mapped["children"]
    assert source["op_type"] == "ImageFolderDataset" and source["dataset_dir"] == str(tmp_path)
    assert source["sampler"] == {
        "num_samples": 3,
        "replacement": True,
        "reshuffle_each_epoch": True,
        "sampler_name": "RandomSampler",
    }


def test_what_mindspore_wrote_is_read(tmp_path):
    """A document of MindSpore 2.10, but for the path."""
    (tmp_path / "a.txt").write_text("b c\nd\n")
    source = {
        "children": [],
        "connector_queue_size": 16,
        "dataset_files": [str(tmp_path / "a.txt")],
        "num_parallel_workers": 2,
        "num_samples": 0,
        "num_shards": 1,
        "op_type": "TextFileDataset",
        "shard_id": 0,
        "shuffle": 0,
    }
    sampler = {"num_samples": 0, "sampler_name": "SequentialSampler", "start_index": 0}
    both = {"op_type": "Concat", "children": [source, source], "children_sizes": [2, 2], "sampler": sampler}
    assert rows(ds.deserialize(both)) == [["b c"], ["d"]] * 2
    image = {
        "base_seed": 0,
        "children": [],
        "connector_queue_size": 16,
        "image_size": [4, 4, 3],
        "num_classes": 2,
        "num_images": 3,
        "num_parallel_workers": 2,
        "op_type": "FakeImageNode",
        "sampler": {"indices": [1, 2], "num_samples": 0, "sampler_name": "SubsetSampler"},
    }
    operations = [
        {"tensor_op_name": "Resize", "tensor_op_params": {"device_target": "CPU", "interpolation": 1, "size": [2]}},
        {
            "tensor_op_name": "Rotate",
            "tensor_op_params": {"center": [], "degree": 90.0, "expand": False, "resample": 1},
        },
        {"tensor_op_name": "HwcToChw", "tensor_op_params": None},
    ]
    mapped = {"op_type": "Map", "children": [image], "operations": operations, "input_columns": ["image"]}
    by_hand = ds.FakeImageDataset(3, (4, 4, 3), 2, sampler=[1, 2]).map(
        [vision.Resize(2, vision.Inter.NEAREST), vision.Rotate(90.0), vision.HWC2CHW()], "image"
    )
    assert rows(ds.deserialize(mapped | {"output_columns": ["image"]})) == rows(by_hand)


@pytest.mark.filterwarnings("ignore:For 'serialize'")
@pytest.mark.parametrize(
    ("make", "document"),
    [
        (lambda d: d.map(abs, "text"), {"python_module": "builtins", "tensor_op_name": "abs"}),
        (lambda d: d.filter(lambda t: True), {"predicate": "pyfunc", "input_columns": ["text"]}),
        (lambda d: d.batch(2, per_batch_map=lambda t, i: (t,)), {"per_batch_map": "pyfunc", "input_columns": ["text"]}),
        (lambda d: d.batch(lambda info: 2), {"batch_size": "pyfunc"}),
        (lambda d: ds.NumpySlicesDataset([1, 2]), {"op_type": "GeneratorDataset"}),
        (lambda d: ds.GeneratorDataset([1, 2], "x"), {"op_type": "GeneratorDataset"}),
    ],
)
def test_functions_and_objects_leave_only_their_place(tmp_path, make, document):
    written = ds.serialize(make(numbers(tmp_path / "lines.txt")))
    where = written["operations"][0] if "operations" in written else written
    assert {key: where[key] for key in document} == document
    with pytest.raises(RuntimeError, match="For 'deserialize'"):
        ds.deserialize(written)


def test_compare_sees_differences(tmp_path):
    lines = numbers(tmp_path / "lines.txt")
    assert ds.compare(lines.batch(2), lines.batch(2))
    assert not ds.compare(lines.batch(2), lines.batch(3))
    assert not ds.compare(lines.batch(2), lines.batch(2).take(1))
    assert not ds.compare(images().map(vision.Resize(2), "image"), images().map(vision.Resize(3), "image"))


def test_show_logs_the_pipeline(tmp_path, caplog):
    lines = numbers(tmp_path / "lines.txt").batch(2)
    with caplog.at_level(logging.INFO, "sporax.dataset"):
        ds.show(lines, None)
    assert json.loads(caplog.records[0].message) == ds.serialize(lines)


def test_wrong_arguments(tmp_path):
    with pytest.raises(TypeError, match="Argument dataset with value 3 .*\nFor 'serialize'"):
        ds.serialize(3)
    with pytest.raises(TypeError, match="For 'deserialize'"):
        ds.deserialize([1])
    assert ds.deserialize() is None
    with pytest.raises(OSError):
        ds.deserialize(json_filepath=str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(RuntimeError, match="no JSON"):
        ds.deserialize(json_filepath=str(tmp_path / "bad.json"))
    for document in ({"op_type": "Unheard", "children": []}, {"children": []}):
        with pytest.raises(RuntimeError, match="For 'deserialize'"):
            ds.deserialize(document)
    operation = {"tensor_op_name": "Resize", "tensor_op_params": {"size": 3, "colour": 1}}
    with pytest.raises(RuntimeError, match="no argument 'colour'"):
        decoded_operation(operation)
    with pytest.raises(RuntimeError, match="sampler 'Own'"):
        ds.deserialize(ds.serialize(images()) | {"sampler": {"sampler_name": "Own"}})
