"""Checkpoint files by their suffix: MindSpore's ``.ckpt`` or safetensors, opened and written tensor by tensor.

An open file of either format is a `sporax.runtime.storage.tensor_files.TensorFile`. `write_stream` takes tensors as they are
made, so a conversion needs the memory of the largest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np

from sporax.base.atomic_file import atomic_write
from sporax.base.errors import SporaxNotImplementedError, SporaxValueError
from sporax.mindspore.train import _ckpt_format
from sporax.runtime.storage.entries import CheckpointEntry, CorruptCheckpointError
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
