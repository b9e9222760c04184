"""Gradients that are computed operator by operator where one process acts for several ranks (`sporax.runtime.ranks.local_ranks`).

Each rank gets its part of the inputs, as arrays that differ from rank to rank; operators compute with them on all devices at
once. What is returned is put together again, but for gradients of weights, which a reducer combines.

The rows of all ranks, where a script has those of one.

Problem: with ``dataset_strategy="data_parallel"``, or slices for each input, each of MindSpore's processes feeds rows of its own,
and the network has the rows of all: shapes of Parameters and strategies fit these. A process that feeds all devices gets the rows
of one rank from a data set class of the user's, which runs in each of MindSpore's processes. Method: they are repeated, as that
class would give them to each process; means over the batch stay what they are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.ir import Layout
from sporax.mindspore import context
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor, is_tensor, wrap
from sporax.mindspore.context import snapshot
from sporax.runtime import ranks as between_ranks, world
from sporax.runtime.process import dry_run
from sporax.runtime.ranks import groups, joint_arrays, local_ranks
from sporax.runtime.state import frames


class RankParts:
    """The parts of one call's inputs.

    Args:
        name: of the function, for messages.
        values: what it is called with.

    Attributes:
        values: the same with the parts of all ranks in place of whole batches.

    Raises:
        SporaxRuntimeError: an input cannot be divided.
    """

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self._name = name
        self._devices = joint_arrays.own_devices()
        # Also where the user's function is no Cell, whose programs check it.
        context.check_step()
        leaves, tree = jax.tree.flatten(list(values), is_leaf=is_tensor)
        # Parameters are the same on all ranks, and stay the objects that they are.
        positions = [place for place, leaf in enumerate(leaves) if is_tensor(leaf) and not isinstance(leaf, Parameter)]
        arrays = [leaves[place].array for place in positions]
        divided = local_ranks.divided(name, arrays)
        self._rows = next(
            (local_ranks.part_shape(array)[0] for array, part in zip(arrays, divided, strict=True) if part), 0
        )
        for place, array, is_part in zip(positions, arrays, divided, strict=True):
            if is_part:
                leaves[place] = wrap(self._part(array))
        self.values: list[Any] = jax.tree.unflatten(tree, leaves)

    def running(self, weights: Sequence[Parameter]) -> frames.Frame:
        """The frame in which the call runs; the weights that it differentiates are brought to the devices at once."""
        for weight in weights:
            local_ranks.bring(weight, self._devices)
        return local_ranks.JointReads(self._devices)

    def sensitivity(self, values: Any) -> Any:
        """Sensitivities of outputs with a row for each sample, in parts."""
        total = self._rows * len(self._devices)
        leaves, tree = jax.tree.flatten(values, is_leaf=is_tensor)
        parts = [
            wrap(self._part(leaf.array)) if is_tensor(leaf) and leaf.ndim and leaf.shape[0] == total else leaf
            for leaf in leaves
        ]
        return jax.tree.unflatten(tree, parts)

    def together(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """Results as they leave the call: means of numbers, and rows of all ranks.

        Raises:
            SporaxRuntimeError: a result is different on each rank and neither.
        """
        return [self._together(number, array) for number, array in enumerate(arrays)]

    def rows(self, array: jax.Array) -> jax.Array:
        """The rows of all ranks, of something with a row for each sample."""
        return local_ranks.rows_together(array) if array.ndim and array.shape[0] == self._rows else array

    def own(self, gradients: Sequence[jax.Array]) -> list[jax.Array]:
        """Gradients of weights, which differ from rank to rank until they are combined."""
        return [local_ranks.own(joint_arrays.to_joint(gradient, self._devices)) for gradient in gradients]

    def _part(self, array: jax.Array) -> jax.Array:
        return local_ranks.own(local_ranks.parts(array, self._devices))

    def _together(self, number: int, array: jax.Array) -> jax.Array:
        if isinstance(array, jax.core.Tracer) or len(array.sharding.device_set) == 1:
            return array
        is_number = bool(jnp.issubdtype(array.dtype, jnp.inexact)) and array.size == 1
        if is_number and (array.ndim == 0 or self._rows != 1):
            wide = array.astype(jnp.promote_types(array.dtype, jnp.float32))
            everyone = groups.find(None)
            total = between_ranks.collectives.run(between_ranks.collectives.AllReduce(everyone), wide)
            return (total / everyone.size).astype(array.dtype)
        if not local_ranks.is_own(array) and not local_ranks.differs(array):
            return array
        if array.ndim and array.shape[0] == self._rows:
            return local_ranks.rows_together(array)
        raise local_ranks.no_single_value(self._name, number, array)


def parts_of_call(name: str, values: Sequence[Any]) -> RankParts | None:
    """The parts of a call that computes gradients of weights; None in compiled steps, inside of another one, and for one rank."""
    if world.num_ranks_here() == 1 or frames.compiling() or local_ranks.is_inside():
        return None
    return RankParts(name, values)


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
    _report(count)
    return tuple(map(_repeated, columns, slices))


@functools.cache
def _report(count: int) -> None:
    dry_run.say(
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
