"""Which local names statements read and write, and which are still needed after them.

Problem: an `if` on a tensor runs both of its branches, so the rewriter must know what a branch may change, and what of
that somebody reads later. Method: classic backward liveness analysis over structured code (Aho et al., Compilers, 9.2.5);
loops are passed twice, which reaches the fixed point. What is uncertain counts as needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef)


@dataclass(slots=True)
class Flow:
    """What is needed around one `if`, `while` or `for`.

    Attributes:
        after: names that are read after the statement.
        head: names that are read when a loop's test is evaluated, or by a later round.
    """

    after: frozenset[str] = frozenset()
    head: frozenset[str] = frozenset()


def inner_nodes(node: ast.AST | Iterable[ast.AST]) -> Iterable[ast.AST]:
    """`node` (or nodes) and all below that belong to the same function."""
    pending = [node] if isinstance(node, ast.AST) else list(node)
    while pending:
        current = pending.pop()
        yield current
        # Another function has its own variables; its decorators run here.
        if not isinstance(current, SCOPES):
            pending.extend(ast.iter_child_nodes(current))
        elif not isinstance(current, ast.Lambda):
            pending.extend(current.decorator_list)


def reads(node: ast.AST | Iterable[ast.AST]) -> set[str]:
    """Names that are read, by nested functions too."""
    nodes = [node] if isinstance(node, ast.AST) else list(node)
    names = set()
    for root in nodes:
        for inner in ast.walk(root):
            # `del x` needs that x is bound, so it counts as a read.
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load | ast.Del):
                names.add(inner.id)
            elif isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name):
                # `x += 1` reads x, though its context is a store.
                names.add(inner.target.id)
    return names


def writes(node: ast.AST | Iterable[ast.AST]) -> set[str]:
    """Local names that are bound or unbound; not those of comprehensions, which have a scope of their own."""
    names: set[str] = set()
    nodes = list(inner_nodes(node))
    # Since Python 3.12 these variables are in the same code, but in a scope of their own.
    own = {id(name) for root in nodes if isinstance(root, ast.comprehension) for name in ast.walk(root.target)}
    for inner in nodes:
        if id(inner) in own:
            continue
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store | ast.Del):
            names.add(inner.id)
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(inner.name)
        elif isinstance(inner, ast.Import | ast.ImportFrom):
            # ``import a.b`` binds a.
            names.update((alias.asname or alias.name).split(".")[0] for alias in inner.names)
        elif isinstance(inner, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and inner.name:
            names.add(inner.name)
    return names


def attribute_writes(node: ast.AST | Iterable[ast.AST]) -> set[tuple[str, str]]:
    """Attributes of local names that are set, as (name, attribute)."""
    return {
        (inner.value.id, inner.attr)
        for inner in inner_nodes(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and isinstance(inner.value, ast.Name)
    }


def captured(function: ast.AST) -> set[str]:
    """Names that nested functions read: they may be called at any time."""
    names = set()
    for inner in ast.walk(function):
        # A nested function may be called after the branch, and sees the variable as it is then.
        if inner is not function and isinstance(inner, FUNCTIONS):
            names |= reads(inner)
    return names


@dataclass(slots=True)
class Liveness:
    """Annotates the `if`s and loops of one function.

    Attributes:
        always: names that count as needed everywhere.
        flows: the result, by statement.
    """

    always: frozenset[str]
    flows: dict[ast.stmt, Flow] = field(default_factory=dict)
    _loops: list[tuple[frozenset[str], frozenset[str]]] = field(default_factory=list)  # needed after break, continue

    def block(self, statements: Iterable[ast.stmt], after: frozenset[str]) -> frozenset[str]:
        """Names needed before `statements`, when `after` are needed after them."""
        for statement in reversed(list(statements)):
            after = self._before(statement, after)
        return after

    def _before(self, node: ast.stmt, after: frozenset[str]) -> frozenset[str]:
        if isinstance(node, ast.If):
            self.flows[node] = Flow(after=after | self.always)
            return self.block(node.body, after) | self.block(node.orelse, after) | reads(node.test)
        if isinstance(node, ast.While | ast.For | ast.AsyncFor):
            return self._before_loop(node, after)
        if isinstance(node, ast.Return | ast.Raise):
            return frozenset(reads(node))
        if isinstance(node, ast.Break | ast.Continue):
            return self._loops[-1][isinstance(node, ast.Continue)] if self._loops else after
        if isinstance(node, ast.With | ast.AsyncWith):
            return self.block(node.body, after) | reads([item.context_expr for item in node.items])
        if isinstance(node, ast.Try | ast.Match) or type(node).__name__ == "TryStar":
            # An exception may happen at any place, so everything that is read counts as needed.
            needed = after | reads(node)
            for inner in ast.iter_child_nodes(node):
                for name in ("body",):
                    if isinstance(inner, ast.ExceptHandler | ast.match_case):
                        self.block(getattr(inner, name), needed)
            for name in ("body", "orelse", "finalbody"):
                self.block(getattr(node, name, []), needed)
            return needed
        # A name that is written before it is read is not needed earlier.
        return (after - writes(node)) | reads(node)

    def _before_loop(self, node: ast.While | ast.For | ast.AsyncFor, after: frozenset[str]) -> frozenset[str]:
        own = frozenset(reads(node.test)) if isinstance(node, ast.While) else frozenset()
        bound = frozenset() if isinstance(node, ast.While) else frozenset(writes(node.target))
        head = self.block(node.orelse, after) | own
        # Two passes reach the fixed point: what a round needs of the one before.
        for _ in range(2):
            self._loops.append((after, head))
            head = head | (self.block(node.body, head) - bound)
            self._loops.pop()
        self.flows[node] = Flow(after | self.always, head | self.always)
        return head | (frozenset() if isinstance(node, ast.While) else frozenset(reads(node.iter)))
