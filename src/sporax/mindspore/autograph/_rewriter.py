"""Python statements that may meet a tensor, rewritten into calls that can.

Problem: ``if x.sum() > 0:`` needs a bool that is not known while a step is being compiled. Method: branches and bodies
become local functions, which `sporax.mindspore.autograph.flow` calls as Python would, or traces both of. The functions share the
local variables with the rest through Python's own cells (`nonlocal`), so nothing else of the function changes.

    if test: A                def body(): nonlocal …; A
    else:    B        →       def orelse(): nonlocal …; B
                              flow.if_(test, body, orelse, …)

A `return`, `break` or `continue` under an `if` moves what follows into a function too (continuation passing), so each
branch runs to the end of the function or of the round:

    if test: return A         def after(): B
    B                 →       def body(): return A
                              def orelse(): return after()
                              return flow.if_jump(test, body, orelse, …)

Reference: AutoGraph (Moldovan et al. 2019) converts whole call trees this way in advance; here one function is converted
when a tensor is met in it. Every new node has the line of the statement it stands for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from sporax.mindspore.autograph._names import (
    SCOPES,
    Flow,
    Liveness,
    attribute_writes,
    captured,
    inner_nodes,
    reads,
    writes,
)

FLOW = "\0sporax.autograph.flow"
"""Stands for the module `flow` among the constants of rewritten code."""

PREFIX = "_flow_"
"""What names of new functions begin with; one underscore, since Python renames what begins with two in a class."""

_BUILTINS = {
    "int": "number",
    "float": "number",
    "bool": "number",
    "print": "print_",
    "max": "largest",
    # Both are one function, which looks at which built-in it was given.
    "min": "largest",
    "any": "truth",
    "all": "truth",
}

_COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


def rewrite(function: ast.FunctionDef | ast.Lambda, local_names: frozenset[str]) -> None:
    """Rewrite `function` in place.

    Args:
        function: its syntax tree.
        local_names: names of its variables, its own and those of functions around it.
    """
    if isinstance(function, ast.Lambda):
        function.body = _Expressions().visit(function.body)
        return
    _WithoutElse().visit(function)
    # Variables of nested functions count as needed everywhere.
    liveness = Liveness(frozenset(captured(function)))
    liveness.block(function.body, frozenset())
    outside = {
        name
        for node in inner_nodes(function.body)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    bound = sorted(writes(function.body) - outside - set(_parameters(function.args)))
    new = _Statements(function, liveness.flows, local_names).block(function.body, None)
    # The declarations make `nonlocal` in the new functions valid.
    function.body = [*_declared(bound), *new]
    ast.fix_missing_locations(function)


def never_bound(function: ast.AST) -> frozenset[str]:
    """Names that ``x += …`` alone binds: it would find nothing to add to."""
    if isinstance(function, ast.Lambda):
        return frozenset()
    body = list(inner_nodes(function.body))  # type: ignore[attr-defined]  # a function here
    added = {id(node.target) for node in body if isinstance(node, ast.AugAssign)}
    names = {node.target.id for node in body if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}
    stored = {
        node.id
        for node in body
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in added
    }
    declared = {name for node in body if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return frozenset(names - stored - declared - set(_parameters(function.args)))  # type: ignore[attr-defined]


def starts(names: Iterable[str]) -> list[ast.stmt]:
    """Statements that give local variables the values of global ones, where there are such."""
    return [
        ast.If(
            _call("is_global", ast.Constant(name)),
            [ast.Assign([_store(name)], _call("of_global", ast.Constant(name)))],
            [],
        )
        for name in sorted(names)
    ]


def _declared(names: list[str]) -> list[ast.stmt]:
    """Statements that never run, by which the compiler learns that these are variables of the function."""
    if not names:
        return []
    # `if 0` is dropped by the compiler after it has seen the names.
    return [ast.If(ast.Constant(0), [ast.Assign(list(map(_store, names)), ast.Constant(None))], [])]


def _jumps(nodes: Iterable[ast.AST], in_loop: bool = False) -> bool:
    """Whether statements leave the block they are in: by `return`, or by jumps of a loop around them."""
    for node in nodes:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break | ast.Continue) and not in_loop):
            return True
        if isinstance(node, SCOPES):
            continue
        inside = in_loop or isinstance(node, ast.While | ast.For | ast.AsyncFor)
        if _jumps(ast.iter_child_nodes(node), inside):
            return True
    return False


def _any_jump(nodes: Iterable[ast.AST]) -> bool:
    return any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in inner_nodes(nodes))


class _WithoutElse(ast.NodeTransformer):
    """``for … else`` and ``while … else`` as an `if` on a variable that says whether the loop has been left by `break`."""

    def __init__(self) -> None:
        self.count = 0

    def visit(self, node: ast.AST) -> Any:
        """The statements in place of a loop with `else`; nested functions are rewritten when a tensor is met in them."""
        if isinstance(node, SCOPES) and self.count:
            return node
        self.count += 1
        name = f"loop_{self.count}_has_ended"
        self.generic_visit(node)
        if not isinstance(node, ast.For | ast.While) or not node.orelse:
            return node
        orelse, node.orelse = node.orelse, []
        node.body = [new for statement in node.body for new in _MarkedBreaks(name).all_of(statement)]
        started = _placed(ast.Assign([_store(name)], ast.Constant(True)), node)
        return [started, node, _placed(ast.If(_load(name), orelse, []), node)]


class _MarkedBreaks(ast.NodeTransformer):
    """Sets a variable to False before each `break` of a loop."""

    def __init__(self, name: str) -> None:
        self.name = name

    def all_of(self, node: ast.stmt) -> list[ast.stmt]:
        """The statements in place of one."""
        new = self.visit(node)
        return new if isinstance(new, list) else [new]

    def visit(self, node: ast.AST) -> Any:
        """The statements in place of one; loops inside have breaks of their own."""
        if isinstance(node, ast.Break):
            return [_placed(ast.Assign([_store(self.name)], ast.Constant(False)), node), node]
        return node if isinstance(node, (ast.For, ast.While, *SCOPES)) else self.generic_visit(node)


class _Expressions(ast.NodeTransformer):
    """`and`, `or`, `not`, conditional expressions, chained comparisons, and built-in functions that need a number."""

    def visit(self, node: ast.AST) -> Any:
        """The rewritten form of an expression; functions and classes inside it stay as they are."""
        # They run later, in frames of their own.
        return node if isinstance(node, SCOPES) else super().visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        # A walrus or a `yield` would belong to the lambda.
        if _cannot_move(node):
            return node
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        # Lambdas, since the second operand must not be evaluated if the first decides.
        return _at(_call(name, *map(_thunk, node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return _at(_call("not_", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        if _cannot_move(node):
            return node
        call = _call("choose", node.test, _thunk(node.body), _thunk(node.orelse), ast.Constant(node.lineno))
        return _at(call, node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        # `in` needs a bool of each comparison.
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            name = "in_" if isinstance(node.ops[0], ast.In) else "not_in"
            return _at(_call(name, node.left, node.comparators[0]), node)
        # A single comparison gives a tensor by itself.
        if len(node.ops) == 1 or not all(type(op) in _COMPARISONS for op in node.ops) or _cannot_move(node):
            return node
        steps = [
            ast.Tuple([ast.Constant(_COMPARISONS[type(op)]), _thunk(right)], ast.Load())
            for op, right in zip(node.ops, node.comparators, strict=True)
        ]
        return _at(_call("chained", node.left, *steps), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        # Constants and slices are no tensors whose value could be missing.
        if not isinstance(node.ctx, ast.Load) or isinstance(node.slice, ast.Slice | ast.Tuple | ast.Constant):
            return node
        return _at(_call("item", node.value, node.slice), node)

    def visit_List(self, node: ast.List | ast.Tuple) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or not any(isinstance(part, ast.Starred) for part in node.elts):
            return node
        kind = ast.Constant(isinstance(node, ast.List))
        parts = [part.value if isinstance(part, ast.Starred) else ast.List([part], ast.Load()) for part in node.elts]
        return _at(_call("joined", kind, *parts), node)

    def visit_Tuple(self, node: ast.Tuple) -> Any:
        return self.visit_List(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        parts = getattr(node.targets[0], "elts", [])
        starred = [number for number, part in enumerate(parts) if isinstance(part, ast.Starred)]
        # How many elements a list has may depend on a tensor.
        if starred and len(node.targets) == 1:
            counts = (ast.Constant(starred[0]), ast.Constant(len(parts) - starred[0] - 1))
            node.value, parts[starred[0]] = _at(_call("unpacked", node.value, *counts), node), parts[starred[0]].value
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        # The name may have been bound again, so the function itself is passed and looked at.
        if isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
            node.args.insert(0, node.func)
            node.func = _attribute(_BUILTINS[node.func.id], node)
        return node


def _cannot_move(node: ast.AST) -> bool:
    """Whether an expression means something else inside a lambda."""
    return any(isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom) for part in ast.walk(node))


class _Statements:
    """Rewrites the statements of one function.

    `tail` is the name of the function that goes on where a block ends, or None where nothing follows. `_in_round` says
    whether the block belongs to a loop body that has become a function, whose jumps become results.
    """

    def __init__(self, function: ast.FunctionDef, flows: dict[ast.stmt, Flow], local_names: frozenset[str]) -> None:
        self._flows = flows
        self._locals = local_names
        self._written = frozenset(writes(function.body)) | frozenset(_parameters(function.args))
        self._global = {
            name for node in inner_nodes(function.body) if isinstance(node, ast.Global) for name in node.names
        }
        # `super()` without arguments needs the first parameter.
        self._first = next(iter(_parameters(function.args)), "")
        self._count = 0
        self._round = 0  # how many loop bodies around have become functions
        self._needed_in_round: frozenset[str] = frozenset()
        self._guarded = 0  # how many blocks are around that stay, and that jumps leave
        self._loops_that_stay = 0  # within this round

    def block(self, statements: list[ast.stmt], tail: str | None) -> list[ast.stmt]:
        """The statements of one block, rewritten; they end by calling `tail`."""
        result: list[ast.stmt] = []
        for position, node in enumerate(statements):
            rest = statements[position + 1 :]
            # A block that stays cannot be left from a new function.
            if isinstance(node, ast.If) and _jumps([node]) and not self._guarded:
                return result + self._jumping_if(node, rest, tail)
            if isinstance(node, ast.While | ast.For) and self._moves(node):
                new, returns = self._loop(node)
                result += new
                if returns:
                    return result + self._after_loop(node, rest, tail)
                continue
            result += self._statement(node)
        # A block that ends by a jump does not fall through.
        if tail is not None and not (statements and isinstance(statements[-1], _LEAVING)):
            end = statements[-1] if statements else None
            result.append(_placed(ast.Return(ast.Call(_load(tail), [], [])), end))
        return result

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.If):
            return self._plain_if(node)
        if isinstance(node, ast.Return):
            return [self._return(node)]
        # In a round that has become a function, jumps become results.
        if self._round and not self._loops_that_stay and isinstance(node, ast.Break | ast.Continue):
            name = "BREAK" if isinstance(node, ast.Break) else "CONTINUE"
            return [_placed(ast.Return(_attribute(name, node)), node)]
        if isinstance(node, ast.Assert):
            message = _thunk(self._expression(node.msg)) if node.msg else ast.Constant(None)
            # The message is made only if the assertion fails.
            call = _call("assert_", _thunk(self._expression(node.test)), message)
            return [_placed(ast.Expr(call), node)]
        if isinstance(node, ast.Raise) and node.exc is not None and node.cause is None:
            return [_placed(ast.Raise(_call("raised", self._expression(node.exc))), node)]
        # These stay statements: their meaning needs the frame.
        if isinstance(node, ast.With | ast.AsyncWith | ast.Try | ast.For | ast.While | ast.AsyncFor):
            return [self._compound(node)]
        if isinstance(node, SCOPES):
            # A nested function is rewritten when a tensor is met in it.
            return [node]
        return [self._expression(node)]

    def _return(self, node: ast.Return) -> ast.stmt:
        value = ast.Constant(None) if node.value is None else self._expression(node.value)
        return _placed(ast.Return(_call("returned", value) if self._round else value), node)

    def _compound(self, node: Any) -> ast.stmt:
        """A statement that stays, with its blocks rewritten."""
        # A jump out of a block that stays must stay a jump.
        guard, stays = _jumps([node]), isinstance(node, ast.For | ast.While | ast.AsyncFor)
        self._guarded += guard
        self._loops_that_stay += stays
        for field in ("body", "orelse", "finalbody"):
            if getattr(node, field, None):
                setattr(
                    node,
                    field,
                    [new for statement in getattr(node, field) for new in self._statement_within(statement)],
                )
        for handler in getattr(node, "handlers", []):
            handler.body = [new for statement in handler.body for new in self._statement_within(statement)]
        for field in ("iter", "test"):
            if hasattr(node, field):
                setattr(node, field, self._expression(getattr(node, field)))
        self._guarded -= guard
        self._loops_that_stay -= stays
        statement: ast.stmt = node
        return statement

    def _statement_within(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.While | ast.For) and self._moves(node) and not _jumps([node]):
            return self._loop(node)[0]
        if isinstance(node, ast.If) and _jumps([node]):
            node.test = self._expression(node.test)
            node.body = [new for statement in node.body for new in self._statement_within(statement)]
            node.orelse = [new for statement in node.orelse for new in self._statement_within(statement)]
            return [node]
        return self._statement(node)

    def _expression(self, node: Any) -> Any:
        if isinstance(node, ast.AST):
            _explicit_super(node, self._first)
        return _Expressions().visit(node)

    def _plain_if(self, node: ast.If) -> list[ast.stmt]:
        body, orelse = self._new_name("body"), self._new_name("orelse")
        first = self._function(body, node.body, self._inside(node.body), node)
        second = self._function(orelse, node.orelse, self._inside(node.orelse), node)
        # Only what is read later has to be joined.
        state = self._state(writes([*node.body, *node.orelse]), self._flows[node].after, [*node.body, *node.orelse])
        call = _call("if_", self._expression(node.test), _load(body), _load(orelse), *state, ast.Constant(node.lineno))
        return [first, second, _placed(ast.Expr(call), node)]

    def _inside(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return self.block(statements, None)

    def _jumping_if(self, node: ast.If, rest: list[ast.stmt], tail: str | None) -> list[ast.stmt]:
        new: list[ast.stmt] = []
        # What follows the `if` becomes a function that both ways end with.
        following = tail
        if rest:
            following = self._new_name("after")
            new.append(self._function(following, rest, self.block(rest, tail), node))
        body, orelse = self._new_name("body"), self._new_name("orelse")
        new.append(self._function(body, node.body, self.block(node.body, following), node))
        new.append(self._function(orelse, node.orelse, self.block(node.orelse, following), node))
        needed = self._needed_in_round if self._round else frozenset()
        # In a loop's round the next round may need more than what follows here.
        state = self._state(self._written, needed, [node, *rest])
        name = "if_jump" if self._round else "if_"
        call = _call(name, self._expression(node.test), _load(body), _load(orelse), *state, ast.Constant(node.lineno))
        new.append(_placed(ast.Return(call), node))
        return new

    def _moves(self, node: ast.While | ast.For) -> bool:
        """Whether a loop becomes a call: it may not be left alone, and its meaning can be kept."""
        if self._guarded and _jumps([node]):
            return False
        # A `for` over a list of known length is written out by tracing, which is faster.
        return isinstance(node, ast.While) or _any_jump(node.body) or _over_range(node)

    def _loop(self, node: ast.While | ast.For) -> tuple[list[ast.stmt], bool]:
        """Statements that run the loop, and whether it may return from the function."""
        flow = self._flows[node]
        outer = self._needed_in_round
        self._needed_in_round = flow.head | flow.after
        self._round += 1
        # A round is a function of its own, so what was around it does not count inside.
        around, self._guarded, self._loops_that_stay = (self._guarded, self._loops_that_stay), 0, 0
        inner = self.block(node.body, None)
        self._guarded, self._loops_that_stay = around
        self._round -= 1
        self._needed_in_round = outer
        body, written = self._new_name("body"), set(writes(node.body))
        # Returns from within the loop end the function, which the caller must know.
        returns = any(isinstance(inside, ast.Return) for inside in inner_nodes(node.body))
        if isinstance(node, ast.While):
            test = self._new_name("test")
            question = self._function(test, [], [_placed(ast.Return(self._expression(node.test)), node)], node)
            new = [question, self._function(body, node.body, inner, node)]
            what: ast.expr = _load(test)
            name = "while_"
        else:
            written |= writes(node.target)
            item = f"{PREFIX}item"
            # The body assigns the item itself, so the target may be any pattern.
            assign = _placed(ast.Assign([node.target], _load(item)), node)
            new = [self._function(body, [assign, *node.body], [assign, *inner], node, item)]
            name, what = "for_", self._iterable(node.iter)
        state = self._state(written, flow.head | flow.after, node.body)
        call = _call(name, what, _load(body), *state, ast.Constant(node.lineno))
        if returns:
            return [*new, _placed(ast.Assign([_store(f"{PREFIX}outcome")], call), node)], True
        return [*new, _placed(ast.Expr(call), node)], False

    def _iterable(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            node.args = [self._expression(arg) for arg in node.args]
            node.args.insert(0, node.func)
            node.func = _attribute("range_", node)
            return node
        items: ast.expr = self._expression(node)
        return items

    def _after_loop(self, node: ast.stmt, rest: list[ast.stmt], tail: str | None) -> list[ast.stmt]:
        following = self._new_name("after")
        needed = self._needed_in_round if self._round else frozenset()
        state = self._state(self._written, needed, [node, *rest])
        name = "round_after" if self._round else "after"
        call = _call(name, _load(f"{PREFIX}outcome"), _load(following), *state, ast.Constant(node.lineno))
        return [self._function(following, rest, self.block(rest, tail), node), _placed(ast.Return(call), node)]

    def _new_name(self, what: str) -> str:
        self._count += 1
        return f"{PREFIX}{what}_{self._count}"

    def _function(
        self, name: str, old: list[ast.stmt], new: list[ast.stmt], at: ast.stmt, argument: str = ""
    ) -> ast.stmt:
        """A local function of these statements; `old` are those that it was made of."""
        shared = sorted(writes(old) - self._global - {argument})
        world = sorted(writes(old) & self._global)
        body: list[ast.stmt] = []
        if shared:
            body.append(ast.Nonlocal(shared))
        if world:
            body.append(ast.Global(world))
        body += [node for node in new if not isinstance(node, ast.Global | ast.Nonlocal)]
        arguments = ast.arguments([], [ast.arg(argument)] if argument else [], None, [], [], None, [])
        function = ast.FunctionDef(name, arguments, body or [ast.Pass()], [])
        return _placed(function, at)

    def _state(self, written: Iterable[str], needed: frozenset[str], nodes: list[ast.stmt]) -> list[ast.expr]:
        """What the statement may set: names, those of them that are needed later, attributes."""
        names = sorted(frozenset(written) - self._global)
        # Every attribute must have an owner that can be found again.
        attributes = sorted(write for write in attribute_writes(nodes) if write[0] in self._locals | {self._first})
        return [
            _texts(names),
            _texts(name for name in names if name in needed),
            ast.Tuple(
                [ast.Tuple([_thunk(_load(name)), ast.Constant(attr)], ast.Load()) for name, attr in attributes],
                ast.Load(),
            ),
        ]


_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def _over_range(node: ast.For) -> bool:
    call = node.iter
    return (
        # All constants: the number of rounds is known, and the loop is written out.
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "range"
        and not call.keywords
        and not all(isinstance(arg, ast.Constant) for arg in call.args)
    )


def _explicit_super(node: ast.AST, first: str) -> None:
    """``super()`` finds its arguments in the frame it is called in, which will be another one."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "super" and first:
            inner.args = inner.args or [_load("__class__"), _load(first)]


def _parameters(arguments: ast.arguments) -> list[str]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [argument.arg for argument in every if argument is not None]


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def _thunk(node: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), node)


def _attribute(name: str, at: ast.AST | None = None) -> ast.Attribute:
    return ast.Attribute(ast.Constant(FLOW), name, ast.Load())


def _call(name: str, *args: Any) -> ast.Call:
    return ast.Call(_attribute(name), list(args), [])


def _placed(node: ast.stmt, at: ast.stmt | None) -> ast.stmt:
    """`node` with the line of `at`, where it and what is new below it have none."""
    return node if at is None else _at(node, at)


def _texts(texts: Iterable[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(text) for text in texts], ast.Load())


def _at(node: Any, at: Any) -> Any:
    """`node` on the first line of `at`: of statements over several lines Python would else report the last."""
    node.lineno = node.end_lineno = at.lineno
    node.col_offset, node.end_col_offset = at.col_offset, at.col_offset + 1
    return node


__all__ = ["FLOW", "PREFIX", "never_bound", "reads", "rewrite", "starts"]
