"""Options for XLA, which several places want at once.

Problem: one option holds the names of all passes of the compiler that are switched off, so of two places that switch one off the
later would replace the first. Method: options are joined here.
"""

from __future__ import annotations

from collections.abc import Mapping

DISABLED_PASSES = "xla_disable_hlo_passes"
"""The option that lists passes of the compiler that do not run, with commas."""


def merged_options(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """Options of both; lists of passes that are switched off are joined."""
    lists = [options[DISABLED_PASSES] for options in (first, second) if DISABLED_PASSES in options]
    return {**first, **second, **({DISABLED_PASSES: ",".join(lists)} if lists else {})}
