"""Words that the glossary asks to leave out: their number never grows."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("count_words", ROOT / "tools" / "count_words.py")
count_words = importlib.util.module_from_spec(_spec)
sys.modules["count_words"] = count_words  # dataclasses look their module up
_spec.loader.exec_module(count_words)

REMAINING: dict[tuple[str, str], int] = {
    ("cut", "names"): 2,
    ("given", "names"): 1,
    ("kept", "names"): 1,
    ("places", "names"): 1,
    ("whole", "names"): 2,
}
"""Occurrences that stay, by word and place: MindSpore's names (CutOut, CutMixBatch, Places365Dataset), and keys of the JSON that
`sporax plan --json` writes (given, kept_as, whole_parameter_bytes, whole_state_bytes)."""


def test_no_word_that_is_not_ours_is_added() -> None:
    found = list(count_words.found())
    counts = Counter((one.word, one.where) for one in found)
    grown = {key: count for key, count in counts.items() if count > REMAINING.get(key, 0)}
    assert not grown, (
        f"{grown} against {REMAINING}; `tools/count_words.py WORD` lists them, docs/glossary.md says what to write"
    )
    assert counts == REMAINING, "fewer than before: lower the numbers in REMAINING"


def test_what_is_counted(tmp_path, monkeypatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "glossary.md").write_text(
        "We cut costs.\n| cut, cuts | text, names | sharded |\n| kept | names | stored |\n"
    )
    (tmp_path / "src" / "saw.py").write_text(
        '"""It cuts, and `cut` is code; rows are kept."""\nkept_rows = 1  # cut\nf(kept=2)\n\ndef cutRows(kept):\n'
        '    print("a CutOut is cut")\n    return "cut"\n'
    )
    monkeypatch.setattr(count_words, "ROOT", tmp_path)
    counts = Counter((one.word, one.where, one.position.rpartition("/")[2]) for one in count_words.found())
    assert counts == {
        ("cut", "text", "saw.py:1"): 1,
        ("kept", "names", "saw.py:2"): 1,
        ("cut", "text", "saw.py:2"): 1,
        ("cut", "names", "saw.py:5"): 1,
        ("kept", "names", "saw.py:5"): 1,
        ("cut", "text", "saw.py:6"): 1,
        ("cut", "text", "glossary.md:1"): 1,
    }
