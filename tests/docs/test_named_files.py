"""Files that the pages name are there: a module that moves takes its name in the pages along."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md"]
NAMED = re.compile(r"`([\w./]*\w\.py)`")
# Programs of MindSpore, scripts of the reader, and letters that stand for any name.
OTHERS = {
    "distributed_pipeline_parallel.py",
    "distributed_pipeline_parallel_inference.py",
    "sapp_mix_train.py",
    "train.py",
    "src/sporax/a/b/c.py",
    "tests/a/b/test_c.py",
}


def test_every_named_file_exists():
    folders = ("src", "tests", "tools", "benchmarks", "examples")
    files = [f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.py")]
    missing = [
        f"{page.name}:{number}: {name}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        for name in NAMED.findall(line)
        if name not in OTHERS and not any(file.endswith(f"/{name}") for file in files)
    ]
    assert not missing, missing
