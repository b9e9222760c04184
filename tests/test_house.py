"""The measures of the code base, and the budget that no change may exceed."""

import ast
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sporax.base.lazy_names import homes

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("measure_house", ROOT / "tools" / "measure_house.py")
measure_house = importlib.util.module_from_spec(_spec)
sys.modules["measure_house"] = measure_house  # dataclasses look their module up
_spec.loader.exec_module(measure_house)

BUDGET = json.loads((Path(__file__).parent / "house_budget.json").read_text())
"""For each package the most that may be measured. Who needs more changes the file in the same commit and says why."""

FILES = {
    "house/__init__.py": "",
    "house/cellar/__init__.py": "",
    "house/cellar/wine.py": "from typing import Any\n\nx: Any = 1  # type: ignore[assignment]\n",
    "house/cellar/rack.py": "from house.cellar import wine\n",
    "house/roof/__init__.py": "",
    "house/roof/tiles.py": (
        "import house.cellar.rack\n\n\ndef late():\n    from house.roof import gutter\n    import json\n\n    return gutter, json\n"
    ),
    "house/roof/gutter.py": "from house.roof.tiles import late\n",
}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "house"


def test_a_package_is_measured_from_its_text(house: Path) -> None:
    found = measure_house.measured(house)
    assert set(found) == {"cellar", "roof", "engine", "whole"}
    assert (found["cellar"].files, found["cellar"].lines, found["cellar"].ignores) == (3, 4, 1)
    assert found["cellar"].anys == 1
    assert (found["cellar"].levels, found["roof"].levels, found["whole"].levels) == (2, 2, 4)
    assert (found["roof"].late, found["cellar"].late) == (1, 0)
    assert found["whole"].most_files_in_a_folder == 3


def test_modules_that_import_each_other_are_one_level(house: Path) -> None:
    before = measure_house.measured(house)["roof"].levels
    (house / "roof" / "tiles.py").write_text("import house.roof.gutter\n\n\ndef late(): ...\n")
    assert measure_house.measured(house)["roof"].levels == before - 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 1", 1),
        ("if a and b or c:\n        return 1", 4),
        ("for x in a:\n        pass\n    else:\n        pass", 3),
        ("return [x for x in a if x if b]", 4),
        ("try:\n        pass\n    except A:\n        pass\n    except B:\n        pass", 3),
        (
            "match a:\n        case 1:\n            pass\n        case 2:\n            pass\n        case _:\n            pass",
            3,
        ),
        ("def inner():\n        if a:\n            pass\n    return inner", 1),
    ],
)
def test_complexity_counts_as_radon_does(body: str, expected: int) -> None:
    (function,) = measure_house.ast.parse(f"def f(a, b, c):\n    {body}\n").body
    assert measure_house.complexity(function) == expected


def test_every_package_keeps_its_budget() -> None:
    measured = measure_house.measured()
    assert set(BUDGET) == set(measured)
    figures = {(package, name): getattr(measured[package], name) for package, most in BUDGET.items() for name in most}
    over = {
        key: f"{value}, at most {BUDGET[key[0]][key[1]]}"
        for key, value in figures.items()
        if value > BUDGET[key[0]][key[1]]
    }
    assert not over, f"{over}; tools/measure_house.py shows all figures"


DOORS = {
    "sporax",
    *("sporax.base", "sporax.base.errors", "sporax.base.lazy_members", "sporax.base.lazy_names", "sporax.cluster"),
    *("sporax.ir", "sporax.ir.config", "sporax.ir.operator_dims"),
    *(
        "sporax.lowering",
        "sporax.lowering.marks",
        "sporax.lowering.passes",
        "sporax.planner",
        "sporax.ps.worker.row_cache",
        "sporax.ps.worker.server_connection",
        "sporax.report.console",
    ),
    *(
        "sporax.runtime",
        "sporax.runtime.devices",
        "sporax.runtime.planned",
        "sporax.runtime.process",
        "sporax.runtime.program",
    ),
    *("sporax.runtime.ranks", "sporax.runtime.session", "sporax.runtime.state", "sporax.runtime.storage"),
}
"""What MindSpore's side may import of the engine. Packages among them list their names for type checkers."""


def engine_imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The engine's modules that a module of the other side imports, type checkers' included, with the names it takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "sporax")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sporax":
            yield from ((str(node.module), alias.name) for alias in node.names)


def test_the_wing_enters_the_engine_through_its_doors() -> None:
    assert len(DOORS) <= 25
    wing = [module for module in measure_house.modules() if module.name.startswith("sporax.mindspore")]
    found = {
        (f"{path}.{name}" if f"{path}.{name}" in DOORS else path, name)
        for module in wing
        for path, name in engine_imports(module.tree)
        if not path.startswith("sporax.mindspore") and (path, name) != ("sporax", "mindspore")
    }
    assert len(found) > 100
    assert {path for path, _ in found} == DOORS
    listed = {path: {*vars(importlib.import_module(path)), *homes(path)} for path in DOORS}
    assert not {(path, name) for path, name in found if not path.endswith(f".{name}") and name not in listed[path]}
