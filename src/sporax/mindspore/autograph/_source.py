"""From a running function to its source, and from rewritten source back into the function.

Problem: a tensor was met in the middle of a function, of which only the running frame is known. Method: parse the file it
came from, rewrite that one function in the syntax tree, compile the whole file again (so names, closures, ``super`` and
private names mean what they meant) and take the function's new code out of it. Every function object with the old code
gets the new one, so whoever holds the function calls the new code from now on; lines stay what they were.
"""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterator
from typing import Any

from sporax.base.errors import SporaxNotImplementedError
from sporax.mindspore.autograph import _rewriter, flow
from sporax.runtime.process import host_allocator
from sporax.runtime.session import SESSION

# By identity of code, which all functions made from one definition share.
_rewritten: set[types.CodeType] = set()


def is_rewritten(code: types.CodeType) -> bool:
    """Whether `code` is the result of a rewriting, or belongs to a piece of such a function."""
    return code in _rewritten


def rewrite(code: types.CodeType) -> None:
    """Give every function that runs `code` a rewritten form of it.

    Args:
        code: what a frame runs.

    Raises:
        SporaxNotImplementedError: there is no source, or the function cannot be rewritten.
    """
    tree = _parsed(code)
    node = _definition(tree, code)
    if isinstance(node, ast.AsyncFunctionDef) or code.co_flags & 0x20:  # a generator
        raise SporaxNotImplementedError(_refusal(code, "it is a generator or a coroutine"))
    local_names = frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    started = SESSION.started_as_globals.get(code, frozenset()) | _rewriter.never_bound(node) & local_names
    # Only the names of the original code are local variables.
    _rewriter.rewrite(node, local_names)
    new = _compiled(tree, node, code, started)
    # Pieces of the rewritten function count, too: a tensor met there must not rewrite again.
    _rewritten.update((new, *_nested(new)))
    _replace(code, new)


def start_as_global(code: types.CodeType, name: str) -> bool:
    """Give every function that runs `code` a form whose local variable `name` starts with the value of the global one.

    Args:
        code: what a frame runs.
        name: a local variable that was read before it was bound.

    Returns:
        Whether that could be done; not where the function has been rewritten already, or has no source.
    """
    started = SESSION.started_as_globals.get(code, frozenset())
    if is_rewritten(code) or name in started or name not in (*code.co_varnames, *code.co_cellvars):
        return False
    try:
        tree = _parsed(code)
        node = _definition(tree, code)
        if isinstance(node, ast.Lambda):
            return False
        new = _compiled(tree, node, code, started | {name})
    except SporaxNotImplementedError:
        return False
    _replace(code, new)
    return True


def _compiled(tree: ast.Module, node: Any, code: types.CodeType, started: frozenset[str]) -> types.CodeType:
    """The code of the function `node`, which is that of `code` in a new form; `started` start as the global names do."""
    if started:
        node.body = [*_rewriter.starts(started), *node.body]
    ast.fix_missing_locations(tree)
    # The whole file, so that names, closures and private names mean what they meant.
    module = compile(tree, code.co_filename, "exec", dont_inherit=True, flags=code.co_flags & _FUTURES)
    new = next((function for function in _nested(module) if _is_same(function, code)), None)
    # Equal free variables: the closure of the old function is used for the new code.
    if new is None or new.co_freevars != code.co_freevars:
        raise SporaxNotImplementedError(_refusal(code, "its source has changed since it was loaded"))
    new = _with_flow(new)
    if started:
        SESSION.started_as_globals[new] = started
    return new


# The flag of ``from __future__ import annotations``.
_FUTURES = 0x1000000


def _parsed(code: types.CodeType) -> ast.Module:
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise SporaxNotImplementedError(_refusal(code, "its source is not available"))
    return ast.parse("".join(lines), code.co_filename)


def _definition(tree: ast.Module, code: types.CodeType) -> Any:
    """The syntax tree of the function that `code` was compiled from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            # A function begins at its first decorator.
            if code.co_firstlineno == min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]):
                return node
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            # Several lambdas on one line are distinguished by their parameters.
            names = tuple(arg.arg for arg in (*node.args.posonlyargs, *node.args.args))
            if names == code.co_varnames[: code.co_argcount]:
                return node
    raise SporaxNotImplementedError(_refusal(code, "its source has changed since it was loaded"))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _nested(constant)


def _is_same(new: types.CodeType, old: types.CodeType) -> bool:
    return (new.co_name, new.co_qualname, new.co_firstlineno) == (old.co_name, old.co_qualname, old.co_firstlineno)


def _with_flow(code: types.CodeType) -> types.CodeType:
    """`code` with the module `flow`, which it calls, in place of its placeholder."""

    def constant(value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return _with_flow(value)
        return flow if isinstance(value, str) and value == _rewriter.FLOW else value

    # A constant, so that no name of the user's module can shadow it.
    return code.replace(co_consts=tuple(map(constant, code.co_consts)))


def _replace(old: types.CodeType, new: types.CodeType) -> None:
    """Put `new` where `old` is, in functions and in functions that make such functions."""
    # Closures and methods have functions of their own with the same code.
    for function in host_allocator.tracked_objects():
        if type(function) is types.FunctionType and function.__code__.co_filename == old.co_filename:
            code = _substituted(function.__code__, old, new)
            if code is not function.__code__:
                function.__code__ = code


def _substituted(code: types.CodeType, old: types.CodeType, new: types.CodeType) -> types.CodeType:
    if code is old:
        return new
    consts = tuple(
        _substituted(const, old, new) if isinstance(const, types.CodeType) else const for const in code.co_consts
    )
    # Unchanged code keeps its identity, by which others find it.
    if all(before is after for before, after in zip(code.co_consts, consts, strict=True)):
        return code
    result = code.replace(co_consts=consts)
    if code in _rewritten:
        _rewritten.add(result)
    return result


def _refusal(code: types.CodeType, reason: str) -> str:
    return (
        f"For '{code.co_name}', the value of a tensor decides which statements run, but the function cannot be rewritten: "
        f"{reason}.\n  In file {code.co_filename}, line {code.co_firstlineno}; use ops.cond, ops.where or ops.while_loop."
    )
