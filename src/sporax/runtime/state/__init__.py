"""Variables and frames, constants of a trace, checks of values, trees of values."""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.runtime.state import frames, ordered_trees, trace_constants
    from sporax.runtime.state.trace_constants import ENDED, derive, is_constant, known, note

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
