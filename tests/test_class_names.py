"""A class name stands for one thing in the engine: no public name belongs to two classes."""

import ast
from collections import Counter
from pathlib import Path

import sporax

ENGINE = Path(sporax.__file__).parent


def public_classes() -> list[str]:
    modules = (path for path in ENGINE.rglob("*.py") if "mindspore" not in path.relative_to(ENGINE).parts)
    return [
        node.name
        for path in modules
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def test_no_public_class_name_stands_twice_in_the_engine():
    counts = Counter(public_classes())
    assert [name for name, count in counts.items() if count > 1] == []
