"""The measures of the code base, and the budget that no change may exceed."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

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
