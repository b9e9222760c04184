"""An API server's part in admission: the rules in a schema, run by an interpreter of the Common Expression Language.

It knows the functions that Kubernetes adds to the language no more than our rules need them (those of strings). What an API
server checks besides, the types and bounds of the schema and the cost of a rule, is not looked at here: `checked_by_server` runs an API
server's own code, where `make test-cluster` has built it (`tools/build_definition_checker.sh`).
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

NO_CHECKER = "no definition checker here: run `make test-cluster`, which builds one"


def checker() -> Path | None:
    """The program with a new API server's own checks; None if there is none."""
    place = os.environ.get("SPORAX_KUBE_ASSETS")
    binary = Path(place) / "definition-checker" if place else None
    return binary if binary is not None and binary.exists() else None


def checked_by_server(definition: dict[str, Any], objects: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """What an API server says of a custom resource definition, and of each object of its kind."""
    question = json.dumps({"definition": definition, "objects": objects})
    done = subprocess.run([str(checker())], input=question, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["definition"], answer["objects"]


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
