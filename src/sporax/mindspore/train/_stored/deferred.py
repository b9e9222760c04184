"""Values in a checkpoint that are read when, and where, they are needed.

`load_checkpoint` of a file in slices gives Parameters without values. If one goes into a network that is compiled, every
device reads its own block; if the network is not compiled yet, its Parameter takes the promise over, and the step that first
uses it reads the blocks of this process's devices. Whoever looks at the values before that reads them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.parameter import Parameter, no_init_parameters
from sporax.mindspore.common.tensor import Tensor
from sporax.runtime.ranks.joint_arrays import place
from sporax.runtime.storage.regions import Region, full_region, region_shape
from sporax.runtime.storage.slices import SliceSource, placed_blocks


class StoredValues:
    """A block of a Parameter in a checkpoint; stands where a lazy Tensor has its initializer.

    Args:
        source: the checkpoint.
        name: of the Parameter there.
        region: the block.
        dtype: of what is made of it; that of the file by default.
    """

    __slots__ = ("dtype", "loaded", "name", "region", "shape", "source")

    def __init__(
        self, source: SliceSource, name: str, region: Region | None = None, dtype: DType | None = None
    ) -> None:
        spec = source.spec(name)
        assert spec.dtype is not None, name
        self.source, self.name = source, name
        self.region = full_region(spec.shape) if region is None else region
        self.shape = region_shape(self.region)
        self.dtype = dtypes.from_numpy(spec.dtype) if dtype is None else dtype
        self.loaded: jax.Array | None = None

    @property
    def full_shape(self) -> tuple[int, ...]:
        """Of the Parameter."""
        return self.source.spec(self.name).shape

    def bound(self, shape: tuple[int, ...], dtype: DType) -> StoredValues:
        """Itself: shape and dtype are those of the file."""
        return self

    def make(
        self, sharding: jax.sharding.Sharding | None = None, arrange: Callable[[jax.Array], jax.Array] | None = None
    ) -> jax.Array:
        """The values; with a sharding, this process reads the blocks of its own devices.

        Args:
            sharding: which block of them each device gets.
            arrange: brings the whole into the form that is kept.

        Raises:
            SporaxValueError: slices are missing or broken.
        """
        # Arranging needs the whole: its blocks do not fit the slices of the file.
        if arrange is not None:
            arranged = arrange(jnp.asarray(self._read(self.region)))
            return arranged if sharding is None else place(arranged, sharding)
        if sharding is None:
            # Remembered, so that `stored_values` knows whether the Parameter still has these values.
            self.loaded = jnp.array(self._read(self.region))
            return self.loaded
        return placed_blocks(self.shape, sharding, lambda block: self._read(self._within_parameter(block)))

    def _read(self, region: Region) -> np.ndarray[Any, Any]:
        # No copy where the file's dtype is the wanted one already.
        return self.source.read(self.name, region).astype(self.dtype.np_dtype, copy=False)

    def _within_parameter(self, block: Region) -> Region:
        return tuple(
            slice(base.start + part.start, base.start + part.stop)
            for base, part in zip(self.region, block, strict=True)
        )


def deferred_parameter(values: StoredValues, name: str) -> Parameter:
    """A Parameter whose values are still in a checkpoint."""
    # The Parameter must not run an initializer, whose values would be overwritten.
    with no_init_parameters():
        return Parameter(Tensor(dtype=values.dtype, shape=values.shape, init=values), name=name)


def stored_values(parameter: Any) -> StoredValues | None:
    """What a Parameter was promised from a checkpoint, if it still stands for that."""
    values = getattr(parameter, "stored", None) if isinstance(parameter, Parameter) else None
    if not isinstance(values, StoredValues):
        return None
    # A Parameter that was assigned to since does not stand for the file any more.
    return values if parameter.has_init or parameter.raw is values.loaded else None


def check_can_be_read(values: StoredValues, sharding: jax.sharding.Sharding | None) -> None:
    """Raise SporaxValueError where files that this process needs are missing, or slices are not what was written.

    Args:
        values: whole Parameter.
        sharding: that it will have; None where that is not decided, and a process of several may need little of it.
    """
    source, name = values.source, values.name
    if sharding is None:
        # One of several processes may miss files that only others need.
        if jax.process_count() == 1:
            source.check_complete(name)
        return
    for index in sharding.addressable_devices_indices_map(values.full_shape).values():
        blocks = zip(index or (), values.full_shape, strict=True)
        region = tuple(slice(*part.indices(size)[:2]) for part, size in blocks)
        source.check_complete(name, region)
        # Read while the user still waits for the load, not in the middle of the first step.
        source.check_values(name, region)
