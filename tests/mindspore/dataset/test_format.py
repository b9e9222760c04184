"""The constructor builder of data sets: signatures, errors and documentation follow from one row."""

import inspect
import pickle
import typing

import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore._declared import REQUIRED, Argument
from sporax.mindspore.dataset import _dataset, vision
from sporax.mindspore.dataset._sources import format as arg
from sporax.mindspore.dataset._sources.format import FileDataset, Format, FormatDataset, SpecifiedDataset

CLASSES = [value for name in ds.__all__ if isinstance(value := getattr(ds, name), type)]
TABLE = [kind for kind in CLASSES if issubclass(kind, SpecifiedDataset) and hasattr(kind, "_format")]


def read_squares(where, count, negative):
    sign = -1 if negative else 1
    return {"square": sign * np.arange(count) ** 2, "left_out": np.zeros(count)}


class SquaresDataset(
    FormatDataset,
    format=Format(
        (
            Argument("count", int, "how many.", REQUIRED, lambda where, name, value: int(value)),
            arg.NUM_SAMPLES,
            arg.flag("negative", False, "the same below zero."),
            *(arg.WORKERS, arg.SHUFFLE),
        ),
        columns=("square",),
        read=read_squares,
    ),
):
    """Square numbers."""


def squares(*positional, **named):
    data = SquaresDataset(*positional, shuffle=False, **named)
    return [row["square"].item() for row in data.create_dict_iterator(num_epochs=1, output_numpy=True)]


def test_a_row_and_a_reader_make_a_data_set():
    assert squares(4) == [0, 1, 4, 9]
    assert squares(4, 2, True) == squares(count=4, num_samples=2, negative=True) == [0, -1]
    assert SquaresDataset(4).get_col_names() == ["square"]


def test_the_signature_is_the_one_of_the_row():
    shown = inspect.signature(SquaresDataset)
    assert list(shown.parameters) == ["count", "num_samples", "negative", "num_parallel_workers", "shuffle"]
    assert shown.parameters["count"].default is inspect.Parameter.empty
    assert shown.parameters["negative"].annotation is bool
    assert typing.get_type_hints(SquaresDataset.__init__)["num_samples"] == int | None


def test_the_documentation_names_every_argument():
    text = inspect.getdoc(SquaresDataset)
    assert text.startswith("Square numbers.\n\nArgs:\n    count: how many.\n    num_samples: ")
    assert "SporaxRuntimeError: (when read)" in text


@pytest.mark.parametrize(
    ("positional", "named", "text"),
    [
        ((), {}, "missing a required argument: 'count'"),
        ((1,), {"color": 3}, "unexpected keyword argument 'color'"),
        ((1,), {"count": 1}, "multiple values for argument 'count'"),
        ((1, 2, False, 1, True, 6), {}, "too many positional arguments"),
        ((1, 2, "no"), {}, "negative with value no is not of type"),
    ],
)
def test_arguments_that_do_not_fit_are_named(positional, named, text):
    with pytest.raises(TypeError, match=f"(?s)(?=.*For 'SquaresDataset').*{text}"):
        SquaresDataset(*positional, **named)


def test_files_without_rows_are_an_error_when_they_are_read():
    empty = SquaresDataset(0)
    with pytest.raises(RuntimeError, match="Invalid data, no valid data matching the dataset API SquaresDataset"):
        len(empty)


def test_values_are_checked_against_one_another(tmp_path):
    with pytest.raises(ValueError, match="DIV2KNode: mild downgrade requires scale equal to 4."):
        ds.DIV2KDataset(str(tmp_path), "train", "mild", 2)
    with pytest.raises(
        ValueError, match=r"usage is not within the valid set of \['train', 'train_extra', 'val', 'all'\]"
    ):
        ds.CityscapesDataset(str(tmp_path), "test", "coarse")
    with pytest.raises(ValueError, match=r"usage is not within the valid set of \['all'\]"):
        ds.TedliumDataset(str(tmp_path), "release3", "train")
    (tmp_path / "a.csv").write_text("1,2\n")
    with pytest.raises(ValueError, match="'column_defaults' must have one value per column"):
        ds.CSVDataset(str(tmp_path / "a.csv"), ",", [1], ["a", "b"])


