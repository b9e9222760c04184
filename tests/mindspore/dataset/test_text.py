"""Text transforms, with results MindSpore 2.10 gives."""

import numpy as np
import pytest

import sporax.mindspore.dataset as ds
from sporax.mindspore.dataset import text

from .conftest import column, rows

PIECES = text.Vocab.from_list(["wel", "##come", "to", "bei", "##jing", "北", "[UNK]", "[CLS]", "x"])
SENTENCE = "Welcome  to Beijing北京!Ünï [CLS] [UNUSED9]x don't 3.14 a\u200bb"
WORDS = text.Vocab.from_list(["a", "b", "c"], special_tokens=["<unk>"])


def results(transform, *inputs):
    actual = transform(*(np.asarray(value) for value in inputs))
    return [part.tolist() for part in actual] if isinstance(actual, tuple) else actual.tolist()


@pytest.mark.parametrize(
    ("transform", "inputs", "expected"),
    [
        (text.WhitespaceTokenizer(), [" Hello  World\tx\ny "], ["Hello", "World", "x", "y"]),
        (text.WhitespaceTokenizer(with_offsets=True), [" Hello  World"], [["Hello", "World"], [1, 8], [6, 13]]),
        (text.WhitespaceTokenizer(), [""], [""]),
        (text.UnicodeCharTokenizer(), ["aé b"], ["a", "é", " ", "b"]),
        (text.UnicodeCharTokenizer(True), ["aé b"], [["a", "é", " ", "b"], [0, 1, 3, 4], [1, 3, 4, 5]]),
        (text.UnicodeScriptTokenizer(), ["Hello, 世界 abc中"], ["Hello", ",", "世界", "abc", "中"]),
        (text.UnicodeScriptTokenizer(True), ["Hello, 世界 ab"], ["Hello", ",", " ", "世界", " ", "ab"]),
        (text.RegexTokenizer(" "), ["a b  c"], ["a", "b", "c"]),
        (text.RegexTokenizer("[ ,]", ","), ["a,b c"], ["a", ",", "b", "c"]),
        (
            text.BasicTokenizer(),
            [SENTENCE],
            ["Welcome", "to", "Beijing", "北", "京", "!", "Ünï", "[CLS]", "[", "UNUSED9", "]", "x", "don", "'", "t"]
            + ["3", ".", "14", "a", "b"],
        ),
        (text.BasicTokenizer(keep_whitespace=True), ["a  b,c"], ["a", "  ", "b", ",", "c"]),
        (text.BasicTokenizer(preserve_unused_token=False), ["[CLS]a"], ["[", "CLS", "]", "a"]),
        # With reserved tokens and lower_case MindSpore repeats what came before them; here they are kept, no more.
        (text.BasicTokenizer(True), ["Ünïcodé [CLS] [UNUSED9]"], ["unicode", "[CLS]", "[unused9]"]),
        (text.BasicTokenizer(with_offsets=True), ["é 北!"], [["é", "北", "!"], [0, 3, 6], [2, 6, 7]]),
        (text.BasicTokenizer(), [""], [""]),
        (text.BertTokenizer(PIECES), ["Welcome to 北!"], ["[UNK]", "to", "北", "[UNK]"]),
        (
            text.BertTokenizer(PIECES, lower_case=True, with_offsets=True),
            ["Welcome to Beijing [CLS]xyz"],
            [["wel", "##come", "to", "bei", "##jing", "[CLS]", "[UNK]"], [0, 3, 8, 11, 14, 19, 24]]
            + [[3, 7, 10, 14, 18, 24, 27]],
        ),
        (text.BertTokenizer(PIECES, unknown_token=""), ["Hi to"], ["Hi", "to"]),
        (text.CaseFold(), ["HELLO É ß"], "hello é ss"),
        (text.CaseFold(), [["A", "B"]], ["a", "b"]),
        (text.FilterWikipediaXML(), ["Hello World 20"], "hello world two zero"),
        (text.FilterWikipediaXML(), ['<text x="y">Some [[link|Text]] here</text>'], ""),
        (text.FilterWikipediaXML(), ["<a>\n b <c> d"], "b d"),
        (text.FilterWikipediaXML(), ["a &amp; b &lt;b&gt; &quot;q&quot; x"], "a b b q x"),
        (text.FilterWikipediaXML(), ["&amp;lt; & b; c"], "lt c"),
        (
            text.FilterWikipediaXML(),
            ["[[Image:foo.jpg|thumb]] AB-CD_ef é İ 3.1"],
            "image foo jpg thumb ab cd ef three one",
        ),
        (text.FilterWikipediaXML(), ["see #redirect later"], ""),
        (text.NormalizeUTF8(), ["ﬁ①"], "fi1"),
        (text.NormalizeUTF8(text.NormalizeForm.NFD), ["é"], "e\u0301"),
        (text.RegexReplace("[aeiou]", "_"), ["hello world"], "h_ll_ w_rld"),
        (text.RegexReplace("[aeiou]", "_", replace_all=False), ["hello world"], "h_llo world"),
        (text.ToNumber(np.int32), [["1", "23"]], [1, 23]),
        (text.ToNumber(np.float32), ["1.5"], 1.5),
        (text.Truncate(2), [["a", "b", "c"]], ["a", "b"]),
        (text.TruncateSequencePair(4), [[1, 2, 3], [4, 5, 6]], [[1, 2], [4, 5]]),
        (text.Ngram(2), [["a", "b", "c"]], ["a b", "b c"]),
        (text.Ngram([1, 2], ("_", 1), ("_", 1), "-"), [["a", "b"]], ["a", "b", "_-a", "a-b", "b-_"]),
        (text.SlidingWindow(2), [[1, 2, 3, 4]], [[1, 2], [2, 3], [3, 4]]),
        (text.SlidingWindow(5), [[1, 2, 3, 4]], []),
        (text.AddToken("T"), [["a", "b"]], ["T", "a", "b"]),
        (text.AddToken("T", False), [["a", "b"]], ["a", "b", "T"]),
        (text.PythonTokenizer(lambda s: s.split("l")), ["hello"], ["he", "", "o"]),
        (text.PythonTokenizer(lambda s: s.split()), [np.array(b"a b")], ["a", "b"]),
        (text.Lookup(WORDS), [["a", "c"]], [1, 3]),
        (text.Lookup(WORDS, "<unk>"), ["zz"], 0),
    ],
)
def test_a_transform_gives_the_documented_result(transform, inputs, expected):
    assert results(transform, *inputs) == expected


