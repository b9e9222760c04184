"""Names of MindSpore's that a recorded case needs and Sporax does not have: such a case is skipped, and counted in docs."""

import ast
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import api_facts

import sporax.mindspore as ms

NAMES = {
    place: set(names)
    for place, names in json.loads((Path(__file__).parent / "names.json").read_text())["names"].items()
}
#: What the cases call the places that names are looked up in.
PLACES = {"ms": "", "nn": "nn", "ops": "ops", "I": "common.initializer", "Tensor": "Tensor"}


def absent(code: str) -> Iterator[str]:
    """Names that `code` takes from MindSpore's modules, or methods of its Tensor, that Sporax does not have."""
    attributes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)]
    for node in attributes:
        root, *path = ast.unparse(node).split(".")
        place, name = ".".join([PLACES[root], *path[:-1]]).strip(".") if root in PLACES else None, node.attr
        if place in NAMES:
            if name in NAMES[place] and not hasattr(_owner(place), name):
                yield f"{place}.{name}"
        elif name in NAMES["Tensor"] - NAMES["nn.Cell"] and not hasattr(ms.Tensor, name):
            yield f"Tensor.{name}"


@functools.cache
def _owner(place: str) -> Any:
    return (
        api_facts.resolve(api_facts.OURS, place)
        if place in api_facts.CLASSES
        else api_facts.load(api_facts.OURS, place)
    )
