"""Classes of MindSpore's that have no counterpart: making one says why, and what to do instead."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxNotImplementedError


class TransferDataset:
    """A queue of batches on the device, which does not exist here.

    Raises:
        SporaxNotImplementedError: always.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise SporaxNotImplementedError(
            "For 'TransferDataset', there is no queue on the device; 'Model.train' with sink mode, 'data_sink' and "
            "'DatasetHelper' fetch batches ahead."
        )
