"""Record in which files of the real MindSpore wheel its public names are defined, since scripts import from these paths.

Run it with a Python that has MindSpore 2.10 (CPU) and numpy, and nothing of this project:

    python tools/golden/make_module_paths.py

It writes `tests/mindspore/golden/module_paths.json`: public module -> path of a file -> names, separated by spaces. Left out are
files of the compiler, those with a leading underscore, and what a module has from another package.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import defaultdict
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(GOLDEN))

import api_facts

MODULES = """
    mindspore mindspore.common.initializer mindspore.nn mindspore.ops mindspore.ops.operations mindspore.mint mindspore.mint.nn
    mindspore.mint.optim mindspore.experimental.optim mindspore.train mindspore.dataset mindspore.dataset.vision
    mindspore.dataset.transforms mindspore.dataset.text mindspore.parallel mindspore.parallel.nn mindspore.communication
    mindspore.communication.comm_func
""".split()
INTERNAL = ("graph", "rewrite", "safeguard", "runtime", "profiler", "device_manager", "run_check", "log")


def paths_of(module: str) -> dict[str, str]:
    """Where the public names of a module are defined: path -> names, separated by spaces."""
    shown = importlib.import_module(module)
    found = defaultdict(list)
    for name in api_facts.public(shown):
        value = getattr(shown, name, None)
        path = getattr(value, "__module__", None)
        if not isinstance(path, str) or getattr(value, "__name__", None) != name or path == module:
            continue
        parts = path.split(".")
        own = parts[:2] == module.split(".")[:2] or (module == "mindspore" and parts[1] != "ops")
        if (
            parts[0] == "mindspore"
            and own
            and parts[1] not in INTERNAL
            and not any(part.startswith("_") for part in parts)
        ):
            found[path.removeprefix("mindspore.")].append(name)
    return {path: " ".join(sorted(names)) for path, names in sorted(found.items())}


if __name__ == "__main__":
    record = {module.removeprefix("mindspore").removeprefix("."): paths_of(module) for module in MODULES}
    (GOLDEN / "module_paths.json").write_text(json.dumps(record, indent=1) + "\n")
