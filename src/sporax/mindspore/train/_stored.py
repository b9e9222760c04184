"""Checkpoint files by their suffix: MindSpore's ``.ckpt`` or safetensors, opened and written tensor by tensor.

An open file of either format is a `sporax.runtime.storage.tensor_files.TensorFile`. `write_stream` takes tensors as they are
made, so a conversion needs the memory of the largest one.

Values in a checkpoint that are read when, and where, they are needed.

`load_checkpoint` of a file in slices gives Parameters without values. If one goes into a network that is compiled, every
device reads its own block; if the network is not compiled yet, its Parameter takes the promise over, and the step that first
uses it reads the blocks of this process's devices. Whoever looks at the values before that reads them all.

Files in slices: a rank writes of each Parameter what it holds into a file of its own, next to those of the other ranks. Such
a file carries whose it is and the places of its blocks (`sporax.runtime.storage.slices`)::

    {"rank": 1, "ranks": 4, "mark": "3_120", "slices": {"fc.weight": ["fc.weight", [64, 32], [16, 0], 2774911032]}, "sum": "…"}

One that holds one block of a Parameter has it under the Parameter's own name, as MindSpore's tools expect; more than one are
called ``name@first,index``.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from msgspec import Struct

from sporax.base import MalformedError, atomic_write, decode
from sporax.base.errors import For, SporaxError, SporaxNotImplementedError, SporaxValueError
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes, no_init_parameters
from sporax.mindspore.train import _ckpt_format
from sporax.runtime import storage
from sporax.runtime.ranks import joint_arrays

SUFFIXES = (".ckpt", ".safetensors")
# The first four bytes of MindSpore's encrypted files, little-endian.
_ENCRYPTED_MAGIC = 0x7F3A5ED8
LAYOUT = "sporax.layout"
"""Where a file says which blocks it has: a string of a ``.ckpt`` file, an entry of a safetensors header."""


def open_checkpoint(where: str, path: str | Path, *, verify: bool = False) -> storage.TensorFile:
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

    def parse(content: memoryview) -> storage.Contents:
        if path.suffix != ".ckpt":
            return storage.safetensors_contents(content, verify)
        refuse_encrypted(where, path, content)
        return _ckpt_contents(content, verify)

    try:
        return storage.open_mapped(path, parse)
    except storage.CorruptCheckpointError as error:
        raise SporaxValueError(f"For '{where}', the file '{path}' cannot be read: {error}.") from None


def refuse_encrypted(where: str, path: object, content: memoryview) -> None:
    """Raise SporaxNotImplementedError for an encrypted ``.ckpt`` file, which would look like a broken one."""
    if int.from_bytes(content[:4], "little") == _ENCRYPTED_MAGIC:
        raise SporaxNotImplementedError(
            f"For '{where}', the file '{path}' is encrypted, which is not offered here; load it with MindSpore and its key, "
            "and save it again without."
        )


def _ckpt_contents(content: memoryview, verify: bool) -> storage.Contents:
    tensors = {spec.name: (spec, parts) for spec, parts in _ckpt_format.tensors(content, verify=verify)}
    # Our own entry is no Parameter.
    layout = tensors.pop(LAYOUT, None)
    metadata = {} if layout is None else {LAYOUT: _ckpt_format.text_of(layout[1])}
    return (
        {name: spec for name, (spec, _) in tensors.items()},
        {name: parts for name, (_, parts) in tensors.items()},
        metadata,
    )


def text_in(file: storage.TensorFile, name: str) -> str:
    """A string of a ``.ckpt`` file."""
    return _ckpt_format.text_of((memoryview(file.content(name)),))


def write_stream(
    path: str | Path,
    specs: Sequence[storage.StoredTensor],
    values: Callable[[storage.StoredTensor], np.ndarray[Any, Any] | str],
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
    check_format(path, specs)
    if path.suffix == ".safetensors":
        arrays = cast("Callable[[storage.StoredTensor], np.ndarray[Any, Any]]", values)  # checked: it has no strings
        return storage.write_safetensors(path, specs, arrays, further)
    with atomic_write(path) as file:
        checksums: dict[str, int] = {}
        # A generator, so that one tensor at a time is in memory.
        tensors = (storage.CheckpointEntry(spec.name, values(spec)) for spec in specs)
        # The checksums are complete only when the generator has reached its end.
        _ckpt_format.write(file, chain(tensors, _later(lambda: further(checksums))), checksums)
        return file.tell()


def check_format(path: Path, specs: Iterable[storage.StoredTensor]) -> None:
    """Raise SporaxTypeError where the format that the suffix names does not have a dtype, or strings."""
    if path.suffix == ".safetensors":
        storage.check_safetensors(specs, "; write '.ckpt' instead")


def _later(texts: Callable[[], Mapping[str, str]]) -> Iterator[storage.CheckpointEntry]:
    """Strings that are made when their turn comes."""
    for name, text in texts().items():
        yield storage.CheckpointEntry(name, text)


def rank_files(directory: Path, endings: Sequence[str] = SUFFIXES) -> Iterator[tuple[int, Path]]:
    """The last file of each ``rank_N`` in a directory, by name, with the first ending that there is."""
    # The order of `iterdir` is that of the file system.
    for folder in sorted(directory.iterdir()):
        number = folder.name.removeprefix("rank_")
        if folder.is_dir() and number != folder.name and number.isdecimal():
            for ending in endings:
                # Hidden files are those that `atomic_write` is still writing.
                files = sorted(path for path in folder.glob(f"*{ending}") if not path.name.startswith("."))
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
        self, source: storage.SliceSource, name: str, region: storage.Region | None = None, dtype: DType | None = None
    ) -> None:
        spec = source.spec(name)
        assert spec.dtype is not None, name
        self.source, self.name = source, name
        self.region = storage.full_region(spec.shape) if region is None else region
        self.shape = storage.region_shape(self.region)
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
            return arranged if sharding is None else joint_arrays.place(arranged, sharding)
        if sharding is None:
            # Remembered, so that `stored_values` knows whether the Parameter still has these values.
            self.loaded = jnp.array(self._read(self.region))
            return self.loaded
        return storage.placed_blocks(self.shape, sharding, lambda block: self._read(self._within_parameter(block)))

    def _read(self, region: storage.Region) -> np.ndarray[Any, Any]:
        # No copy where the file's dtype is the wanted one already.
        return self.source.read(self.name, region).astype(self.dtype.np_dtype, copy=False)

    def _within_parameter(self, block: storage.Region) -> storage.Region:
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


def write_rank_file(
    path: Path,
    slices: list[storage.Slice],
    place: storage.RankPlace,
    mark: str = "",
    further: list[storage.CheckpointEntry] | None = None,
) -> None:
    """Write the file of one rank, its layout in it.

    Args:
        path: of the file; the suffix says the format.
        slices: what the rank writes.
        place: of the rank.
        mark: of the save, equal on all ranks, so that files of two saves never mix.
        further: entries besides, as they are.

    Raises:
        SporaxTypeError: the format does not have a dtype, or strings.
        OSError: the file cannot be written; nothing of it is left.
    """
    blocks: dict[str, int] = {}
    for part in slices:
        blocks[part.name] = blocks.get(part.name, 0) + 1
    # Under its own name where that is unique: MindSpore's tools look for it.
    by_key: dict[str, Any] = {part.name if blocks[part.name] == 1 else part.key: part.values for part in slices}
    # Before the further entries, which have no place in a layout.
    keys = list(by_key)
    by_key.update({entry.name: entry.value for entry in further or []})
    specs = [storage.StoredTensor.of(key, value) for key, value in by_key.items()]

    # `strict`: a key that two slices share would lose one of them.
    layout = layout_writer(place.rank, place.num_ranks, mark, dict(zip(keys, slices, strict=True)))
    write_stream(path, specs, lambda spec: by_key[spec.name], layout)


def layout_writer(
    rank: int, num_ranks: int, mark: str, slices: Mapping[str, storage.Slice], num_stages: int = 1
) -> Callable[..., dict[str, str]]:
    """The `metadata` of `write_stream` for a file with these slices, by key; their values are not looked at."""
    facts = {"rank": rank, "ranks": num_ranks, "mark": mark, **({"stages": num_stages} if num_stages > 1 else {})}
    return lambda checksums: {LAYOUT: _summed(json.dumps({**facts, "slices": storage.placed(slices, checksums)}))}


_SUM = ', "sum": "'


def _summed(text: str) -> str:
    """A document with its own CRC-32 at its end: a changed place would give values to other rows."""
    return f'{text[:-1]}{_SUM}{zlib.crc32(text.encode()):08x}"}}'


class LayoutDocument(Struct, frozen=True):
    """What a rank's file says of itself: whose it is, among how many, the mark of the save, its slices by key; for how many
    pipeline stages each file has its own Parameters alone; and the CRC-32.

    Files of earlier versions have no sum.
    """

    rank: int
    ranks: int
    mark: str
    slices: dict[str, storage.SliceEntry]
    stages: int = 1
    sum: str = ""


def open_rank_files(
    where: str, path: Path, others: Iterable[Path] = (), *, verify: bool = False
) -> storage.SliceSource | None:
    """Open a rank's file and those of the other ranks next to it; None for a file that is not in slices.

    The other files have the same path, but for the number in ``rank_<N>``; those that are not there may be missed later.

    Args:
        where: what errors name.
        path: of the file.
        others: further files of the same save, where they are known.
        verify: compare checksums first.

    Raises:
        SporaxValueError: a file is broken, or belongs to another save.
    """
    first = open_checkpoint(where, path, verify=verify)
    if LAYOUT not in first.metadata:
        return None
    own = _layout(where, first)
    source = storage.SliceSource(where, str(path), num_ranks=own.ranks, mark=own.mark, checks_parts=True)
    source.by_stage = own.stages > 1
    # Processes with several devices have the number of the first of them in their paths: rank_0, rank_2, rank_4.
    number = number_in(path)
    each = number // own.rank if own.rank and number else 0
    near = [sibling(path, number, other * max(each, 1)) for other in range(own.ranks)]
    for other_path in _present([path, *others, *near, *path.parent.parent.glob(f"rank_*/{path.name}")]):
        if len(source.files) == own.ranks:
            break
        file = first if other_path == path else open_checkpoint(where, other_path, verify=verify)
        other = _layout(where, file)
        other_number = number_in(other_path)
        # Where it stands says whose it is; the first file of another rank than 0 says how many devices a process has.
        rank = other.rank
        if other_number is not None and sibling(path, number, other_number) == other_path:
            each = each or (other_number // rank if rank else 0)
            rank = other_number // each if each and other_number % each == 0 else other_number
        _check_save(source, own, other, str(other_path), rank)
        source.add(other.rank, file, other.slices)
    return source


def _present(paths: Iterable[Path | None]) -> list[Path]:
    """The files that are there, each once; a missing one matters only if its blocks are needed, which is checked at reading."""
    return [path for path in dict.fromkeys(paths) if path is not None and path.is_file()]


def _check_save(source: storage.SliceSource, own: LayoutDocument, other: LayoutDocument, path: str, rank: int) -> None:
    """Raise SporaxValueError unless a further file is of the same save, and of a `rank` whose file is not there yet."""
    # Files of two saves in one folder would give a mixture of two states.
    for what, expected in (("rank", rank), ("ranks", own.ranks), ("mark", own.mark)):
        if getattr(other, what) != expected:
            raise SporaxValueError(
                f"For '{source.where}', '{path}' must belong to the same save as '{source.title}' of rank {own.rank}, but its "
                f"'{what}' is {getattr(other, what)!r} and not {expected!r}."
            )
    if other.rank in source.files:
        raise SporaxValueError(
            f"For '{source.where}', files must be of different ranks, but '{source.files[other.rank].path}' and '{path}' both "
            f"are of rank {other.rank}."
        )


def unsliced_file(where: str, path: Path) -> storage.SliceSource:
    """A file of whole Parameters as a source of which any block can be read: one rank that holds everything.

    Args:
        where: what errors name.
        path: of the file. Its checksum, which would need all of it, is not compared.

    Raises:
        SporaxValueError: the file is broken.
    """
    return unsliced(where, str(path), [open_checkpoint(where, path)])


def unsliced(where: str, title: str, files: Sequence[storage.TensorFile]) -> storage.SliceSource:
    """As `unsliced_file`, of several files with other Parameters each."""
    source = storage.SliceSource(where, title, num_ranks=len(files))
    for number, file in enumerate(files):
        arrays = {name: spec for name, spec in file.specs.items() if spec.dtype is not None}
        # No CRC: the file has one for everything.
        source.add(
            number,
            file,
            {name: storage.SliceEntry(name, spec.shape, (0,) * len(spec.shape)) for name, spec in arrays.items()},
        )
    return source


def further_entries(source: storage.SliceSource, rank: int) -> Iterator[tuple[str, Any]]:
    """What a rank's file has besides slices: strings, and arrays that were appended."""
    file = source.files[rank]
    for name, spec in source.unplaced(rank):
        yield name, text_in(file, name) if spec.dtype is None else file.read(name, storage.full_region(spec.shape))


