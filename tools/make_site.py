"""Build the site of the documentation: HTML with a search, each page also as Markdown, and `llms.txt`.

    python tools/make_site.py [--out build/site]

The pages of `docs/` are written to be read on GitHub, too, so they have no directives of Sphinx. This tool copies them to a
folder next to the site, appends the table of contents to the first one, adds the reference (made of docstrings, `_reference.py`)
and the notebooks, and runs Sphinx with warnings as errors. Links that leave `docs/` lead to a copy of the file in the site; a
link to a folder becomes its text, and one that leads nowhere is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from _generated import ROOT
from _reference import reference_pages

DOCS = ROOT / "docs"
FIRST = "index.md"
NOTEBOOKS = ROOT / "examples" / "notebooks"
OUTSIDE = {"examples/README.md": "examples.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Pages from other folders, and their names in the site."""
SECTIONS: dict[str, tuple[str, ...]] = {
    "Guides": (
        "guides/two_machines",
        "guides/resume",
        "guides/survive_failures",
        "guides/where_time_goes",
        "guides/choose_a_strategy",
        "guides/plan_a_jax_program",
        "guides/fit_into_memory",
        "guides/convert_checkpoints",
        "guides/kubernetes",
        "guides/parameter_servers",
        "cheat_sheets",
        "examples",
        "notebooks/*",
    ),
    "Features": (
        "launching",
        "several_machines",
        "engines",
        "data_parallel",
        "operator_parallel",
        "automatic_parallel",
        "explain_sharding",
        "pipeline",
        "memory",
        "checkpoints",
        "training",
        "dataset",
        "graph_mode",
        "parallel_context",
        "parameter_server",
        "kubernetes",
        "interop",
        "profiling",
        "security",
    ),
    "Reference": ("reference/*", "api", "operators", "coverage", "coverage_jax", "tutorials", "rules", "glossary"),
    "Figures": ("what_works", "validation", "reliability", "*_measurements", "kubernetes_invalid_specs"),
    "Inside": (
        "architecture",
        "planner",
        "automatic_parallel_internals",
        "solver",
        "where_to_change",
        "decisions",
        "contributing",
        "changes",
    ),
}
"""The table of contents. A page that no line names stands at the end of "Features"."""
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^ *(```|~~~)")
_ELSEWHERE = re.compile(r"^(#|[a-z]+:)")


class BrokenLinkError(Exception):
    """A link of a page leads to no file."""


def pages() -> dict[Path, PurePosixPath]:
    """Every page of the repository that is part of the site, and its name there."""
    found = {page: PurePosixPath(page.relative_to(DOCS).as_posix()) for page in sorted(DOCS.rglob("*.md"))}
    return found | {ROOT / source: PurePosixPath(name) for source, name in OUTSIDE.items()}


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """`text` with `change` applied to the lines that stand in no fenced block."""
    lines, inside = [], False
    for line in text.splitlines(keepends=True):
        inside ^= bool(_FENCE.match(line))
        lines.append(line if inside else change(line))
    return "".join(lines)


def with_links_of_the_site(page: Path, names: dict[Path, PurePosixPath], stage: Path) -> str:
    """The text of a page whose links hold in the site; files that it links to are copied there.

    Raises:
        BrokenLinkError: a link leads to nothing.
    """
    here = names[page].parent

    def changed(found: re.Match[str]) -> str:
        text, link = found.groups()
        if _ELSEWHERE.match(link):
            return found[0]
        path, mark, fragment = link.partition("#")
        target = (page.parent / path).resolve()
        if target in names:
            name = names[target]
        elif target.is_dir():
            return text
        elif target.is_file() and target.is_relative_to(ROOT):
            inside = target.is_relative_to(DOCS)
            name = PurePosixPath(target.relative_to(DOCS).as_posix()) if inside else _copied(target, stage)
        else:
            raise BrokenLinkError(f"{page.relative_to(ROOT)}: the link to '{link}' leads to no file")
        return f"[{text}]({os.path.relpath(name, here)}{mark}{fragment})"

    return outside_code(page.read_text(encoding="utf-8"), lambda line: _LINK.sub(changed, line))


def _copied(source: Path, stage: Path) -> PurePosixPath:
    """The name in the site of a file of the repository, which is copied."""
    name = PurePosixPath("files", source.relative_to(ROOT).as_posix())
    (stage / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, stage / name)
    return name


def put_together(stage: Path) -> dict[str, list[str]]:
    """Write all pages below `stage`. Returns the names of the pages of each section, in order."""
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    for folder in DOCS.iterdir():
        if folder.is_dir() and not folder.name.startswith("_"):
            shutil.copytree(folder, stage / folder.name, ignore=shutil.ignore_patterns("*.md", "__pycache__"))
    names = pages()
    texts = {str(name): with_links_of_the_site(page, names, stage) for page, name in names.items()}
    texts |= {f"reference/{name}.md": text for name, text in reference_pages().items()}
    texts |= {f"notebooks/{path.stem}.md": notebook_page(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    sections = contents([name.removesuffix(".md") for name in texts if name != FIRST])
    texts[FIRST] += "".join(toctrees(sections))
    for name, text in texts.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_text(text, encoding="utf-8")
    return sections


def notebook_page(path: Path) -> str:
    """A notebook as a page: its text, and its cells as blocks of code."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = (("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells)
    return "\n".join(f"```python\n{text}\n```\n" if code else f"{text}\n" for text, code in sources)


def contents(names: list[str]) -> dict[str, list[str]]:
    """The pages of each section."""
    left = sorted(names)
    sections: dict[str, list[str]] = {}
    for title, patterns in SECTIONS.items():
        sections[title] = [name for each in patterns for name in left if fnmatchcase(name, each)]
    taken = {name for section in sections.values() for name in section}
    sections["Features"] += [name for name in left if name not in taken]
    return sections


def toctrees(sections: dict[str, list[str]]) -> Iterator[str]:
    """The directives of the table of contents."""
    for title, names in sections.items():
        yield "\n".join(["", "```{toctree}", f":caption: {title}", ":hidden:", "", *names, "```", ""])


def title_and_summary(text: str) -> tuple[str, str]:
    """Heading and first sentence of a page."""
    title, _, rest = text.partition("\n")
    paragraph = next((part for part in rest.split("\n\n") if part.strip() and part.strip()[0] not in "`|!#<"), "")
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return title.lstrip("# "), re.split(r"(?<=[.:]) (?=[A-Z])", words)[0].rstrip(":")


def index_for_models(stage: Path, sections: dict[str, list[str]]) -> str:
    """The text of `llms.txt` (llmstxt.org): what it is, then title, address and first sentence of every page."""
    title, summary = title_and_summary((stage / FIRST).read_text(encoding="utf-8"))
    lines = [f"# {title}", "", f"> {summary}"]
    for section, names in sections.items():
        lines += ["", f"## {section}", ""]
        for name in names:
            heading, sentence = title_and_summary((stage / f"{name}.md").read_text(encoding="utf-8"))
            lines.append(f"- [{heading}]({name}.md): {sentence}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="folder of the site")
    out: Path = parser.parse_args().out.resolve()
    try:
        from sphinx.cmd.build import build_main
    except ImportError:
        print("Sphinx is missing: pip install 'sporax[docs]'", file=sys.stderr)
        return 2
    stage = out.with_name(f"{out.name}-pages")
    try:
        sections = put_together(stage)
    except BrokenLinkError as error:
        print(error, file=sys.stderr)
        return 1
    shutil.rmtree(out, ignore_errors=True)
    doctrees = out.with_name(f"{out.name}-doctrees")
    options = ["-b", "html", "-q", "-W", "--keep-going", "-c", str(DOCS), "-d", str(doctrees)]
    if status := build_main([*options, str(stage), str(out)]):
        return status
    shutil.copytree(stage, out, dirs_exist_ok=True)
    first = out / FIRST
    first.write_text(first.read_text(encoding="utf-8").partition("\n```{toctree}")[0], encoding="utf-8")
    (out / "llms.txt").write_text(index_for_models(stage, sections), encoding="utf-8")
    print(f"{sum(map(len, sections.values())) + 1} pages in {out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
