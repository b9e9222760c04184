"""Run the code of MindSpore's tutorials with the wheel and with Sporax, cell by cell, and compare.

    git clone https://gitee.com/mindspore/docs.git /tmp/docs
    python tools/run_tutorials.py --repository /tmp/docs --wheel PYTHON [--only TEXT] [--json FILE]

Problem: real code follows the tutorials, so a cell that only the wheel runs is a gap. Method: the pages of `PAGES` are read
out of the repository; the Python cells of a page become one file, since graph mode reads sources; the cells run one after
the other in one process per framework, each with what it prints captured. Cells that need data from the network get small
made-up data of the same form. The table is in `docs/tutorials.md`; tutorials themselves are not kept.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS_PER_CELL = 90
SECONDS_PER_PAGE = 420

_STATIC = ("operators", "python_builtin_functions", "statements")
_ADVANCED = ("derivation", "mixed_precision", "static_graph_expert_programming", "model/callback", "model/metric")
_MODULES = ("initializer", "layer", "loss", "optimizer")
_GUIDE = ("gradient", "learning_rate_and_optimizer", "model_and_cell", "training_and_evaluation_procession")
_BEGINNER = ("accelerate_with_static_graph", "autograd", "introduction", "model", "quick_start", "save_load", "tensor")
PAGES: tuple[tuple[str, str], ...] = (
    *(("r2.2", f"docs/mindspore/source_en/note/static_graph_syntax/{name}.md") for name in _STATIC),
    ("r2.2", "docs/mindspore/source_en/note/static_graph_syntax_support.md"),
    ("r2.2", "docs/mindspore/source_en/design/dynamic_graph_and_static_graph.md"),
    ("r2.2", "docs/mindspore/source_en/faq/network_compilation.md"),
    *(("r2.2", f"docs/mindspore/source_en/migration_guide/model_development/{name}.md") for name in _GUIDE),
    *(("r2.2", f"tutorials/source_en/advanced/{name}.md") for name in _ADVANCED),
    *(("r2.2", f"tutorials/source_en/advanced/modules/{name}.md") for name in _MODULES),
    ("r2.2", "tutorials/source_zh_cn/advanced/modules/cell.ipynb"),
    ("r2.2", "tutorials/source_zh_cn/advanced/model/model.ipynb"),
    *(("r2.2", f"tutorials/source_en/beginner/{name}.md") for name in (*_BEGINNER, "train")),
    ("r2.2", "tutorials/experts/source_en/optimize/gradient_accumulation.md"),
    ("r2.2", "tutorials/experts/source_en/func_programming/Jacobians_Hessians.md"),
    ("r2.2", "tutorials/experts/source_en/func_programming/per_sample_gradients.md"),
    *(("r2.6.0", f"tutorials/source_en/compile/{name}.md") for name in (*_STATIC, "static_graph")),
    ("r2.6.0", "tutorials/source_en/compile/static_graph_expert_programming.md"),
    *(("r2.6.0", f"tutorials/source_en/beginner/{name}.md") for name in ("mixed_precision", "train", "autograd")),
    ("r2.6.0", "tutorials/source_en/custom_program/hook_program.md"),
    ("r2.6.0", "tutorials/source_en/debug/pynative.md"),
)
"""Branch and path of the pages about static graphs, control flow, mixed precision and custom training."""

DECLARED: dict[str, str] = {
    "e = float(x.asnumpy())": "numpy 2.4 makes no number of an array of shape (1,); the wheel runs on numpy 1",
    'x.has_key("a")': "`dict.has_key`, which Python 3 has no more",
    "id(global_list) == id(output)": "a list from outside is changed when the step is traced, and results are new lists",
    "id(list_input) == id(output)": "a list from outside is changed when the step is traced, and results are new lists",
    "id(output) == id(list_input)": "a list from outside is changed when the step is traced, and results are new lists",
    "self.attr = x + 1": "an attribute of a Cell that becomes a Tensor in a compiled step; a Parameter may",
}
"""What may run with the wheel only: text of a cell -> why."""

Outcome = dict[str, Any]

# ------------------------------------------------------------------------------------------------------ reading pages

_FENCE = re.compile(r"^(?P<indent>[ ]*)```\s*[Pp]ython\s*\n(?P<code>.*?)^[ ]*```", re.MULTILINE | re.DOTALL)


def cells_of(path: str, text: str) -> list[str]:
    """The Python cells of a page."""
    if path.endswith(".ipynb"):
        cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    else:
        cells = [textwrap.dedent(match["code"]) for match in _FENCE.finditer(text)]
    return ["\n".join("" if line.startswith(("!", "%")) else line for line in cell.splitlines()) for cell in cells]


def read_page(repository: Path, branch: str, path: str) -> str:
    """The text of a page on a branch (local, or of the remote a clone came from)."""
    for name in (branch, f"origin/{branch}"):
        done = subprocess.run(["git", "-C", str(repository), "show", f"{name}:{path}"], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
    raise SystemExit(f"{branch}:{path} is not in {repository}: {done.stderr.strip()}")


# ------------------------------------------------------------------------------------------------------ running a page


def run_page(page: Path, module: str, results: Path) -> None:
    """Run all cells of a page in this process; one line of JSON per cell goes to `results`.

    Args:
        page: JSON list of cells.
        module: ``mindspore`` or ``sporax``.
        results: where the lines go.
    """
    if module == "sporax":
        from sporax.mindspore._names import alias

        alias.install()
    sys.modules["download"] = _download_module()
    cells: list[str] = json.loads(page.read_text())
    file = Path("page.py").resolve()
    file.write_text("\n".join(cell if _is_python(cell) else "\n" * cell.count("\n") for cell in cells) + "\n")
    names = types.ModuleType("page")
    names.__file__ = str(file)
    sys.modules["page"] = names
    line = 0
    with results.open("w") as out:
        for cell in cells:
            outcome = _run_cell(cell, line, str(file), vars(names))
            line += cell.count("\n") + 1
            out.write(json.dumps(outcome) + "\n")
            out.flush()
    os._exit(0)  # what tutorials leave running ends here


def _is_python(cell: str) -> bool:
    try:
        ast.parse(cell)
    except SyntaxError:
        return False
    return True


def _run_cell(cell: str, line: int, file: str, names: dict[str, Any]) -> Outcome:
    with _captured() as printed:
        try:
            tree = ast.increment_lineno(ast.parse(cell), line)
            signal.signal(signal.SIGALRM, _too_long)
            signal.alarm(SECONDS_PER_CELL)
            exec(compile(tree, file, "exec"), names)
            _finish()
            outcome: Outcome = {"ok": True}
        except BaseException as error:
            text = re.sub(r"\s+", " ", str(error).partition("- C++ Call Stack")[0])
            outcome = {"ok": False, "error": type(error).__name__, "message": text[:400]}
        finally:
            signal.alarm(0)
    return {**outcome, "printed": printed[0][:4000]}


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError(f"more than {SECONDS_PER_CELL} s")


def _finish() -> None:
    """Wait for what compiled steps still print."""
    if "jax" in sys.modules:
        sys.modules["jax"].effects_barrier()
    sys.stdout.flush()


@contextlib.contextmanager
def _captured() -> Iterator[list[str]]:
    """What the process writes to its standard output, compiled code too."""
    printed = [""]
    sys.stdout.flush()
    keep = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield printed
        finally:
            sys.stdout.flush()
            os.dup2(keep, 1)
            os.close(keep)
            file.seek(0)
            printed[0] = file.read().decode(errors="replace")


def _download_module() -> types.ModuleType:
    module = types.ModuleType("download")
    module.download = _made_up_data  # type: ignore[attr-defined]  # a module made here
    return module


def _made_up_data(url: str, path: str = ".", **options: Any) -> str:
    """What stands for data from the network: 640 + 128 random digits in the form of MNIST."""
    import numpy as np

    if "MNIST" not in url:
        raise ConnectionError(f"{url} is not reached from here")
    random = np.random.RandomState(0)
    for part, prefix, count in (("train", "train", 640), ("test", "t10k", 128)):
        folder = Path(path) / "MNIST_Data" / part
        folder.mkdir(parents=True, exist_ok=True)
        labels = random.randint(0, 10, count).astype(np.uint8)
        images = (random.rand(count, 28, 28) * 20 + labels[:, None, None] * 20).astype(np.uint8)
        head = np.array([2051, count, 28, 28], ">u4").tobytes()
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(
            np.array([2049, count], ">u4").tobytes() + labels.tobytes()
        )
    return path


# ------------------------------------------------------------------------------------------------------ both frameworks


def outcomes(cells: list[str], python: str, module: str) -> list[Outcome]:
    """Run a page in a fresh process and folder; cells that were not reached say so."""
    with tempfile.TemporaryDirectory() as folder:
        page, results = Path(folder, "cells.json"), Path(folder, "results.jsonl")
        page.write_text(json.dumps(cells))
        command = [python, str(Path(__file__).resolve()), "--child", module, str(page), str(results)]
        environment = {**os.environ, "GLOG_v": "4", "JAX_PLATFORMS": "cpu"}
        if module == "mindspore":
            environment.pop("PYTHONPATH", None)
        ended = "the process ended"
        try:
            subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, timeout=SECONDS_PER_PAGE, check=False
            )
        except subprocess.TimeoutExpired:
            ended = f"more than {SECONDS_PER_PAGE} s"
        lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    missing: Outcome = {"ok": False, "error": "NotReached", "message": ended, "printed": ""}
    return lines + [missing] * (len(cells) - len(lines))


_NUMBER = re.compile(r"-?\d+\.?\d*(?:[eE][-+]?\d+)?")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+\.?\d* ?(?:ms|s|seconds)\b")


def prints_alike(one: str, other: str) -> bool:
    """Whether two outputs say the same, up to white space and the last digits of numbers."""
    one, other = (_VARYING.sub("?", text) for text in (one, other))
    words = [re.sub(r"[\s,]+", "", _NUMBER.sub("#", text)) for text in (one, other)]
    numbers = [list(map(float, _NUMBER.findall(text))) for text in (one, other)]
    return (
        words[0] == words[1]
        and len(numbers[0]) == len(numbers[1])
        and all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-5) for a, b in zip(*numbers, strict=True))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, help="a clone of mindspore/docs")
    parser.add_argument("--wheel", help="python of an environment with MindSpore 2.10; without it, --json is read")
    parser.add_argument("--only", default="", help="pages whose path has this text")
    parser.add_argument(
        "--json", type=Path, help="all outcomes; those of the wheel are taken from it if --wheel is missing"
    )
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        module, page, results = options.child
        run_page(Path(page), module, Path(results))
    if options.repository is None:
        parser.error("--repository is needed")
    kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    totals = [0] * 6
    undeclared = []
    print(
        "| page | cells | both run | print the same | only the wheel, declared | … not declared | only Sporax | neither |"
    )
    print("| --- " * 8 + "|")
    for branch, path in PAGES:
        name = f"{branch}:{path}"
        if options.only not in name:
            continue
        cells = cells_of(path, read_page(options.repository, branch, path))
        wheel = outcomes(cells, options.wheel, "mindspore") if options.wheel else kept[name]["mindspore"]
        ours = outcomes(cells, sys.executable, "sporax")
        kept[name] = {"cells": cells, "mindspore": wheel, "sporax": ours}
        counts = counted(cells, wheel, ours)
        undeclared += [f"{name}, cell {number}" for number in missing(cells, wheel, ours)]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        if cells:
            print(f"| {name} | {len(cells)} | {' | '.join(map(str, counts))} |", flush=True)
        if options.json:
            options.json.write_text(json.dumps(kept, indent=1))
    print(f"| all | {sum((totals[0], *totals[2:]))} | {' | '.join(map(str, totals))} |")
    if undeclared:
        sys.exit("Only the wheel runs, and nobody says why: " + "; ".join(undeclared))


def counted(cells: list[str], wheel: list[Outcome], ours: list[Outcome]) -> list[int]:
    """Numbers of cells: both run, they print the same, only the wheel runs (declared, not), only Sporax, neither."""
    pairs = [(a["ok"], b["ok"]) for a, b in zip(wheel, ours, strict=True)]
    alike = sum(
        a["ok"] and b["ok"] and prints_alike(a["printed"], b["printed"]) for a, b in zip(wheel, ours, strict=True)
    )
    undeclared = len(missing(cells, wheel, ours))
    only_wheel = pairs.count((True, False))
    both, only_ours, neither = pairs.count((True, True)), pairs.count((False, True)), pairs.count((False, False))
    return [both, alike, only_wheel - undeclared, undeclared, only_ours, neither]


def missing(cells: list[str], wheel: list[Outcome], ours: list[Outcome]) -> list[int]:
    """Numbers of the cells that only the wheel runs, without a declared reason."""
    rows = enumerate(zip(cells, wheel, ours, strict=True))
    return [
        number
        for number, (cell, a, b) in rows
        if a["ok"] and not b["ok"] and not any(text in cell for text in DECLARED)
    ]


if __name__ == "__main__":
    main()
