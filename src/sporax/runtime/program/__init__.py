"""Compiled programs: first trace, signature, variants, and what is checked when they run.

Names are loaded when they are first used: what is imported before the first program is made needs none of them.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.runtime.program.discovery import discover
    from sporax.runtime.program.program import Program

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
