"""How warnings of Sporax are shown in a job: one line each, once, by rank 0.

Problem: Python prints a warning with a file and a line of source, in every process: in a job of eight ranks eight times, and the
line is often one of Sporax. Method: the messages of Sporax, which begin with ``For '…'``, are printed without source lines, once
in a process, and on rank 0 alone. Other warnings are shown as Python shows them, and with `sporax run --verbose` these are as
well, on every rank.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import TextIO

from sporax.cluster.environment import is_verbose
from sporax.launch.script_run import is_first

_OURS = "For '"


def install(environ: Mapping[str, str]) -> None:
    """Show warnings of this process so from now on; nothing is changed with ``SPORAX_VERBOSE=1``."""
    if is_verbose(environ):
        return
    before, printed = warnings.showwarning, set[str]()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = str(message)
        if category is not UserWarning or not text.startswith(_OURS):
            before(message, category, filename, lineno, file, line)
        elif text not in printed and is_first(environ):
            printed.add(text)
            print(f"sporax: warning: {text}", file=file or sys.stderr, flush=True)

    warnings.showwarning = show
