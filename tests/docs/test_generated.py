"""The generated pages are in step with the code."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("pages", ["operator", "api", "coverage", "jax_coverage", "rule"])
def test_in_step(pages):
    tool = ROOT / "tools" / f"make_{pages}_docs.py"
    result = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
