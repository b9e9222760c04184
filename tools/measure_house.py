"""Measure the house: files, lines, levels of imports, long and complex functions, package by package.

    python tools/measure_house.py [--src FOLDER] [--json] [--complex]

Problem: a code base grows by a little in every change, and nobody sees it. Method: everything is counted from the syntax trees
of `src/sporax`, nothing is imported or run.

* levels: modules on the longest chain of imports at load time inside the package; modules that import each other count as one.
  A package's `__init__` counts where it is imported by name.
* p90: lines of the function that is longer than nine tenths of all.
* complex: functions whose cyclomatic complexity (McCabe, 1976) is above 15, counted as `radon cc` does: branches, loops and
  their `else`, handlers, comprehensions and their conditions, boolean operators, conditional expressions, assertions. A function
  inside of a function counts alone.
* late: imports of modules of ours inside functions, `importlib.import_module` with a fixed name included.
* ignores: `type: ignore` comments. anys: occurrences of `Any` as a name.

`tests/test_house.py` compares the figures with its budget.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "sporax"
MOST_COMPLEX = 15
ENGINE = "engine"
WHOLE = "whole"

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Figures:
    """What is counted of a package."""

    files: int
    lines: int
    levels: int
    p90: int
    complex: int
    late: int
    ignores: int
    anys: int
    most_files_in_a_folder: int


class Module:
    """One file of the package, parsed."""

    def __init__(self, path: Path, source: Path) -> None:
        parts = (source.name, *path.relative_to(source).with_suffix("").parts)
        self.path = path
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.text = path.read_text()
        self.tree = ast.parse(self.text)

    @cached_property
    def lengths(self) -> list[int]:
        """Lines of the functions and methods that are not inside of another function."""
        outer = _outer_functions(self.tree)
        return [function.end_lineno - function.lineno + 1 for function in outer if function.end_lineno]

    @cached_property
    def complexities(self) -> list[tuple[int, Function]]:
        """Complexity of all functions, those inside of others included."""
        return [(complexity(node), node) for node in ast.walk(self.tree) if isinstance(node, _FUNCTIONS)]

    @cached_property
    def ignores(self) -> int:
        """Comments that switch the type checker off for a line."""
        return sum("# type: ignore" in line for line in self.text.splitlines())

    @cached_property
    def anys(self) -> int:
        """How often the name `Any` stands in the code, imports left out."""
        return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[str]:
        """Names of what is imported when the module loads: modules, and names inside of modules."""
        return [name for node in _at_load_time(self.tree) for name in _imported(node)]

    @cached_property
    def late_imports(self) -> list[str]:
        """Names of the modules of its package that its functions import."""
        package, late = self.name.partition(".")[0], []
        for function in _outer_functions(self.tree):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
                    names = [*_imported(node), *_by_name(node)]
                    # `from package import a, b` is one import of the package.
                    late += [name for name in names if name.split(".")[0] == package][:1]
        return late


def _outer_functions(node: ast.AST) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            yield child
        else:
            yield from _outer_functions(child)


def _at_load_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _at_load_time(child)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _by_name(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=function, args=[ast.Constant(value=str() as name), *_]):
            if getattr(function, "attr", getattr(function, "id", "")) == "import_module":
                yield name


def complexity(function: ast.AST) -> int:
    """Cyclomatic complexity of a function, as `radon cc` counts; functions inside of it count alone."""
    return 1 + sum(map(_decisions, _own_nodes(function)))


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _FUNCTIONS):
            yield child
            yield from _own_nodes(child)


def _decisions(node: ast.AST) -> int:
    if isinstance(node, ast.If | ast.IfExp | ast.Assert):
        return 1
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return 1 + bool(node.orelse)
    if isinstance(node, ast.Try | ast.TryStar):
        return len(node.handlers) + bool(node.orelse)
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    if isinstance(node, ast.Match):
        wildcards = (isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None for case in node.cases)
        return len(node.cases) - any(wildcards)
    return 0


def modules(source: Path = SOURCE) -> list[Module]:
    """All files of the package."""
    return [Module(path, source) for path in sorted(source.rglob("*.py"))]


def levels(package: Iterable[Module]) -> int:
    """Modules on the longest chain of imports at load time, inside of what is given."""
    known = {module.name: module for module in package}
    links = {name: {_found(target, known) for target in module.imports} - {name, ""} for name, module in known.items()}
    depth: dict[int, int] = {}
    for number, below in enumerate(_components(links)):
        depth[number] = 1 + max((depth[other] for other in below), default=0)
    return max(depth.values(), default=0)


def _found(name: str, known: Mapping[str, Module]) -> str:
    if name in known:
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in known else ""


def _components(links: Mapping[str, set[str]]) -> list[set[int]]:
    """For each strongly connected component, from the bottom, the numbers of those that it imports (Tarjan, 1972)."""
    found: list[set[int]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    component: dict[str, int] = {}

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in sorted(links[name]):
            if other not in number:
                visit(other)
            if other not in component:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            component.update(dict.fromkeys(members, len(found)))
            found.append({component[other] for member in members for other in links[member]} - {len(found)})

    sys.setrecursionlimit(10_000)
    for name in sorted(links):
        if name not in number:
            visit(name)
    return found


def figures(package: list[Module]) -> Figures:
    """What is counted of some modules."""
    lengths = sorted(length for module in package for length in module.lengths)
    folders = [module.path.parent for module in package]
    return Figures(
        files=len(package),
        lines=sum(module.text.count("\n") for module in package),
        levels=levels(package),
        p90=lengths[len(lengths) * 9 // 10] if lengths else 0,
        complex=sum(found > MOST_COMPLEX for module in package for found, _ in module.complexities),
        late=sum(len(module.late_imports) for module in package),
        ignores=sum(module.ignores for module in package),
        anys=sum(module.anys for module in package),
        most_files_in_a_folder=max(map(folders.count, set(folders)), default=0),
    )


def measured(source: Path = SOURCE) -> dict[str, Figures]:
    """Figures of each package, of the engine (all but `mindspore`) and of the whole."""
    every = modules(source)
    packages: dict[str, list[Module]] = {}
    for module in every:
        parts = module.name.split(".")
        if len(parts) > 1 and (source / parts[1]).is_dir():
            packages.setdefault(parts[1], []).append(module)
    engine = [module for module in every if not module.name.startswith(f"{source.name}.mindspore")]
    named = {name: figures(package) for name, package in sorted(packages.items())}
    return {**named, ENGINE: figures(engine), WHOLE: figures(every)}


def _table(found: Mapping[str, Figures]) -> str:
    heads = ["package", *(name.replace("_", " ") for name in Figures.__slots__)]
    rows = [[name, *(str(value) for value in asdict(row).values())] for name, row in found.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--src", type=Path, default=SOURCE, help="the folder of the package")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--complex", action="store_true", help=f"list the functions of complexity above {MOST_COMPLEX}")
    options = parser.parse_args()
    if options.complex:
        for module in modules(options.src):
            for found, function in module.complexities:
                if found > MOST_COMPLEX:
                    print(f"{found:3} {module.name}:{function.lineno} {function.name}")
        return
    found = measured(options.src)
    print(json.dumps({name: asdict(row) for name, row in found.items()}, indent=2) if options.json else _table(found))


if __name__ == "__main__":
    main()