def test_words_are_split_into_pieces_of_the_vocabulary():
    pieces = text.WordpieceTokenizer(text.Vocab.from_list(["he", "##llo", "[UNK]"]))
    assert results(pieces, ["hello", "zzz"]) == ["he", "##llo", "[UNK]"]


def test_pieces_of_words_come_with_bytes_from_the_word_or_from_where_it_is():
    pieces = text.WordpieceTokenizer(text.Vocab.from_list(["he", "##llo", "é", "##cole", "[UNK]"]), with_offsets=True)
    names, starts, stops = pieces(np.array(["hello", "école", "xyz"]))
    assert (names.tolist(), starts.dtype) == (["he", "##llo", "é", "##cole", "[UNK]"], np.uint32)
    assert (starts.tolist(), stops.tolist()) == ([0, 2, 0, 2, 0], [2, 5, 2, 6, 3])
    short = text.WordpieceTokenizer(text.Vocab.from_list(["my"]), max_bytes_per_token=4, with_offsets=True)
    assert [part.tolist() for part in short(np.array(["favorite", "my"]))] == [["[UNK]", "my"], [0, 0], [5, 2]]
    _, starts, stops = pieces(np.array(["hello", "école"]), np.uint32([3, 9]), np.uint32([8, 15]))
    assert (starts.tolist(), stops.tolist()) == ([3, 5, 9, 11], [5, 8, 11, 15])


def test_vocabularies_number_words_by_list_file_or_frequency(tmp_path):
    assert WORDS.vocab() == {"<unk>": 0, "a": 1, "b": 2, "c": 3}
    last = text.Vocab.from_list(["a"], special_tokens=["<unk>"], special_first=False)
    assert last.vocab() == {"a": 0, "<unk>": 1}
    data = ds.NumpySlicesDataset(["b", "a", "b", "c"], ["w"], shuffle=False)
    assert text.Vocab.from_dataset(data, "w").vocab() == {"b": 0, "a": 1, "c": 2}
    assert text.Vocab.from_dataset(data, "w", freq_range=(2, None)).vocab() == {"b": 0}
    assert text.Vocab.from_dataset(data, top_k=1, special_tokens=["<p>"]).vocab() == {"<p>": 0, "b": 1}
    assert (WORDS.tokens_to_ids("a"), WORDS.tokens_to_ids(["a", "zz"])) == (1, [1, -1])
    assert (WORDS.ids_to_tokens(1), WORDS.ids_to_tokens([0, 2]), WORDS.ids_to_tokens(99)) == ("a", ["<unk>", "b"], "")
    (tmp_path / "v.txt").write_text("x,1\ny,2\nz,3\n")
    assert text.Vocab.from_file(str(tmp_path / "v.txt"), ",", vocab_size=2).vocab() == {"x": 0, "y": 1}


