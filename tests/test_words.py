"""Words that the glossary asks to leave out: their number never grows."""

import ast
import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

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


REPLACED = frozenset(
    "CheckpointIs GraceOver ImitatedRank MadeLater SignalCame StatusIs TimeIsUp Uncounted ViewIs Workforce _dealt _integer_slopes "
    "_meeting _plan_of_round any_lent are_here collector_rests concerns_me defects_told gives_up go_on_with_checkpoint "
    "hear_as_launcher in_force is_innocent living_objects made_later may_compile outliving refuse_hopeless".split()
)
"""Names that have been replaced by the field's."""
REPLACED_IN: dict[str, frozenset[str]] = {
    "planner": frozenset("Determined Ledger enough front is_near redecided relaxed squeezed useless".split()),
    "runtime": frozenset("Once Postponed Rehearsal happened first_values receipt".split()),
    "ps": frozenset("Behind Follow Held Lead Patience patience".split()),
    "k8s": frozenset(["_turns"]),
}
"""The same, of packages in which these words have no other sense."""
READ = ("src", "tests", "tools", "docs", "benchmarks", "examples")


def test_replaced_names_do_not_come_back() -> None:
    """Neither as names nor in comments, docstrings, messages and pages."""
    pattern = re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(sorted(REPLACED))})(?![A-Za-z0-9_])")
    files = [path for folder in READ for kind in ("py", "md") for path in (ROOT / folder).rglob(f"*.{kind}")]
    found = {
        f"{path.relative_to(ROOT)}:{number}": match[0]
        for path in files
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in pattern.finditer(line)
    }
    assert found == {}


@pytest.mark.parametrize("package", REPLACED_IN)
def test_replaced_names_are_not_bound_again(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{number}": name
        for path in (ROOT / "src" / "sporax" / package).rglob("*.py")
        for number, name in count_words._names(path, list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
        if name.removeprefix("_") in REPLACED_IN[package] or name in REPLACED_IN[package]
    }
    assert found == {}


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
        "We cut costs.\n| cut, cuts | text, names, tests | sharded |\n| kept | names | stored |\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_saw.py").write_text("def test_a_cut_is_kept():\n    cut = 1\n")
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
        ("cut", "tests", "test_saw.py:1"): 1,
    }
