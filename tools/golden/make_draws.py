"""What MindSpore's random transforms draw with a seed.

Run with an interpreter that has the wheel:

    python tools/golden/make_draws.py

Writes tests/mindspore/dataset/golden_draws.json: for each case of draw_cases.py, check sums of the images that it makes.
"""

import json
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests/mindspore/dataset"
sys.path.insert(0, str(TESTS))

from draw_cases import CASES, sums_of

import mindspore.dataset as ds
from mindspore.dataset import transforms, vision

facts = {case: sums_of(case, ds, vision, transforms) for case in CASES}
(TESTS / "golden_draws.json").write_text(json.dumps(facts, indent=0) + "\n")
