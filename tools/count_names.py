"""Count which of MindSpore's names public programs use, over the repositories that are given.

    python tools/count_names.py --wheel PYTHON [--output FILE] OWNER/NAME=FOLDER...

FOLDER is a git repository, bare or not; what its HEAD holds is read, nothing is run. Problem: a list of documented names does
not say which of them matter. Method: `sporax.mindspore._names.check` reads the names and keyword arguments that a program
takes from `mindspore`; a name counts once per program. Programs are Python files, notebooks and Markdown pages with Python
cells. A program whose text occurred before, and a translated page that uses the same names, count once. Recorded are names and
counts, no code: `tests/mindspore/golden/requested_names.json`, which `docs/coverage.md` reads. `--wheel` names a Python with
MindSpore 2.10, which says which of the names it has itself. `needs` holds, for programs that use names Sporax lacked at the
time of counting, those names; from it the page computes how many programs use offered names only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import inspect
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parents[1] / "tests" / "mindspore" / "golden" / "requested_names.json"
SUFFIXES = (".py", ".ipynb", ".md")
#: A name that fewer programs use is counted in the totals, but not listed: it keeps the file small.
LISTED_FROM = 2
#: Keyword arguments are listed only where they are this frequent: there are many.
KEYWORDS_FROM = 3


# ------------------------------------------------------------------------------------------------------ reading programs


@dataclass
class Corpus:
    """What was read so far.

    Attributes:
        counts: programs per name; a keyword argument is the name ``path(keyword)``.
        needs: for each set of names that Sporax does not offer, the number of programs that use exactly these of them.
        repositories: name, commit and number of programs.
        unreadable: files that are no Python 3.
        repeated: programs that occurred before.
    """

    counts: Counter[str] = field(default_factory=Counter)
    needs: Counter[tuple[str, ...]] = field(default_factory=Counter)
    repositories: list[dict[str, Any]] = field(default_factory=list)
    unreadable: int = 0
    repeated: int = 0
    keys: set[object] = field(default_factory=set)

    def read(self, name: str, folder: Path) -> None:
        """Count the programs of one repository."""
        num_programs = 0
        for path, text in sources(folder):
            names = self._names(path, text)
            if names:
                num_programs += 1
                self.counts.update(names)
                lacking = tuple(sorted(filter(lacks, names)))
                if lacking:
                    self.needs[lacking] += 1
        commit = _git(folder, "rev-parse", "HEAD").decode().strip()
        self.repositories.append({"name": name, "commit": commit, "programs": num_programs})

    def _names(self, path: str, text: str) -> frozenset[str]:
        """Names that a program uses; none for one that cannot be read or occurred before."""
        is_page = not path.endswith(".py")
        try:
            code = page_code(path, text) if is_page else text
            names = names_in(code)
        except (SyntaxError, ValueError, RecursionError):
            self.unreadable += 1
            return frozenset()
        key: object = (Path(path).name, names) if is_page else hashlib.sha256(text.encode()).digest()
        if names and key in self.keys:
            self.repeated += 1
            return frozenset()
        self.keys.add(key)
        return names


def sources(folder: Path) -> Iterator[tuple[str, str]]:
    """Path and text of each Python file, notebook and Markdown page in the HEAD of a repository that names MindSpore."""
    rows = [line.split("\t") for line in _git(folder, "ls-tree", "-r", "HEAD").decode().splitlines()]
    files = [(path, row.split()[2]) for row, path in rows if path.endswith(SUFFIXES) and row.split()[1] == "blob"]
    contents = _git(folder, "cat-file", "--batch", given="\n".join(blob for _, blob in files).encode() + b"\n")
    start = 0
    for path, _ in files:
        end = contents.index(b"\n", start)
        header, start = contents[start:end].decode().split(), end + 1
        if header[-1] == "missing":  # a partial clone: the largest files may be left out
            continue
        text = contents[start : start + int(header[2])].decode(errors="replace")
        start += int(header[2]) + 1
        if "mindspore" in text:
            yield path, text


def page_code(path: str, text: str) -> str:
    """The Python cells of a page as one program; cells that are no Python are left out."""
    from run_tutorials import _is_python, cells_of  # late: a wheel's Python imports this file too

    return "\n".join(filter(_is_python, cells_of(path, text)))


def names_in(code: str) -> frozenset[str]:
    """Names and keyword arguments of MindSpore's that a program uses.

    Raises:
        SyntaxError: it is no Python program.
    """
    from sporax.mindspore._names.check import used_names

    uses = [use for use in used_names(code) if use.path.partition(".")[0] == "mindspore"]
    return frozenset(use.path if use.keyword is None else f"{use.path}({use.keyword})" for use in uses)


def lacks(name: str) -> bool:
    """Whether Sporax does not offer a name, or a keyword argument of it."""
    from sporax.mindspore._names.check import problem

    path, _, keyword = name.rstrip(")").partition("(")
    return problem(path, keyword or None) is not None


def _git(folder: Path, *command: str, given: bytes = b"") -> bytes:
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
    call = ["git", "-C", str(folder), "-c", "core.quotePath=false", *command]
    return subprocess.run(call, check=True, capture_output=True, input=given, env=environment).stdout


# ------------------------------------------------------------------------------------------------------ testing the wheel


def wheel_lacks(python: str, names: Iterable[str]) -> list[str]:
    """Those of the names that the MindSpore wheel in `python` does not have either."""
    command = [python, str(Path(__file__).resolve()), "--resolve"]
    done = subprocess.run(command, input=json.dumps(sorted(names)), capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def is_in_wheel(name: str) -> bool:
    """Whether `name` is there in the MindSpore of this process, by the rules of `sporax check`."""
    path, _, keyword = name.rstrip(")").partition("(")
    owner: Any = importlib.import_module("mindspore")
    for part in path.split(".")[1:]:
        if not inspect.ismodule(owner) and not inspect.isclass(owner):
            return True
        try:
            owner = getattr(owner, part)
        except AttributeError:
            try:
                owner = importlib.import_module(f"{owner.__name__}.{part}")
            except Exception:  # what a module of the wheel raises without the device it is for
                return False
    return not keyword or _takes(owner, keyword)


def _takes(function: Any, keyword: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(parameter.kind is parameter.VAR_KEYWORD or parameter.name == keyword for parameter in parameters)


# ------------------------------------------------------------------------------------------------------ command


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="*", metavar="OWNER/NAME=FOLDER")
    parser.add_argument("--wheel", help="python of an environment with MindSpore 2.10")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--resolve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.resolve:
        names = json.load(sys.stdin)
        print(json.dumps([name for name in names if not is_in_wheel(name)]))
        return 0
    if not options.repositories or options.wheel is None:
        parser.error("repositories and --wheel are needed")
    corpus = Corpus()
    for repository in options.repositories:
        name, _, folder = repository.partition("=")
        corpus.read(name, Path(folder))
        print(corpus.repositories[-1], flush=True)
    options.output.write_text(json.dumps(record(corpus, options.wheel), indent=1) + "\n")
    return 0


def record(corpus: Corpus, wheel: str) -> dict[str, Any]:
    """What is written."""
    counts = {name: count for name, count in sorted(corpus.counts.items()) if count >= least(name)}
    needed = {name for names in corpus.needs for name in names}
    absent = set(wheel_lacks(wheel, counts.keys() | needed))
    return {
        "repositories": corpus.repositories,
        "programs": sum(row["programs"] for row in corpus.repositories),
        "unreadable": corpus.unreadable,
        "repeated": corpus.repeated,
        "names": counts,
        "wheel_lacks": sorted(absent),
        "needs": [[count, *names] for names, count in sorted(corpus.needs.items())],
    }


def least(name: str) -> int:
    """From how many programs on a name is listed."""
    return KEYWORDS_FROM if name.endswith(")") else LISTED_FROM


if __name__ == "__main__":
    raise SystemExit(main())
