"""Programs of the first page, the guides and the notebooks run as they stand there."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

import sporax.mindspore as ms
from sporax.k8s.resource.spec import read_job
from sporax.launch import cli

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty current folder, and settings that end with the test."""
    monkeypatch.chdir(tmp_path)
    mode = ms.get_context("mode")
    yield tmp_path
    ms.set_context(mode=mode)
    ms.reset_auto_parallel_context()


def blocks(path: Path) -> list[str]:
    """The programs of a guide, or the cells of a notebook."""
    if path.suffix == ".md":
        return re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
    cells = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run(path: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(path), 1):
        exec(compile(block, f"{path.name}, block {number}", "exec"), names)


@pytest.mark.parametrize("path", [path for path in GUIDES if blocks(path)], ids=lambda path: path.stem)
def test_the_programs_of_a_guide_run(path):
    run(path)


def commands() -> list[str]:
    """The command lines of `sporax` in the guides and on the first page; lines that go on are one."""
    pages = [path.read_text().replace("\\\n", " ") for path in (*GUIDES, ROOT / "docs" / "index.md")]
    return [line for text in pages for line in re.findall(r"^(?:node\d)?\$ (sporax .*)$", text, re.MULTILINE)]


def test_the_commands_of_the_guides_have_flags_that_exist():
    assert len(commands()) >= 25
    for line in commands():
        _, name, *arguments = shlex.split(line)
        cli.command_parser(name, cli.load_command(name)).parsed(arguments)  # an unknown flag ends the process


def test_the_job_file_of_the_guide_is_a_job_that_can_run():
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/guides/kubernetes.md").read_text(), re.DOTALL)
    job = read_job(yaml.safe_load(text))
    roles = job.spec.ms_replica_specs
    assert (roles.scheduler.replicas, roles.workers.replicas) == (1, 4)


def test_most_guides_have_a_program():
    assert sum(bool(blocks(path)) for path in GUIDES) >= 7


def test_a_network_that_is_sharded_by_hand(capsys):
    run(NOTEBOOKS[0])
    text = capsys.readouterr().out
    assert re.search(r"_backbone.second MatMul +\(2,4\) \(4,1\) \* .* all_reduce over 4", text)
    assert "up (64×256): 1×4 slices, each on 2 ranks" in text


@pytest.mark.soak
@pytest.mark.parametrize("path", NOTEBOOKS[1:], ids=lambda path: path.stem)
def test_notebooks_that_search(path, capsys):
    run(path)
    assert re.search(r"\d µs", capsys.readouterr().out)


def test_notebooks_hold_no_results():
    assert [path.name[0] for path in NOTEBOOKS] == ["1", "2", "3"]
    cells = [cell for path in NOTEBOOKS for cell in json.loads(path.read_text())["cells"]]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
