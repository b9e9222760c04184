"""As much of Helm as the chart uses: values, the release's namespace, `if`, `else`, `range`."""

from __future__ import annotations

import re
from typing import Any

_EXPRESSION = re.compile(r"\{\{-? *(.*?) *-?\}\}")


def rendered(template: str, values: dict[str, Any], namespace: str) -> str:
    """A template, filled in."""
    lines, rest = _block(template.splitlines(), {"$.Values": values, "$.Release": {"Namespace": namespace}})
    assert not rest
    return "\n".join(lines) + "\n"


def _block(lines: list[str], scope: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Lines up to the end of a block, filled in, and those that follow, with the word that ended it."""
    done: list[str] = []
    while lines:
        line, lines = lines[0], lines[1:]
        words = _EXPRESSION.fullmatch(line.strip())
        command, _, subject = (words.group(1) if words else "").partition(" ")
        if command in ("end", "else"):
            return done, [command, *lines]
        if command in ("if", "range"):
            inner, lines = _inside(lines, scope, command, _value(subject, scope))
            done += inner
        else:
            done.append(_EXPRESSION.sub(lambda match: str(_value(match.group(1), scope)), line))
    return done, []


def _inside(lines: list[str], scope: dict[str, Any], command: str, value: Any) -> tuple[list[str], list[str]]:
    if command == "range":
        parts = [_block(lines, scope | {".": item})[0] for item in value]
        return [line for part in parts for line in part], _block(lines, scope | {".": ""})[1][1:]
    first, rest = _block(lines, scope)
    second: list[str] = []
    if rest[0] == "else":
        second, rest = _block(rest[1:], scope)
    return (first if value else second), rest[1:]


def _value(expression: str, scope: dict[str, Any]) -> Any:
    if expression == ".":
        return scope["."]
    place, _, name = expression.rpartition(".")
    return scope[place][name]
