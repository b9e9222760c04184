"""What of communication is not hidden behind computing.

Problem: collectives run while kernels compute, as far as programs arrange it: weights are gathered ahead, gradients reduced
behind, activations between two products seldom.

Method: a kind of transfer hides behind at most a share of the computing that there is for it (`HardwareProfile.hidden`). With
plenty of computing all of it is hidden; where transfers take longer, the rest shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_BACKWARD = 2 / 3
"""Share of computing that is the backward pass, behind which gradients hide: two products of three."""


def exposed(transfers: Any, computing: Any, hidden: Any) -> Any:
    """Seconds of transfers that show: a number, or an array of several steps.

    Args:
        transfers: their seconds.
        computing: seconds of computing that they may hide behind.
        hidden: the share of these that they can, from 0 to 1.

    Example:
        >>> exposed(3.0, 4.0, 0.5)
        1.0
    """
    left = np.maximum(transfers - hidden * computing, 0.0)
    return float(left) if np.ndim(left) == 0 else left


def exposed_shares(transfers: Mapping[str, float], computing: float, hidden: Mapping[str, float]) -> dict[str, float]:
    """By kind of transfer the share of its seconds that shows.

    Args:
        transfers: seconds by kind, as of `PlanCost.by_overlap`.
        computing: seconds of computing; weights are gathered ahead of all of it, gradients are reduced behind the backward pass.
        hidden: as in `HardwareProfile.hidden`.
    """
    behind = {"weights": computing, "gradients": computing * _BACKWARD}
    return {
        kind: exposed(seconds, behind.get(kind, 0.0), hidden.get(kind, 0.0)) / seconds if seconds else 1.0
        for kind, seconds in transfers.items()
    }
