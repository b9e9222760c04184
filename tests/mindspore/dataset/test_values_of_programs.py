"""Values and orders that published programs rely on: labels, texts, files, strings. Expected is what MindSpore 2.10 gives."""

import numpy as np
import pytest
import source_files

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import text, transforms

from .conftest import column


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (2, [0, 0, 1, 0]),
        ([1, 2], [[0, 1, 0, 0], [0, 0, 1, 0]]),
        ([[1], [2]], [[0, 1, 0, 0], [0, 0, 1, 0]]),
        ([1], [0, 1, 0, 0]),  # dimensions of size 1 are left out
        ([[3]], [0, 0, 0, 1]),
    ],
)
def test_one_hot_of_arrays(labels, expected):
    result = transforms.OneHot(4)(np.array(labels, np.uint8))
    assert result.tolist() == expected and result.dtype == np.uint8
    rows = ds.NumpySlicesDataset(np.array([labels, labels]), "a", shuffle=False).map(transforms.OneHot(4), "a")
    assert column(rows) == [expected, expected]


def test_one_hot_of_nothing_is_refused():
    with pytest.raises(RuntimeError, match=r"OneHot: the input has no data, its shape is \(0,\)"):
        transforms.OneHot(4)(np.array([], np.int32))


WORDS = text.Vocab.from_list(["a", "b", "c"], special_tokens=["<unk>"])


@pytest.mark.parametrize(
    ("tokens", "ids"),
    [("a", 1), (np.array("a"), 1), (np.str_("a"), 1), (["a", "zz"], [1, -1]), (np.array(["a", "b"]), [1, 2]), ([], [])],
)
def test_words_of_arrays_have_numbers(tokens, ids):
    assert WORDS.tokens_to_ids(tokens) == ids


@pytest.mark.parametrize(
    ("ids", "tokens"), [(1, "a"), (np.array(1), "a"), ([1, 2], ["a", "b"]), (np.array([1, 2]), ["a", "b"]), (99, "")]
)
def test_numbers_of_arrays_have_words(ids, tokens):
    assert WORDS.ids_to_tokens(ids) == tokens


@pytest.mark.parametrize("tokens", [5, [["a"]], np.array([["a", "b"]]), ("a",)])
def test_what_is_not_a_word_is_refused(tokens):
    with pytest.raises(TypeError, match="For 'tokens_to_ids'"):
        WORDS.tokens_to_ids(tokens)


@pytest.mark.parametrize(
    ("error", "ids"), [(ValueError, -1), (TypeError, [[1]]), (TypeError, 1.5), (TypeError, np.array(1.0))]
)
def test_what_is_not_a_number_of_a_word_is_refused(error, ids):
    with pytest.raises(error, match="For 'ids_to_tokens'"):
        WORDS.ids_to_tokens(ids)


MIXED = "Hello 你好, 世界 ２0 カタ한글 αβ ЖЗ x１"


@pytest.mark.parametrize(
    ("pattern", "keep", "expected"),
    [
        (r"\p{Han}", r"\p{Han}", ["Hello ", "你", "好", ", ", "世", "界", " ２0 カタ한글 αβ ЖЗ x１"]),
        (r"\p{Han}+", r"\p{Han}+", ["Hello ", "你好", ", ", "世界", " ２0 カタ한글 αβ ЖЗ x１"]),
        (r"[\p{Han}]", r"[\p{Han}]", ["Hello ", "你", "好", ", ", "世", "界", " ２0 カタ한글 αβ ЖЗ x１"]),
        (r"\P{Han}+", "", ["你好", "世界"]),
        (r"[^\p{Han}]+", "", ["你好", "世界"]),
        (r"\p{Script=Han}", ".", ["Hello ", "你", "好", ", ", "世", "界", " ２0 カタ한글 αβ ЖЗ x１"]),
        (r"\p{IsHan}+", "", ["Hello ", ", ", " ２0 カタ한글 αβ ЖЗ x１"]),
        (r"\p{Lu}", r"\p{Lu}", ["H", "ello 你好, 世界 ２0 カタ한글 αβ ", "Ж", "З", " x１"]),
        (r"\p{Katakana}+", r"\p{Katakana}+", ["Hello 你好, 世界 ２0 ", "カタ", "한글 αβ ЖЗ x１"]),
        (r"\p{Cyrillic}+", ".+", ["Hello 你好, 世界 ２0 カタ한글 αβ ", "ЖЗ", " x１"]),
        (r"\p{Hangul}+", ".+", ["Hello 你好, 世界 ２0 カタ", "한글", " αβ ЖЗ x１"]),
        (r"\p{Greek}", ".+", ["Hello 你好, 世界 ２0 カタ한글 ", "α", "β", " ЖЗ x１"]),
        (r"\p{N}", ".+", ["Hello 你好, 世界 ", "２", "0", " カタ한글 αβ ЖЗ x", "１"]),
        (r"\p{P}", ".+", ["Hello 你好", ",", " 世界 ２0 カタ한글 αβ ЖЗ x１"]),
    ],
)
def test_texts_are_split_by_unicode_properties(pattern, keep, expected):
    assert text.RegexTokenizer(pattern, keep)(MIXED).tolist() == expected


