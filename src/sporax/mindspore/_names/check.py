"""`sporax check`: before a program runs, list what it uses of MindSpore's that Sporax does not have.

Which names of MindSpore's a Python program uses, read from its source without running it.

Method: the syntax tree is walked once. Import statements bind local names to dotted paths; an attribute chain that starts at
such a name is a use of the longer path (`nn.Dense` after ``from mindspore import nn`` is `mindspore.nn.Dense`). Functions
whose arguments or assignments reuse a name hide the import inside. What is in a ``try`` that handles a failed import or a
missing attribute is no use: the program can do without.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from sporax.base.errors import SporaxError, SporaxValueError
from sporax.mindspore._names.missing import Placeholder, suggestion

PACKAGES = ("mindspore", "sporax")
_FORGIVING = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Use:
    """One place of a program that uses a name.

    Attributes:
        path: dotted name, from the package on.
        line: line of the source, from 1.
        keyword: keyword argument of a call of `path`; None for the use of the name itself.
    """

    path: str
    line: int
    keyword: str | None = None


def used_names(source: str) -> list[Use]:
    """All uses in a program, in the order of its lines.

    Raises:
        SyntaxError: it is no Python program.
    """
    reader = _Reader()
    reader.visit(ast.parse(source))
    return sorted(reader.uses, key=lambda use: (use.line, use.path, use.keyword or ""))


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.uses: set[Use] = set()
        self._paths: dict[str, str | None] = {}  # of local names; None: hidden by something else
        self._is_guarded = False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            package = alias.name.partition(".")[0]
            if package in PACKAGES:
                self._use(alias.name, node)
                # `import a.b` binds `a`, with `as` the whole path.
                self._bind(alias.asname or package, alias.name if alias.asname else package)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        # Relative imports are the program's own modules.
        if node.level or node.module is None or node.module.partition(".")[0] not in PACKAGES:
            return
        for alias in node.names:
            path = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
            self._use(path, node)
            if alias.name != "*":
                self._bind(alias.asname or alias.name, path)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path_of(node)
        if path is None:
            self.generic_visit(node)
        else:
            self._use(path, node)

    def visit_Call(self, node: ast.Call) -> None:
        path = self._path_of(node.func)
        for keyword in node.keywords:
            if path is not None and keyword.arg is not None and not self._is_guarded:
                # Arguments of a call that is guarded are as optional as the call.
                self.uses.add(Use(path, keyword.value.lineno, keyword.arg))
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        before = self._is_guarded
        self._is_guarded = before or any(map(_forgives, node.handlers))
        for statement in node.body:
            self.visit(statement)
        self._is_guarded = before
        # Only the body is guarded; the handlers are what the program does without the name.
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(part)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_function(node)

    def _visit_function(self, node: _Function) -> None:
        # Defaults are evaluated outside of the function, where its arguments hide nothing.
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        outer = self._paths
        self._paths = {**outer, **dict.fromkeys(_own_names(node))}
        inner = node.body if isinstance(node.body, list) else [node.body]
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        for part in (*decorators, *inner):
            self.visit(part)
        self._paths = outer

    def _use(self, path: str, node: ast.stmt | ast.expr) -> None:
        if not self._is_guarded:
            self.uses.add(Use(path, node.lineno))

    def _bind(self, name: str, path: str) -> None:
        # A guarded import may be another module in the end.
        self._paths[name] = None if self._is_guarded and name not in PACKAGES else path

    def _path_of(self, node: ast.expr) -> str | None:
        """Dotted path of `name` or `name.attribute…`, where the name was imported."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        path = self._paths.get(node.id) if isinstance(node, ast.Name) else None
        return None if path is None else ".".join([path, *reversed(attributes)])


def _forgives(handler: ast.ExceptHandler) -> bool:
    """Whether an `except` clause handles a name that is not there."""
    # A bare `except` handles everything.
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _FORGIVING for kind in kinds)


