"""How a program requests passes, and the compiler options that go with them; without the passes, which most programs never load.

A program requests them by *tags* (`sporax.runtime.state.frames.note_tag`):

    "recompute"        calls or operators were marked for recomputation
    "recompute auto"   the planner chooses what is computed again
    "offload"          activations of marked Cells and operators wait in host memory
    "offload kept"     so does what recomputed Cells store
    "offload to files" what recomputed Cells store waits in files
    "host"             operators or variables belong on the host
    "rank sums"        numbers are combined over ranks
    "blocks"           repeated blocks should become loops
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import jax

from sporax.lowering.compiler_options import DISABLED_PASSES

AUTO = "recompute auto"
"""The tag of steps for which the planner chooses what is computed again."""
SAVED_ON_HOSTS = "offload kept"
"""The tag of steps that keep in host memory what recomputed Cells need."""
WAITING = frozenset(("offload", SAVED_ON_HOSTS))
"""The tags of steps with activations that wait for the backward pass in host memory."""
SAVED_IN_FILES = "offload to files"
"""The tag of steps that keep in files what recomputed Cells need."""
RANK_SUMS = "rank sums"
"""The tag of steps with `RankSumMark`s."""
BLOCKS = "blocks"
"""The tag of steps whose repeated blocks become loops."""


def compiler_options(tags: Collection[str]) -> Mapping[str, str]:
    """Options for programs that were rewritten.

    On CPUs XLA takes `optimization_barrier` away before it merges equal expressions, and finds that what is computed again
    is there already. Without that pass barriers stay to the end; they cost nothing.
    """
    ordered = {"recompute", AUTO, *WAITING, SAVED_IN_FILES}.intersection(tags)
    if (ordered or any(tag.startswith("files ") for tag in tags)) and jax.default_backend() == "cpu":
        return {DISABLED_PASSES: "cse_barrier_expander"}
    return {}
