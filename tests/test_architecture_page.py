"""`docs/architecture.md` is short, and its walks lead through files and names that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sporax"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MOST_WORDS = {"architecture": 2000, "planner": 2500}
MOST_STATIONS = 12


def _walks():
    section = PAGE.partition("## Five walks")[2].partition("\n## ")[0]
    walks = []
    for line in section.splitlines():
        match = re.match(r"\| (\d+) \| (.*) \| (.*) \|$", line)
        if match and match[1] == "1":
            walks.append([])
        if match:
            walks[-1].append((int(match[1]), match[2], match[3]))
    return walks


def _files(cell):
    """The files that a cell names; of a folder all of them."""
    named = [SOURCE / name for name in re.findall(r"`([\w/]+(?:\.py|/))`", cell)]
    return [file for path in named for file in (sorted(path.glob("*.py")) if path.is_dir() else [path])]


STATIONS = [
    (f"walk {walk}, station {number}", text, cell)
    for walk, stations in enumerate(_walks(), 1)
    for number, text, cell in stations
]


def test_there_are_five_walks_of_few_stations():
    walks = _walks()
    assert len(walks) == 5
    for stations in walks:
        assert [number for number, _, _ in stations] == list(range(1, len(stations) + 1))
        assert len(stations) <= MOST_STATIONS


@pytest.mark.parametrize(("station", "text", "cell"), STATIONS, ids=[station for station, _, _ in STATIONS])
def test_a_station_names_files_and_what_is_in_them(station, text, cell):
    files = _files(cell)
    assert files and all(file.exists() for file in files), cell
    content = "\n".join(file.read_text() for file in files)
    for name in re.findall(r"`([^`]+)`", text) + re.findall(r"\(`(\w+)`\)", cell):
        last = name.partition("(")[0].rpartition(".")[2]
        assert re.search(rf"\b{last}\b", content), f"{name} is not in {cell}"


@pytest.mark.parametrize("page", MOST_WORDS)
def test_a_page_is_short_enough_to_be_read(page):
    assert len((ROOT / "docs" / f"{page}.md").read_text().split()) <= MOST_WORDS[page]
