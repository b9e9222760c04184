"""Record what the tools of `mindspore.parallel._tensor` of the real wheel answer for the cases of `tensor_tool_cases.py`.

Run with the Python of an environment that has the wheel: python tools/golden/make_tensor_tools.py
"""

import json
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests" / "mindspore" / "parallel"
sys.path.insert(0, str(TESTS))

import tensor_tool_cases

from mindspore.parallel import _tensor

if __name__ == "__main__":
    lines = ",\n".join(map(json.dumps, tensor_tool_cases.record(_tensor)))
    (TESTS / "golden_tensor_tools.json").write_text(f"[\n{lines}\n]\n")
