"""What a module of the engine holds does not change: state is passed, or it belongs to an object that is.

Found in the syntax trees, per module: names that start as an empty list, dict or set or as another container that is there to be
filled, names whose content a function changes, and `global` statements. Caches of pure functions are no state.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import sporax

ENGINE = Path(sporax.__file__).parent

LEFT = {
    # The one place for what this process knows of its job.
    "runtime/session.py": {"SESSION"},
    # What the user waits for, for one line on the terminal. It is shown and never read back; `planner` names activities
    # and does not know the session.
    "base/progress.py": {"_activities"},
    # The public `register`: rules of primitives belong to the process as the primitives themselves do in JAX.
    "planner/rules/rule_table.py": {"_registered"},
    # A count that only has to differ from call to call; marks are made in traces, which know no session.
    "ir/marks.py": {"_numbers"},
}
"""What is left, each with its reason. The table may only shrink."""

_CONTAINERS = {
    "list",
    "dict",
    "set",
    "defaultdict",
    "Counter",
    "OrderedDict",
    "deque",
    "count",
    "ContextVar",
    "Session",
}
_WEAK = {"WeakKeyDictionary", "WeakValueDictionary", "WeakSet"}
_CHANGES = {
    *(
        "append",
        "appendleft",
        "add",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "reset",
        "set",
    ),
    *("setdefault", "update"),
}


def module_state(source: str) -> set[str]:
    """Names of a module whose content changes while the program runs."""
    tree = ast.parse(source)
    values = {name: value for node in tree.body for name, value in _assigned(node)}
    state = {name for name, value in values.items() if name != "__all__" and _is_to_be_filled(value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            state |= set(node.names)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            state |= (set(_changed(node)) & values.keys()) - _locals(node)
    return state


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
    if isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
        yield node.target.id, node.value


def _is_to_be_filled(value: ast.expr) -> bool:
    match value:
        case ast.List(elts=[]) | ast.Set(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(value=ast.Name(id=name))):
            return name in _CONTAINERS | _WEAK
    return False


def _changed(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _CHANGES:
                yield name


def _locals(function: ast.AST) -> set[str]:
    parameters = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    return parameters | {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def test_state_of_a_module_is_found():
    source = "a = []\nb: dict[str, int] = {}\nc = {1: 2}\nd = X()\ne = (1,)\nf = 0\n"
    changes = "def g(e):\n  global f\n  c[1] = 3\n  d.x = 4\n  e.append(1)\n"
    assert module_state(source) == {"a", "b"}
    assert module_state(source + changes) == {"a", "b", "c", "d", "f"}


def test_no_module_of_the_engine_holds_state_but_the_listed_ones():
    modules = (path for path in ENGINE.rglob("*.py") if "mindspore" not in path.relative_to(ENGINE).parts)
    states = {path.relative_to(ENGINE).as_posix(): module_state(path.read_text(encoding="utf-8")) for path in modules}
    assert {name: state for name, state in states.items() if state} == LEFT
