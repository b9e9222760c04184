"""What the package says of itself on an index."""

import re
import tomllib
from pathlib import Path

import yaml

import sporax

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_classifiers_name_every_python_from_the_oldest_that_is_allowed():
    named = [
        int(found[1])
        for line in PROJECT["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", line))
    ]
    oldest = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert named == list(range(oldest, 14))


def test_the_citation_is_of_this_version_and_licence():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (sporax.__version__, PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
