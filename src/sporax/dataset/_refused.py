"""Classes of MindSpore's that have no counterpart: making one says why, and what to do instead."""

from __future__ import annotations

from typing import Any

from sporax.ir.errors import SporaxNotImplementedError


class DatasetCache:
    """A connection to MindSpore's cache server, a program of its own, which does not exist here.

    Raises:
        SporaxNotImplementedError: always.
    """

    def __init__(
        self,
        session_id: int,
        size: int = 0,
        spilling: bool = False,
        hostname: str | None = None,
        port: int | None = None,
        num_connections: int | None = None,
        prefetch_size: int | None = None,
    ) -> None:
        raise SporaxNotImplementedError(
            f"For 'DatasetCache', there is no cache server to connect to (session_id {session_id}); leave 'cache' out. To "
            "keep the rows of expensive operations, write them once with 'Dataset.save' and read them with 'MindDataset'."
        )


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
