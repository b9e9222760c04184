"""Record the public names and the signatures of the real MindSpore wheel.

Run it with a Python that has MindSpore 2.10 (CPU), and nothing of this project:

    python tools/golden/make_api.py

It writes `tests/mindspore/golden/names.json` and `tests/mindspore/golden/signatures.json`: what a table of coverage, and the
test of our own signatures, are made from.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "tests" / "mindspore" / "golden"
sys.path.insert(0, str(GOLDEN))

import api_facts

import mindspore as ms


def dump(key: str, entries: dict[str, Any]) -> str:
    """JSON with one entry a line."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
    return f'{{"mindspore": {json.dumps(ms.__version__)}, {json.dumps(key)}: {{\n{lines}\n}}}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description="Record MindSpore's public names and signatures.")
    parser.add_argument("--directory", type=Path, default=GOLDEN)
    directory = parser.parse_args().directory
    names, signatures = api_facts.names("mindspore"), api_facts.signatures("mindspore")
    (directory / "names.json").write_text(dump("names", names))
    (directory / "signatures.json").write_text(dump("signatures", signatures))
    print(f"{sum(map(len, names.values()))} names in {len(names)} places, {len(signatures)} signatures")


if __name__ == "__main__":
    main()