def _layout(where: str, file: storage.TensorFile) -> LayoutDocument:
    try:
        text = file.metadata[LAYOUT]
        document = decode(text, LayoutDocument)
    except (KeyError, MalformedError) as error:
        raise SporaxValueError(f"For '{where}', '{file.path}' does not say where its slices belong: {error}.") from None
    if document.sum and _summed(text.rpartition(_SUM)[0] + "}") != text:
        raise For(where).error(f"'{file.path}' is broken: what it says of its slices has another CRC-32")
    return document


def number_in(path: Path) -> int | None:
    """The rank in ``rank_<N>`` or ``rank<N>`` of a path, of that closest to the file; None if there is none."""
    found = (re.search(r"(?<![A-Za-z])rank_?(\d+)", part) for part in reversed(path.parts))
    return next((int(match[1]) for match in found if match), None)


def sibling(path: Path, rank: int | None, other: int | None) -> Path | None:
    """The file of another rank: the same path with its number in ``rank_<N>`` or ``rank<N>``; None if there is none in it."""
    exchanges = 0

    def renamed(part: str) -> str:
        nonlocal exchanges
        # Not in front of letters, and not followed by digits: "rank_1" is no part of "rank_12".
        text, count = re.subn(rf"(?<![A-Za-z])(rank_?){rank}(?!\d)", rf"\g<1>{other}", part)
        exchanges += count
        return text

    parts = [*path.parts]
    for number in range(
        len(parts) - 1, -1, -1
    ):  # the directory closest to the file; those above may be called so by chance
        parts[number] = renamed(parts[number])
        if exchanges:
            break
    # A number at the end of the file's name is the rank's too where that file is there: "rank_1/ckpt_1.ckpt".
    renamed_too = Path(*parts).with_stem(re.sub(rf"(?<!\d){rank}$", str(other), path.stem))
    return renamed_too if exchanges and renamed_too.is_file() else Path(*parts) if exchanges else None


def is_in_slices(path: Path) -> bool:
    """Whether a file can be read and is in slices."""
    try:
        return LAYOUT in open_checkpoint("load_checkpoint", path).metadata
    except (SporaxError, OSError):
        return False
