"""What to write instead, under exceptions of Python that a script meets because a name of MindSpore is no function.

Problem: documents about MindSpore write ``Cell.pipeline_stage(0)`` for what is a property; Python then says "'NoneType' object is
not callable", and a property that has no value cannot say more. Method: the line of the script that failed tells which name it
was; the hint becomes a note of the exception, which Python prints below it. For a keyword argument that is misspelled the message
has the function's name, and its signature the names that there are.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from types import TracebackType

from sporax.base.suggestions import did_you_mean

_PACKAGE = "sporax.mindspore"
_UNKNOWN_KEYWORD = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
_CALLED_PROPERTY = re.compile(r"(\w+)\.(pipeline_stage|pipeline_segment)\s*\(\s*([^()]*?)\s*\)")


def add_hint(error: BaseException, frames: TracebackType | None) -> None:
    """Add a note to an exception that left a script, where its line shows what was meant.

    Args:
        error: the exception.
        frames: its frames, from the script's first one on.
    """
    if not isinstance(error, TypeError):
        return
    unknown = _UNKNOWN_KEYWORD.search(str(error))
    if unknown is not None:
        hint = did_you_mean(unknown[2], _parameters_of(unknown[1]))
        if hint and "Did you mean" not in str(error):
            error.add_note(f"For '{unknown[1].removesuffix('.__init__')}', there is no argument '{unknown[2]}'.{hint}")
    if not str(error).endswith("object is not callable") or frames is None:
        return
    while frames.tb_next is not None:
        frames = frames.tb_next
    line = linecache.getline(frames.tb_frame.f_code.co_filename, frames.tb_lineno)
    found = _CALLED_PROPERTY.search(line)
    if found is not None:
        cell, name, value = found.groups()
        error.add_note(f"For 'Cell', '{name}' is a property and no method: write `{cell}.{name} = {value or 'stage'}`.")


def _parameters_of(name: str) -> list[str]:
    """The parameters of a function of Sporax, by its qualified name; none where there is no such function."""
    head, *rest = name.split(".")
    for module_name, module in list(sys.modules.items()):
        found = vars(module).get(head) if module_name.startswith(_PACKAGE) else None
        for part in rest:
            found = getattr(found, part, None)
        if callable(found) and getattr(found, "__qualname__", "") == name and module_name == found.__module__:
            return list(inspect.signature(found).parameters)
    return []
