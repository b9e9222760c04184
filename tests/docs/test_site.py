"""The pages of the site: they can be put together, links lead somewhere, guides are short, and there are fewer words than there were."""

import doctest
import importlib
import re
import sys
from pathlib import Path

import jax
import pytest

import sporax

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = sorted((DOCS / "guides").glob("*.md"))


@pytest.fixture(scope="module")
def make_site():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield importlib.import_module("make_site")
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.fixture
def without_reference(make_site, monkeypatch):
    """The tool without the pages made of docstrings, which cost seconds; `make site` has them."""
    monkeypatch.setattr(make_site, "reference_pages", lambda: {"sporax": "# sporax\n\nPlans.\n"})
    return make_site


def words(text: str) -> int:
    """Words with a letter; what stands in code counts, signs of tables do not."""
    return sum(bool(re.search(r"[A-Za-z]", word)) for word in text.split())


def test_every_page_is_in_the_contents_once_and_in_the_index_for_models(without_reference, tmp_path):
    sections = without_reference.put_together(tmp_path / "pages")
    listed = [name for names in sections.values() for name in names]
    pages = {path.relative_to(tmp_path / "pages").with_suffix("").as_posix() for path in tmp_path.rglob("*.md")}
    assert sorted([*listed, "index"]) == sorted(pages)
    assert {"guides/resume", "notebooks/1-shard-a-network-by-hand", "changes"} <= pages
    index = without_reference.index_for_models(tmp_path / "pages", sections)
    assert index.startswith("# Sporax\n\n> Sporax trains neural networks")
    assert re.findall(r"\]\((.*?)\.md\)", index) == listed
    first = (tmp_path / "pages" / "index.md").read_text()
    assert first.startswith((DOCS / "index.md").read_text()[:2000])
    assert first.count("```{toctree}") == len(sections)


def test_links_that_leave_the_pages_lead_to_files_of_the_site(without_reference, tmp_path):
    without_reference.put_together(tmp_path)
    text = (tmp_path / "automatic_parallel.md").read_text()
    assert "(files/examples/09-plan-a-flax-model/plan.py)" in text
    assert (tmp_path / "files/examples/09-plan-a-flax-model/plan.py").is_file()
    assert "../../examples" not in (tmp_path / "guides" / "kubernetes.md").read_text()


def test_a_link_to_nothing_is_an_error(make_site, monkeypatch, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A\n\n```\n[code](is/no/link.md)\n```\n[here](#a) [gone](gone.md)\n")
    monkeypatch.setattr(make_site, "ROOT", tmp_path)
    with pytest.raises(make_site.BrokenLinkError, match=r"page.md: the link to 'gone.md' leads to no file"):
        make_site.with_links_of_the_site(page, {page: Path("page.md")}, tmp_path / "out")


def test_guides_are_short_and_all_of_them_are_on_the_first_page():
    assert len(GUIDES) >= 9
    assert {path.name: words(path.read_text()) for path in GUIDES if words(path.read_text()) > 1500} == {}
    first = (DOCS / "index.md").read_text()
    assert [path.name for path in GUIDES if f"(guides/{path.name})" not in first] == []


def test_there_are_fewer_words_than_there_were():
    pages = sum(words(path.read_text()) for path in DOCS.rglob("*.md") if path.stem not in GENERATED)
    assert pages <= MOST_WORDS, "shorten or merge pages before you add to them"
    assert words((ROOT / "README.md").read_text()) <= MOST_WORDS_OF_README


GENERATED = frozenset("api coverage coverage_jax operators validation".split())
"""Pages that tools write."""
MOST_WORDS = 55_450
"""In `docs`, without the generated pages. There were 55,560 without guides."""
MOST_WORDS_OF_README = 800


def test_the_reference_is_markdown_of_docstrings():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        reference = importlib.import_module("_reference")
    finally:
        sys.path.remove(str(ROOT / "tools"))
    text = reference.page("sporax", "Plans.")
    assert "## plan\n\n```python\nplan(fn: Callable[..., Any], *args" in text
    assert '* **memory**: limit of one device, in bytes or as `"80GB"`.' in text
    assert "**Raises**\n\n* **SporaxTypeError**:" in text
    lines = list(reference.markdown("Sums.\n\nRaises:\n    ValueError: no\n        numbers.\n\n    >>> f(1)\n    1\n"))
    assert lines == ["Sums.\n", "**Raises**\n", "* **ValueError**: no numbers.", "", "```python\n>>> f(1)\n1\n```\n"]


def test_the_examples_in_docstrings_of_the_engine_give_what_they_say(tmp_path):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    names = {"sporax": sporax, "jax": jax, "folder": tmp_path}
    for name in sporax.__all__:
        if callable(value := getattr(sporax, name)):
            for example in finder.find(value, name, module=False, globs=names):
                runner.run(example)
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries >= 8