def _own_names(function: _Function) -> set[str]:
    """Arguments of a function and names that its body assigns, without those of functions inside."""
    arguments = function.args
    declared = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    names = {argument.arg for argument in declared if argument is not None}
    body = function.body if isinstance(function.body, list) else [function.body]
    for node in _without_functions(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _without_functions(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield node
        if not isinstance(node, _Function):
            yield from _without_functions(ast.iter_child_nodes(node))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the paths to read."""
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="FILE_OR_FOLDER", help="Python files, or folders of them"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one line per place; returns 1 when something is missing or cannot be read, else 0.

    Raises:
        SporaxValueError: a path does not exist.
    """
    files = list(python_files(arguments.paths))
    missing: set[str] = set()
    num_problems = 0
    for file in files:
        for line, name, text in problems_of(file):
            print(f"{file}:{line}: {text}")
            missing.add(name)
            num_problems += 1
    if num_problems:
        print(f"{num_problems} place(s) in {len(files)} file(s) use {len(missing)} name(s) that are not offered.")
    else:
        print(f"{len(files)} file(s): every name they use is offered.")
    return 1 if num_problems else 0


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files themselves, and all Python files below the folders, sorted; hidden folders are left out.

    Raises:
        SporaxValueError: a path does not exist.
    """
    for path in paths:
        if path.is_dir():
            inside = (file for file in sorted(path.rglob("*.py")) if file.is_file())
            # Hidden folders hold virtual environments and version control.
            yield from (file for file in inside if not any(part[0] == "." for part in file.relative_to(path).parts))
        elif path.is_file():
            yield path
        else:
            raise SporaxValueError(f"For 'sporax check', the path must exist, but got '{path}'.")


def problems_of(file: Path) -> Iterator[tuple[int, str, str]]:
    """Line, name and explanation of what is missing in one file."""
    try:
        uses = used_names(file.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError) as error:
        yield getattr(error, "lineno", None) or 1, str(file), f"cannot be read as Python: {error}"
        return
    for use in uses:
        text = problem(use.path, use.keyword)
        if text is not None:
            yield use.line, use.path, text


@cache
# The same names come up in many files, and looking them up imports modules.
def problem(path: str, keyword: str | None = None) -> str | None:
    """What is wrong with using `path`, or the argument `keyword` of it; None when it is there.

    Args:
        path: dotted name such as ``mindspore.nn.Dense``.
        keyword: name of an argument of a call; its name counts alone, not its value.
    """
    package, _, rest = path.partition(".")
    owner: object = importlib.import_module("sporax" if package == "sporax" else "sporax.mindspore")
    done = package
    for name in filter(None, rest.split(".")):
        # Only modules and classes have names that are known without running the program.
        if not isinstance(owner, (ModuleType, type)):
            return None  # an object: its attributes are known when it runs
        value = _member(owner, name)
        if value is None:
            if keyword is not None:
                return None  # the name's own use says it
            return f"'{done}.{name}' is not offered.{suggestion(owner.__name__, name)}"
        owner, done = value[0], f"{done}.{name}"
    if keyword is None or keyword in _keywords(owner):
        return None
    return f"'{done}' has no argument '{keyword}'."


def _member(owner: ModuleType | type, name: str) -> tuple[object] | None:
    """The attribute or submodule `name`, in a tuple; None when there is none."""
    try:
        # In a tuple, since the attribute itself may be None.
        value = getattr(owner, name)
        return None if isinstance(value, Placeholder) else (value,)
    except (AttributeError, SporaxError):
        pass
    # A class has no submodules.
    if isinstance(owner, type):
        return None
    try:
        return (importlib.import_module(f"{owner.__name__}.{name}"),)
    except ModuleNotFoundError:
        return None


class _Any:
    """Contains everything."""

    def __contains__(self, name: object) -> bool:
        return True


def _keywords(function: object) -> Iterable[str] | _Any:
    """Names of the arguments that a call of `function` may give by name."""
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]  # an error otherwise
    except (TypeError, ValueError):
        return _Any()
    # `**kwargs` may take any name.
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return _Any()
    return {parameter.name for parameter in parameters}