def test_in_a_pipeline():
    data = ds.NumpySlicesDataset(["a b", "c a b"], "text", shuffle=False)
    data = data.map([text.WhitespaceTokenizer(), text.Lookup(WORDS)], "text").padded_batch(2, pad_info={})
    assert column(data) == [[[1, 2, 0], [3, 1, 2]]]
    assert data.output_types() == [np.int32]
    offsets = ds.NumpySlicesDataset(["a b"], "text").map(text.WhitespaceTokenizer(True), "text", ["t", "s", "e"])
    assert rows(offsets) == [[["a", "b"], [0, 2], [1, 3]]]


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (ValueError, lambda: text.Vocab.from_list(["a", "a"])),
        (ValueError, lambda: text.Vocab.from_dict({"x": -3})),
        (ValueError, lambda: text.Vocab.from_dict({"x": 1, "y": 1})),
        (ValueError, lambda: text.Vocab.from_file("missing.txt")),
        (RuntimeError, lambda: text.Vocab.from_dataset(ds.NumpySlicesDataset([1], "w"))),
        (RuntimeError, lambda: text.Lookup(WORDS)(np.array("zz"))),
        (RuntimeError, lambda: text.Lookup(WORDS)(np.array(1))),
        (ValueError, lambda: text.Lookup(WORDS, "qq")),
        (TypeError, lambda: text.Lookup({"a": 1})),
        (RuntimeError, lambda: text.ToNumber(np.int8)(np.array("300"))),
        (RuntimeError, lambda: text.ToNumber(np.int32)(np.array("x"))),
        (RuntimeError, lambda: text.WhitespaceTokenizer()(np.array(["a b", "c"]))),
        (ValueError, lambda: text.RegexReplace("(", "")),
        (AttributeError, lambda: text.SentencePieceTokenizer),
        (AttributeError, lambda: text.Nothing),
    ],
)
def test_arguments_that_do_not_fit_are_refused(error, make):
    with pytest.raises(error):
        make()


def test_word_vectors(tmp_path):
    files = {"v.txt": "3 2\nok 1 2\nhi 4 5\nok 7 8\n", "glove.6B.2d.txt": "ok 1 2\nhi 4 5\n", "f.vec": "1 2\nok 1 2\n"}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    table = text.Vectors.from_file(str(tmp_path / "v.txt"))
    assert results(text.ToVectors(table), ["ok", "hi", "OK"]) == [[1, 2], [4, 5], [0, 0]]
    assert results(text.ToVectors(table, [-1, -1], True), ["OK", "zz"]) == [[1, 2], [-1, -1]]
    assert text.ToVectors(table)("hi").shape == (2,)
    few = text.Vectors.from_file(str(tmp_path / "v.txt"), 1)
    assert results(text.ToVectors(few), ["ok", "hi"]) == [[1, 2], [0, 0]]
    assert results(text.ToVectors(text.GloVe.from_file(str(tmp_path / "glove.6B.2d.txt"))), "hi") == [4, 5]
    assert results(text.ToVectors(text.FastText.from_file(str(tmp_path / "f.vec"))), "ok") == [1, 2]


def test_vectors_of_runs_of_characters(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("1gram-o 1 2 3\n2gram-ok 7 8 9\n2gram-#BEGIN#o 1 1 1\n")
    lookup = text.ToVectors(text.CharNGram.from_file(str(path)))
    assert results(lookup, ["ok", "zz"]) == [[4, 4.5, 5], [0, 0, 0]]


@pytest.mark.parametrize("content", ["a 1 2\nb 3\n", "a 1 x\n", ""])
def test_damaged_vectors(tmp_path, content):
    path = tmp_path / "v.txt"
    path.write_text(content)
    with pytest.raises(RuntimeError, match="v.txt"):
        text.Vectors.from_file(str(path))


def test_vectors_that_do_not_fit(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("a 1 2\n")
    for wrong in (text.GloVe, text.FastText):
        with pytest.raises(RuntimeError, match="can not find file"):
            wrong.from_file(str(path))
    with pytest.raises(ValueError, match="unk_init: 1 and vectors: 2"):
        text.ToVectors(text.Vectors.from_file(str(path)), [1.0])
    with pytest.raises(TypeError):
        text.ToVectors({"a": [1, 2]})


def test_bytes_and_str():
    assert text.to_bytes(np.array(["a", "é"])).tolist() == [b"a", "é".encode()]
    assert text.to_str(np.array([b"a", b"xx"])).tolist() == ["a", "xx"]
    with pytest.raises(TypeError):
        text.to_bytes(np.zeros(2))


def test_a_limit_takes_the_first_rows_and_the_default_shuffle_their_order(tmp_path):
    for name in "lm":
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{name}{number}" for number in range(40)))

    def rows(*names, **options):
        files = [str(tmp_path / f"{name}.txt") for name in names]
        data = ds.TextFileDataset(files, num_samples=3, num_parallel_workers=1, **options)
        return [str(row["text"]) for row in data.create_dict_iterator(output_numpy=True, num_epochs=1)]

    orders, of_two, of_a_share = [], set(), set()
    for seed in range(8):
        ds.config.set_seed(seed)
        orders.append(tuple(rows("l")))
        of_two.add("".join(sorted(rows("l", "m"))))
        of_a_share |= set(rows("l", num_shards=4, shard_id=1))
    assert {word for order in orders for word in order} == {"l0", "l1", "l2"}
    assert len(set(orders)) > 1
    assert of_two == {"l0l1l2", "m0m1m2"}  # files are shuffled first
    assert of_a_share == {"l10", "l11", "l12"}


def test_words_of_several_lines():
    lines = np.array([["a", "b"], ["c", "d"]])
    assert text.AddToken("<s>")(lines).tolist() == [["<s>", "a", "b"], ["<s>", "c", "d"]]
    assert text.AddToken("<s>", begin=False)(lines).tolist() == [["a", "b", "<s>"], ["c", "d", "<s>"]]
    assert text.Truncate(1)(lines.tolist()).tolist() == [["a"], ["c"]]
