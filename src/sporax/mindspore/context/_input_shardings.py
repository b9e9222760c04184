"""Checks of a `dataset_strategy` in tuples, for all inputs of a step together.

Problem: a step gets all of its inputs from one data set, so their slices must belong to the same rows of a batch.

Method: MindSpore's conditions, one after another, before anything is planned. The session calls `check_inputs`; the engine itself
reads the entries one by one (`sporax.planner.pins.data_placement`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.config.parallel_config import ParallelConfig
from sporax.ir.layout import Layout
from sporax.ir.operation import Shape
from sporax.ir.strategy import Strategy, strategy_text

Entry = tuple[int, ...] | Layout

_WHERE = "dataset_strategy"


def check_inputs(config: ParallelConfig, shapes: Sequence[Shape], num_devices: int) -> None:
    """Check `dataset_strategy` against the inputs of a step, where it has an entry for each (`Session.input_checks`).

    Raises:
        SporaxRuntimeError: as `check_input_shardings`.
    """
    if not isinstance(config.dataset_strategy, str):
        check_input_shardings(config.dataset_strategy, shapes, num_devices)


def check_input_shardings(strategy: Sequence[Entry], shapes: Sequence[Shape], num_devices: int) -> None:
    """Check one entry per input. Layouts, and tuples that shard several dimensions, lift all limits on what belongs together.

    Args:
        strategy: the entries.
        shapes: of the inputs, over all ranks.
        num_devices: of one stage.

    Raises:
        SporaxRuntimeError: another number of entries or dimensions, a sharding that does not divide, inputs in different numbers
            of slices, or a sharded input next to a whole one with more dimensions.
    """
    if len(strategy) != len(shapes):
        raise SporaxRuntimeError(
            f"For '{_WHERE}', there must be one entry for each of the {len(shapes)} inputs, but got {len(strategy)}: "
            f"{strategy_text(strategy)}."
        )
    tuples = tuple(entry for entry in strategy if not isinstance(entry, Layout))
    # Layouts may shard as they like: their slices need not be of the batch.
    if len(tuples) != len(strategy):
        return
    Strategy(tuples).check(_WHERE, list(shapes), num_devices)
    # Slices of images over height and width are no rows of a batch, so they say nothing of the other inputs.
    if any(sum(slices > 1 for slices in entry) > 1 for entry in tuples):
        return
    counts = {number: max(entry) for number, entry in enumerate(tuples) if any(slices > 1 for slices in entry)}
    if len(set(counts.values())) > 1:
        raise SporaxRuntimeError(
            f"For '{_WHERE}', all inputs that are sharded must have one number of slices, but got "
            f"{' and '.join(map(str, sorted(set(counts.values()))))} in {strategy}."
        )
    # The largest input decides the batch; if it is whole, a sharded one has rows of another batch.
    rank = max(map(len, shapes), default=0)
    if counts and not any(len(shapes[number]) == rank for number in counts):
        raise SporaxRuntimeError(
            f"For '{_WHERE}', an input with most dimensions ({rank}) must be sharded if any is, but only inputs "
            f"{sorted(counts)} are: {strategy}."
        )
