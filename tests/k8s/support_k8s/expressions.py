"""An API server's part in admission: the rules in a schema, run by an interpreter of the Common Expression Language.

It knows the functions that Kubernetes adds to the language no more than our rules need them (those of strings). What an API
server checks besides, the types and bounds of the schema and the cost of a rule, is not looked at here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings


@cache
def _compiled(rule: str) -> Any:
    environment = cel.NewEnv(variables={"self": cel.Type.DYN}, extensions=[ext_strings.ExtStrings()])
    program = environment.compile(rule)
    assert program.return_type() == cel.Type.BOOL, rule
    return program


def refusals(schema: dict[str, Any], value: Any) -> list[str]:
    """The messages of the rules that a value breaks, with defaults filled in as an API server does before."""
    return [message for place, rules in _filled(schema, value) for message in _broken(rules, place)]


def _broken(rules: list[dict[str, str]], value: Any) -> list[str]:
    broken = []
    for rule in rules:
        verdict = _compiled(rule["rule"]).eval(data={"self": value}).plain_value()
        assert isinstance(verdict, bool), (rule, verdict)
        if not verdict:
            broken.append(rule["message"])
    return broken


def _filled(schema: dict[str, Any], value: Any) -> list[tuple[Any, list[dict[str, str]]]]:
    """Values with rules; as a side effect the defaults are filled in."""
    found = []
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name, part in properties.items():
            if "default" in part:
                value.setdefault(name, part["default"])
        for name, item in value.items():
            part = properties.get(name, schema.get("additionalProperties"))
            found += _filled(part, item) if isinstance(part, dict) else []
    elif isinstance(value, list):
        for item in value:
            found += _filled(schema.get("items", {}), item)
    return [*found, (value, schema.get("x-kubernetes-validations", []))]
