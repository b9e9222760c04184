"""What to write instead, under exceptions of Python that a script meets because a name of MindSpore is no function.

Problem: documents about MindSpore write ``Cell.pipeline_stage(0)`` for what is a property; Python then says "'NoneType' object is
not callable", and a property that has no value cannot say more. Method: the line of the script that failed tells which name it
was; the hint becomes a note of the exception, which Python prints below it.
"""

from __future__ import annotations

import linecache
import re
from types import TracebackType

_CALLED_PROPERTY = re.compile(r"(\w+)\.(pipeline_stage|pipeline_segment)\s*\(\s*([^()]*?)\s*\)")


def add_hint(error: BaseException, frames: TracebackType | None) -> None:
    """Add a note to an exception that left a script, where its line shows what was meant.

    Args:
        error: the exception.
        frames: its frames, from the script's first one on.
    """
    if not isinstance(error, TypeError) or not str(error).endswith("object is not callable") or frames is None:
        return
    while frames.tb_next is not None:
        frames = frames.tb_next
    line = linecache.getline(frames.tb_frame.f_code.co_filename, frames.tb_lineno)
    found = _CALLED_PROPERTY.search(line)
    if found is not None:
        cell, name, value = found.groups()
        error.add_note(f"For 'Cell', '{name}' is a property and no method: write `{cell}.{name} = {value or 'stage'}`.")
