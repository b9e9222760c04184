"""The generated pages are in step with the code."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "tool", ["make_operator_docs.py", "make_api_docs.py", "make_coverage_docs.py", "make_rule_docs.py"]
)
def test_in_step(tool):
    result = subprocess.run([sys.executable, ROOT / "tools" / tool, "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
