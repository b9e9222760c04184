"""What someone meant who typed a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LEAST_SIMILARITY = 0.6
"""Share of equal letters (`difflib.SequenceMatcher.ratio`) from which on a name is offered."""


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """A question with the name of these initials (``lr``), or the most similar one, with a space in front; "" where none is.

    Letters may be of any case, and dashes stand for underscores.

    Example:
        >>> did_you_mean("h10", ["h100", "tpu-v5e"])
        " Did you mean 'h100'?"
    """
    plain = {_plain(name): name for name in reversed(list(names))}
    initials = [
        name for name in plain if "_" in name and "".join(part[:1] for part in name.split("_")) == _plain(str(word))
    ]
    near = initials or difflib.get_close_matches(_plain(str(word)), plain, 1, _LEAST_SIMILARITY)
    return f" Did you mean '{plain[near[0]]}'?" if near else ""


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")
