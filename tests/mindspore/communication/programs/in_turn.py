"""Runs programs of this folder one after another in the same ranks, as starting processes is most of what a small one costs.

Each argument is a program and its arguments. Settings are set back after each, so that it finds those of a new process.
"""

import runpy
import shlex
import sys
from pathlib import Path

import sporax.mindspore as ms
from sporax.mindspore.communication import comm_func
from sporax.mindspore.context import reset_offload_context

for number, words in enumerate(sys.argv[1:]):
    program, *arguments = shlex.split(words)
    sys.argv = [str(Path(__file__).with_name(program)), *arguments]
    print(f"begins {number}:", flush=True)
    runpy.run_path(sys.argv[0], run_name="__main__")
    ms.reset_auto_parallel_context()
    ms.set_context(mode=ms.PYNATIVE_MODE, memory_offload="OFF")
    reset_offload_context()
    print(f"ends {number}.", flush=True)
    comm_func.barrier()  # a rank that fails in the next program ends all: nobody is still busy with this one
