"""Programs of users who leave JAX's types as they are: floats and integers of 32 bits."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["dynamic", "ilp", "recursive", "propagation", "repeated_blocks"])
def test_a_program_with_types_of_32_bits_equals_one_device(mode):
    """In a process of its own, in which nothing has requested 64 bits: scan, while, constraints, keys, indices, bf16, optax."""
    program = Path(__file__).with_name("usual_types.py")
    done = subprocess.run([sys.executable, program, mode], capture_output=True, text=True, timeout=280, check=False)
    assert done.stdout == f"{mode}: step 2, float32\n", done.stderr
