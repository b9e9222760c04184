"""Temporaries of a step are the memory of the step before."""

import os
import subprocess
import sys

import pytest

from sporax.runtime.process.host_allocator import keep_freed_memory

# Products read all of their operands, so the temporaries of 64 MB are not fused away.
PROGRAM = """
import resource
import numpy as np
import sporax.mindspore as ms
from sporax.mindspore import Tensor, ops

@ms.jit
def step(x):
    y = ops.matmul(x, x.T)
    return ops.matmul(y, ops.matmul(y, x)).sum()

x = Tensor(np.ones((4000, 8), np.float32))
for _ in range(2):
    step(x).asnumpy()
faults = []
for _ in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step(x).asnumpy()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(faults)[2])  # the heap may grow in one of them
"""


def faults_of_a_step(**changes):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=kept | changes, capture_output=True, text=True, check=True
    )
    return float(run.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_steps_need_no_pages_from_the_system_unless_requested_to():
    assert faults_of_a_step() < 100
    assert faults_of_a_step(SPORAX_KEEP_MEMORY="0") > 10_000


@pytest.mark.parametrize(
    "environ", [{"SPORAX_KEEP_MEMORY": "0"}, {"MALLOC_ARENA_MAX": "4"}, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}]
)
def test_settings_of_the_user_are_left_as_they_are(environ):
    assert keep_freed_memory(environ) is False
