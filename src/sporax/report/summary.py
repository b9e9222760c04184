"""The summary of a plan: its view model with the three ways to show it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape

import msgspec

from sporax.report.render.html import page
from sporax.report.render.text import plain_text
from sporax.report.view.plan_view import PlanView


@dataclass(frozen=True, slots=True)
class Summary(PlanView):
    """A plan for people. ``str(summary)`` is a table of at most 120 columns."""

    def __str__(self) -> str:
        return plain_text(self)

    def of_script(self, script: str) -> Summary:
        """The same, with the name of the program that was planned in its headline."""
        return replace(self, headline=replace(self.headline, script=script))

    def under(self, limit_bytes: int) -> Summary:
        """The same, with the memory that the user has set for a device in its headline."""
        return replace(self, headline=replace(self.headline, limit_bytes=limit_bytes))

    def to_json(self) -> str:
        """All of it as a JSON object, keys as the attributes here."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks: its styles and its search are its own."""
        return f'<iframe srcdoc="{escape(self.to_html())}" style="width: 100%; height: 40em; border: 0"></iframe>'

    def to_html(self) -> str:
        """A page for a browser, with styles and pictures inside."""
        return page(self)
