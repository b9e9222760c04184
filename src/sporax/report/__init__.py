"""What people see of a plan: its view model (`view`, `summarize`), text and pages (`render`), `questions`."""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.report.console import show_plan
    from sporax.report.render.placement_picture import picture

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
