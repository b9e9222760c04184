"""Checkpoint files by their suffix: MindSpore's ``.ckpt`` or safetensors, opened and written tensor by tensor.

An open file of either format is a `sporax.runtime.storage.tensor_files.TensorFile`. `write_stream` takes tensors as they are
made, so a conversion needs the memory of the largest one.

Values in a checkpoint that are read when, and where, they are needed.

`load_checkpoint` of a file in slices gives Parameters without values. If one goes into a network that is compiled, every
device reads its own block; if the network is not compiled yet, its Parameter takes the promise over, and the step that first
uses it reads the blocks of this process's devices. Whoever looks at the values before that reads them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.atomic_file import atomic_write
from sporax.base.errors import SporaxNotImplementedError, SporaxValueError
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.parameter import Parameter, no_init_parameters
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.train import _ckpt_format
from sporax.runtime.ranks.joint_arrays import place
from sporax.runtime.storage.entries import CheckpointEntry, CorruptCheckpointError, Region, full_region, region_shape
from sporax.runtime.storage.slices import SliceSource, placed_blocks
from sporax.runtime.storage.tensor_files import (
    Contents,
    StoredTensor,
    TensorFile,
    check_safetensors,
    open_mapped,
    safetensors_contents,
    write_safetensors,
)

SUFFIXES = (".ckpt", ".safetensors")
# The first four bytes of MindSpore's encrypted files, little-endian.
_ENCRYPTED_MAGIC = 0x7F3A5ED8
LAYOUT = "sporax.layout"
"""Where a file says which blocks it has: a string of a ``.ckpt`` file, an entry of a safetensors header."""


def open_checkpoint(where: str, path: str | Path, *, verify: bool = False) -> TensorFile:
    """Open a ``.ckpt`` or ``.safetensors`` file.

    Args:
        where: what errors name.
        path: of the file.
        verify: compare the checksum first, which reads all of the file.

    Raises:
        SporaxValueError: there is no such file, or it is broken.
        SporaxNotImplementedError: it is encrypted.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES or not path.is_file():
        raise SporaxValueError(f"For '{where}', '{path}' must be an existing .ckpt or .safetensors file, but is none.")

    def parse(content: memoryview) -> Contents:
        if path.suffix != ".ckpt":
            return safetensors_contents(content, verify)
        if int.from_bytes(content[:4], "little") == _ENCRYPTED_MAGIC:
            raise SporaxNotImplementedError(
                f"For '{where}', the file '{path}' is encrypted, which is not offered here; load it with MindSpore and its "
                "key, and save it again without."
            )
        return _ckpt_contents(content, verify)

    try:
        return open_mapped(path, parse)
    except CorruptCheckpointError as error:
        raise SporaxValueError(f"For '{where}', the file '{path}' cannot be read: {error}.") from None


def _ckpt_contents(content: memoryview, verify: bool) -> Contents:
    tensors = {tensor.name: tensor for tensor in _ckpt_format.tensors(content, verify=verify)}
    # Our own entry is no Parameter.
    layout = tensors.pop(LAYOUT, None)
    metadata = {} if layout is None else {LAYOUT: _ckpt_format.text_of(layout)}
    specs = {name: StoredTensor(name, tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    return specs, {name: tensor.parts for name, tensor in tensors.items()}, metadata


def text_in(file: TensorFile, name: str) -> str:
    """A string of a ``.ckpt`` file."""
    content = memoryview(file.content(name))
    return _ckpt_format.text_of(_ckpt_format.StoredTensor(name, (), None, (content,)))


# -------------------------------------------------------------------------------------------------------------- writing


def write_stream(
    path: str | Path,
    specs: Sequence[StoredTensor],
    values: Callable[[StoredTensor], np.ndarray[Any, Any] | str],
    metadata: Callable[[Mapping[str, int]], Mapping[str, str]] | None = None,
) -> int:
    """Write a checkpoint, one tensor after the other, all of it or nothing.

    Args:
        path: of the file; the suffix says the format.
        specs: what it will hold.
        values: gives the values of each; called in the file's order.
        metadata: further strings by name, from the CRC-32 of each tensor's bytes: entries of a safetensors header, or strings
            behind the tensors of a ``.ckpt`` file. Called twice for a header, first with the largest numbers.

    Returns:
        Bytes of the file.

    Raises:
        SporaxTypeError: the format does not have a dtype, or strings.
        OSError: the file cannot be written.
    """
    path = Path(path)
    further = metadata or (lambda checksums: {})
    if path.suffix == ".safetensors":
        check_safetensors(specs, "; write '.ckpt' instead")
        arrays = cast("Callable[[StoredTensor], np.ndarray[Any, Any]]", values)  # checked: it has no strings
        return write_safetensors(path, specs, arrays, further)
    with atomic_write(path) as file:
        checksums: dict[str, int] = {}
        # A generator, so that one tensor at a time is in memory.
        tensors = (CheckpointEntry(spec.name, values(spec)) for spec in specs)
        # The checksums are complete only when the generator has reached its end.
        _ckpt_format.write(file, chain(tensors, _later(lambda: further(checksums))), checksums)
        return file.tell()


def _later(texts: Callable[[], Mapping[str, str]]) -> Iterator[CheckpointEntry]:
    """Strings that are made when their turn comes."""
    for name, text in texts().items():
        yield CheckpointEntry(name, text)


def rank_files(directory: Path) -> Iterator[tuple[int, Path]]:
    """The last file of each ``rank_N`` in a directory, by name; ``.safetensors`` where there is no ``.ckpt``."""
    # The order of `iterdir` is that of the file system.
    for folder in sorted(directory.iterdir()):
        number = folder.name.removeprefix("rank_")
        if folder.is_dir() and number != folder.name and number.isdecimal():
            for suffix in SUFFIXES:
                # Hidden files are those that `atomic_write` is still writing.
                files = sorted(path for path in folder.glob(f"*{suffix}") if not path.name.startswith("."))
                if files:
                    yield int(number), files[-1]
                    break


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
