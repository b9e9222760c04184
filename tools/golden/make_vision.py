"""Record what the image transforms of the real MindSpore wheel give for the cases of `tests/mindspore/dataset/vision_cases.py`.

Run it with a Python that has MindSpore 2.10 (CPU), numpy and Pillow, and nothing of this project:

    python tools/golden/make_vision.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

TESTS = Path(__file__).parents[2] / "tests" / "mindspore" / "dataset"
sys.path.insert(0, str(TESTS))

import vision_cases

from mindspore.dataset import vision


def record(case: str, kind: str) -> dict[str, Any]:
    """What one case gives."""
    names = {"np": np, **{name: getattr(vision, name) for name in dir(vision)}}
    image = vision_cases.INPUTS[kind]
    result = eval(case, names)(Image.fromarray(image) if kind == "pil" else image)
    results = result if isinstance(result, tuple) else (result,)
    return {"case": case, "input": kind, "outputs": [described(np.asarray(each)) for each in results]}


def described(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """An array as JSON holds it."""
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": array.ravel().tolist()}


if __name__ == "__main__":
    recorded = [json.dumps(record(case, kind)) for case, kind in vision_cases.CASES]
    (TESTS / "golden_vision.json").write_text("[\n" + ",\n".join(recorded) + "\n]\n")
    print(f"golden_vision.json: {len(recorded)} cases")