def test_texts_are_replaced_by_unicode_properties():
    assert str(text.RegexReplace(r"\p{Han}", "#")(MIXED)) == "Hello ##, ## ２0 カタ한글 αβ ЖЗ x１"


def test_a_property_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match=r"scripts Han, Arabic, .* but got \\p\{Klingon\}"):
        text.RegexTokenizer(r"\p{Klingon}")


@pytest.fixture
def files(tmp_path):
    for name, count in (("a", 3), ("b", 2), ("c", 4)):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{name}{number}" for number in range(count)))
    return [str(tmp_path / f"{name}.txt") for name in "abc"]


def lines(files, **options):
    return " ".join(column(ds.TextFileDataset(files, shuffle=False, **options)))


def test_files_are_read_by_workers_in_turn(files):
    assert lines(files, num_parallel_workers=1) == "a0 a1 a2 b0 b1 c0 c1 c2 c3"
    assert lines(files, num_parallel_workers=2) == "a0 b0 a1 b1 a2 c0 c1 c2 c3"
    ds.config.set_num_parallel_workers(2)
    assert lines(files) == "a0 b0 a1 b1 a2 c0 c1 c2 c3"
    assert lines(files, num_samples=4) == "a0 b0 a1 b1"
    assert lines(files[:1]) == "a0 a1 a2"
    shards = [lines(files, num_shards=2, shard_id=rank) for rank in range(2)]
    assert shards == ["a0 b0 a1 b1 a2", "c0 a0 c1 c2 c3"]


def test_types_of_strings_have_no_length():
    words = ds.NumpySlicesDataset(["a", "bcd"], ["s"], shuffle=False)
    assert words.output_types() == [np.dtype("U")] == words.batch(2).output_types()
    assert [row[0].dtype.str for row in words.create_tuple_iterator(num_epochs=1)] == ["<U1", "<U3"]
    raw = ds.GeneratorDataset([np.array(b"abc")], "s", shuffle=False)
    assert raw.output_types() == [np.dtype("S")]


@pytest.mark.parametrize("task", ["Detection", "Segmentation"])
def test_names_of_images_are_given_once_they_are_renamed(tmp_path, task):
    folder = str(source_files.write("voc", tmp_path))
    data = ds.VOCDataset(folder, task, shuffle=False, extra_metadata=True)
    plain = ds.VOCDataset(folder, task, shuffle=False).get_col_names()
    assert data.get_col_names() == [*plain, "_meta-filename"]
    assert list(next(iter(data.create_dict_iterator(num_epochs=1)))) == plain
    assert list(next(iter(data.project(["image", "_meta-filename"]).create_dict_iterator(num_epochs=1)))) == ["image"]
    named = data.rename("_meta-filename", "file")
    names = [str(row["file"]) for row in named.create_dict_iterator(num_epochs=1)]
    assert len(set(names)) == data.get_dataset_size() and not any(name.endswith(".jpg") for name in names)
    mapped = data.map(lambda name: name, "_meta-filename", "file")
    assert [str(row["file"]) for row in mapped.create_dict_iterator(num_epochs=1)] == names


def test_names_of_coco_images_have_no_ending(tmp_path):
    folder = source_files.write("coco", tmp_path)
    annotations = folder / "instances.json"
    images = next(path for path in folder.rglob("*") if path.suffix in (".jpg", ".png")).parent
    data = ds.CocoDataset(str(images), str(annotations), shuffle=False, extra_metadata=True)
    names = [str(row["file"]) for row in data.rename("_meta-filename", "file").create_dict_iterator(num_epochs=1)]
    assert set(names) <= {path.stem for path in images.iterdir()} and names