@pytest.mark.parametrize("base", [FormatDataset, FileDataset])
def test_a_base_without_a_row_has_no_constructor(base):
    class Plain(base):
        pass

    with pytest.raises(TypeError, match="For 'Plain', there is no constructor"):
        Plain()


def test_nearly_all_sources_are_rows_of_the_table():
    by_hand = {"GeneratorDataset", "NumpySlicesDataset", "PaddedDataset", "TFRecordDataset", "Dataset"}
    sources = {kind.__name__ for kind in CLASSES if issubclass(kind, ds.Dataset)}
    others = {"MappableDataset", "SourceDataset", *_dataset.steps}
    assert sources - others - {kind.__name__ for kind in TABLE} == by_hand
    assert len(TABLE) > 60


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
def test_every_row_fits_its_reader(kind):
    row = kind._format
    names = [argument.name for argument in row.arguments]
    assert len(set(names)) == len(names)
    assert {"num_samples", "num_parallel_workers", "shuffle", "num_shards", "shard_id"} <= set(names)
    values = ["where", *(argument.name for argument in row.arguments if argument.check is not None)]
    if row.prepare is None:
        inspect.signature(row.read).bind(*values)
        assert not callable(row.columns) or inspect.signature(row.columns).bind(*values)
    else:
        inspect.signature(row.prepare).bind(*values)


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
def test_classes_are_found_by_their_names(kind):
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert kind.__init__.__qualname__ == f"{kind.__name__}.__init__"
    assert kind.__init__.__module__ == kind.__module__
    assert kind.__doc__.count("Args:") == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda data: ds.FakeImageDataset(4, num_shards=2), RuntimeError, "currently requires shard_id as well"),
        (lambda data: ds.FakeImageDataset(4, shard_id=0), RuntimeError, "shard_id is specified but num_shards is not"),
        (
            lambda data: ds.FakeImageDataset(4, sampler=ds.RandomSampler(), shuffle=True),
            RuntimeError,
            "sampler and shuffle cannot be specified at the same time",
        ),
        (
            lambda data: ds.FakeImageDataset(4, sampler=[0], num_shards=2, shard_id=0),
            RuntimeError,
            "sampler and sharding cannot be specified at the same time",
        ),
        (lambda data: ds.FakeImageDataset(4, num_parallel_workers=0), ValueError, "num_parallel_workers exceeds the"),
        (
            lambda data: ds.FakeImageDataset(4, num_samples=-1),
            ValueError,
            "num_samples exceeds the boundary between 0 and",
        ),
        (lambda data: ds.ImageFolderDataset("none"), ValueError, "is not a directory or permission denied!"),
        (
            lambda data: list(ds.GeneratorDataset(lambda: iter([(1, 2)]), ["a"])),
            RuntimeError,
            "specified in column_names .* is:1 and number of returned NumPy array is:2",
        ),
        (
            lambda data: vision.AutoContrast(50),
            ValueError,
            r"Input cutoff is not within the required interval of \[0, 50\)\.",
        ),
        (lambda data: vision.Rescale(2**24 + 1, 0), ValueError, r"interval of \[-16777216, 16777216\]\."),
        (
            lambda data: vision.Resize(4, interpolation="x"),
            TypeError,
            "Argument interpolation with value x is not of type .<enum 'Inter'>., but got <class 'str'>",
        ),
        (
            lambda data: vision.Rescale("1", 0),
            TypeError,
            r"Argument rescale with value 1 is not of type \[<class 'numbers.Number'>\], but got <class 'str'>",
        ),
    ],
)
def test_errors_have_the_words_that_scripts_look_for(call, error, words):
    with pytest.raises(error, match=words):
        call([1, 2, 3])
