"""Count the words that the glossary leaves out, in `src`, `docs` and the names of tests.

    python tools/count_words.py [WORD …]

Without words it prints a table: word, place, occurrences. With words it lists where these stand, as ``file:line: text``.
`docs/glossary.md` has the list; `tests/test_words.py` compares the counts with what they were.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT, NAMES, TESTS = "text", "names", "tests"
_ROW = re.compile(r"^\| ([a-z, ]+) \| (text|names|text, names|text, names, tests) \| .* \|$")
_WORDS_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TEST = re.compile(r"\s*(?:async )?def (test_\w+)")
_LITERAL = re.compile(r"``.*?``|`[^`]*`")
_NAME_IN_STRING = re.compile(r"\w*(?:[a-z][A-Z]|_)\w*")
"""`CutOut`, `kept_as`: in strings they are the names of others."""


@dataclass(frozen=True, slots=True)
class Found:
    """A word that stands somewhere.

    Attributes:
        word: the first of its row in the glossary.
        where: `TEXT`, `NAMES` or `TESTS`.
        position: ``file:line``.
        line: what stands there.
    """

    word: str
    where: str
    position: str
    line: str


def listed() -> dict[str, dict[str, str]]:
    """For text and names the words to leave out, with the first word of their row."""
    words: dict[str, dict[str, str]] = {TEXT: {}, NAMES: {}, TESTS: {}}
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines():
        if row := _ROW.match(line):
            forms = row[1].split(", ")
            for where in row[2].split(", "):
                words[where] |= dict.fromkeys(forms, forms[0])
    return words


def found() -> Iterator[Found]:
    """All occurrences in the package, the pages and the names of tests."""
    words = listed()
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        nodes = list(ast.walk(ast.parse(text)))
        yield from _matches(words[TEXT], TEXT, path, _texts(text, nodes))
        yield from _matches(words[NAMES], NAMES, path, _names(path, nodes))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        lines = list(enumerate(path.read_text().splitlines(), 1))
        if path.name == "glossary.md":
            lines = [(number, line) for number, line in lines if not _ROW.match(line)]
        yield from _matches(words[TEXT], TEXT, path, iter(lines))
    for path in sorted((ROOT / "tests").rglob("*.py")):
        tests = ((number, _TEST.match(line)) for number, line in enumerate(path.read_text().splitlines(), 1))
        yield from _matches(words[TESTS], TESTS, path, ((number, test[1]) for number, test in tests if test))


def _matches(words: dict[str, str], where: str, path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[Found]:
    for number, line in lines:
        # Quoted code has the names of others.
        plain = _LITERAL.sub(" ", line) if where == TEXT else line
        for word in _WORDS_OF_NAME.findall(plain):
            if first := words.get(word.lower()):
                yield Found(first, where, f"{path.relative_to(ROOT)}:{number}", line.strip())


def _texts(source: str, nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Lines of comments and docstrings, and strings of several words, such as messages."""
    for number, line in enumerate(source.splitlines(), 1):
        if "#" in line:  # to read the tokens takes longer than all else, for a few signs in strings
            yield number, line.partition("#")[2]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                yield from enumerate(node.value.splitlines(), node.lineno)
            elif " " in node.value:
                yield node.lineno, _NAME_IN_STRING.sub(" ", node.value)


def _names(path: Path, nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Names where they are bound."""
    yield 1, path.stem
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def main() -> None:
    """Print the table, or where some words stand."""
    wanted = sys.argv[1:]
    occurrences = list(found())
    if wanted:
        for one in occurrences:
            if one.word in wanted:
                print(f"{one.position}: [{one.where}] {one.line}")
        return
    counts = Counter((one.word, one.where) for one in occurrences)
    for (word, where), count in sorted(counts.items()):
        print(f"{word:12} {where:6} {count:5}")
    print(f"{'in all':19} {counts.total():5}")


if __name__ == "__main__":
    main()
