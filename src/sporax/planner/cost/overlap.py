"""What of communication is not hidden behind computing.

Problem: collectives run while kernels compute, as far as programs arrange it: weights are gathered ahead, gradients reduced
behind, activations between two products seldom.

Method: a kind of transfer hides behind at most a share of the computing that there is for it (`HardwareProfile.hidden`). With
plenty of computing all of it is hidden; where transfers take longer, the rest shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np


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
