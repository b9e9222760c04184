"""Record what the data sets of the real MindSpore wheel read from the files of `tests/mindspore/dataset/source_files.py`.

Run it with a Python that has MindSpore 2.10 (CPU), numpy, scipy and Pillow, and nothing of this project:

    python tools/golden/make_sources.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests" / "mindspore" / "dataset"
sys.path.insert(0, str(TESTS))

import source_cases
import source_files

import mindspore.dataset as ds


def record(name: str, files: str, arguments: str, root: str) -> dict[str, Any]:
    """What one case gives, or the error that it ends in."""
    folder = source_files.write(files, root)
    try:
        return source_cases.read(ds, name, arguments, folder)
    except Exception as error:
        return {"error": type(error).__name__}


if __name__ == "__main__":
    ds.config.set_num_parallel_workers(1)
    outcomes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as root:
        for name, cases in source_cases.CASES.items():
            for files, arguments in cases:
                outcomes[f"{name}({arguments})"] = record(name, files, arguments, root)
    lines = ",\n".join(
        f"{json.dumps(case)}: {json.dumps(outcome, ensure_ascii=False)}" for case, outcome in outcomes.items()
    )
    (TESTS / "golden_sources.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    print(f"golden_sources.json: {len(outcomes)} cases")
