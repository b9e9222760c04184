"""Record the golden loss curves of `tests/mindspore/golden/curve_recipes.py` under the real MindSpore wheel.

Run it with a Python that has MindSpore 2.10 (CPU) and numpy, and nothing of this project:

    python tools/golden/make_golden.py

Each recipe runs in GRAPH_MODE and again in PYNATIVE_MODE; the curves of graph mode are written, and the largest
relative difference between the two modes is printed: it says how much of a tolerance rounding alone uses up.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(GOLDEN))

import curve_recipes

import mindspore as ms

MODE_TOLERANCE = 1e-4


def curves(mode: int) -> dict[str, list[float]]:
    """The losses of every recipe in `mode`."""
    ms.set_context(mode=mode)
    return {name: curve_recipes.run(ms, name) for name in curve_recipes.RECIPES}


def disagreement(first: list[float], second: list[float]) -> float:
    """Largest relative difference between two curves."""
    return max(abs(a - b) / abs(a) for a, b in zip(first, second, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Record golden loss curves under MindSpore.")
    parser.add_argument("--output", type=Path, default=GOLDEN / "curves.json")
    output = parser.parse_args().output
    graph, pynative = curves(ms.GRAPH_MODE), curves(ms.PYNATIVE_MODE)
    for name, losses in graph.items():
        difference = disagreement(losses, pynative[name])
        print(f"{name:24} {losses[0]:.4f} -> {losses[-1]:.4f}   graph against pynative {difference:.1e}")
        if difference > MODE_TOLERANCE:
            raise SystemExit(f"{name}: the two modes of MindSpore differ by {difference:.1e}")
    rounded = {name: [float(f"{loss:.9g}") for loss in losses] for name, losses in graph.items()}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(losses)}" for name, losses in rounded.items())
    output.write_text(f'{{"mindspore": {json.dumps(ms.__version__)}, "curves": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
