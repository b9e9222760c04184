"""`sporax checkpoint convert` that kills itself: `killed_conversion.py MOMENT SOURCE TARGET SOURCE_STRATEGY TARGET_STRATEGY`.

A moment is the so-many-th flush of a file or renaming of one, whichever comes; 0 is never.
"""

import itertools
import os
import sys
from pathlib import Path

from sporax.launch.cli import main

moment, source, target, source_strategy, target_strategy = int(sys.argv[1]), *sys.argv[2:]
events = itertools.count(1)


def counted(function):
    def call(*arguments, **options):
        if next(events) == moment:
            os.kill(os.getpid(), 9)
        return function(*arguments, **options)

    return call


os.fsync, os.replace = counted(os.fsync), counted(os.replace)
strategies = ["--src_strategy", source_strategy, "--dst_strategy", target_strategy]
suffix = "ckpt" if any(Path(source).rglob("*.ckpt")) else "safetensors"
sys.exit(main(["checkpoint", "convert", source, target, *strategies, "--format", suffix, "--quiet"]))
