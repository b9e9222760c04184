"""The rows of all ranks, where a script has those of one.

Problem: with ``dataset_strategy="data_parallel"``, or slices for each input, each of MindSpore's processes feeds rows of its own,
and the network has the rows of all: shapes of Parameters and strategies fit these. A process that feeds all devices gets the rows
of one rank from a data set class of the user's, which runs in each of MindSpore's processes. Method: they are repeated, as that
class would give them to each process; means over the batch stay what they are.
"""

from __future__ import annotations

import functools

import numpy as np

from sporax.ir.layout import Layout
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.context import snapshot
from sporax.runtime import world
from sporax.runtime.process.dry_run import say


def of_all_ranks(columns: tuple[object, ...]) -> tuple[object, ...]:
    """Inputs of a step with the rows of all ranks that the process feeds; those without rows are for all."""
    config = snapshot()
    count, strategy = config.num_stage_devices, config.dataset_strategy
    feeds_all = config.in_global_view and strategy != "full_batch" and world.num_feeders() == 1
    entries = ((count,),) * len(columns) if isinstance(strategy, str) else strategy
    if not feeds_all or count == 1 or len(entries) != len(columns):
        return columns
    slices = [entry.split if isinstance(entry, Layout) else entry for entry in entries]
    if all(parts == 1 for entry in slices for parts in entry):
        return columns
    _tell(count)
    return tuple(map(_repeated, columns, slices))


@functools.cache
def _tell(count: int) -> None:
    say(
        f"each of {count} ranks gets all rows that the script gives for one, as in {count} processes; "
        "dataset_strategy='full_batch' divides them between the ranks."
    )


def _repeated(column: object, slices: tuple[int, ...]) -> object:
    dims = getattr(column, "ndim", 0)
    if dims < len(slices):
        return column
    rows = np.tile(
        column.asnumpy() if isinstance(column, Tensor) else np.asarray(column), slices + (1,) * (dims - len(slices))
    )
    return Tensor(rows) if isinstance(column, Tensor) else rows
