"""Global checkpoints on disk: one file per slot, and a manifest that is written last.

``PATH/checkpoint-000003/slot-0007`` holds the image of a slot as one record of a log (`log.pack`), ``manifest.json`` its CRC-32
and what the job was. A folder without a manifest is not complete and is never read. Slots do not know on which server they
are, so any number of servers can load them. On several machines the path must lead to the same folder everywhere.
"""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from sporax.base.documents import MalformedError, decode
from sporax.base.errors import SporaxRuntimeError
from sporax.ps.protocol.messages import CheckpointPart, SlotImage
from sporax.ps.protocol.wire import Frame
from sporax.ps.slots.log_file import Intact, LogFile, pack, replace_file

_MANIFEST = "manifest.json"
_STORED = 2  # complete checkpoints; the last but one stays until the next is complete


def folder_of(path: str, number: int) -> Path:
    """Where a checkpoint is."""
    return Path(path) / f"checkpoint-{number:06d}"


def write_slot(path: str, number: int, image: SlotImage, frames: list[Frame]) -> CheckpointPart:
    """Write a slot through to the disk; gives what the manifest says of it.

    Raises:
        OSError: it cannot be written.
    """
    folder = folder_of(path, number)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts = pack(image, frames)
    checksum = 0
    for part in parts:
        # The sum covers the file as it is written, so that it can be checked without reading records.
        checksum = zlib.crc32(part, checksum)
    size = replace_file(folder / f"slot-{image.slot:04d}", parts)
    return CheckpointPart(number, image.slot, image.clock, checksum, size)


def write_manifest(path: str, number: int, facts: dict[str, Any], parts: list[CheckpointPart]) -> str:
    """Make a checkpoint complete; gives its folder. Older ones are removed, but for the last two.

    Raises:
        OSError: it cannot be written.
    """
    folder = folder_of(path, number)
    slots = tuple(SlotEntry(part.slot, part.clock, part.checksum, part.num_bytes) for part in parts)
    document = msgspec.json.format(msgspec.json.encode({"number": number, **facts, "slots": slots}), indent=1)
    replace_file(folder / _MANIFEST, [document])
    folders = sorted(folder.parent.glob("checkpoint-??????"))
    # Folders without a manifest are attempts that were not completed.
    complete = [other for other in folders if (other / _MANIFEST).exists()]
    for other in folders:
        # Later folders may belong to an attempt that is being written.
        if other < folder and other not in complete[-_STORED:]:
            shutil.rmtree(other, ignore_errors=True)
    return str(folder)


class SlotEntry(Struct, frozen=True):
    """A slot in the manifest of a checkpoint; `crc` is the CRC-32 of its file."""

    slot: Annotated[int, Meta(ge=0)]
    clock: int
    crc: int
    bytes: int


class ManifestDocument(Struct, frozen=True):
    """The manifest of a checkpoint, as far as it is read."""

    number: int
    num_slots: int
    staleness: int
    slots: tuple[SlotEntry, ...]


def read_manifest(folder: str) -> ManifestDocument:
    """The manifest of a complete checkpoint.

    Raises:
        SporaxRuntimeError: there is none.
    """
    try:
        return decode((Path(folder) / _MANIFEST).read_bytes(), ManifestDocument)
    except (OSError, MalformedError) as error:
        raise SporaxRuntimeError(
            f"For 'sporax.ps', MS_PS_RESTORE must name the folder of a complete checkpoint, but got '{folder}': {error}."
        ) from None


def read_slot(folder: str, slot: int) -> tuple[SlotImage, list[Frame]]:
    """The image of a slot.

    Raises:
        SporaxRuntimeError: it is not there, or damaged.
    """
    # The manifest says which file belongs to the checkpoint, and its sum.
    entry = next((entry for entry in read_manifest(folder).slots if entry.slot == slot), None)
    path = Path(folder) / f"slot-{slot:04d}"
    try:
        if entry is not None and zlib.crc32(path.read_bytes()) == entry.crc:
            with LogFile(path) as file:
                item = next(file.read(), None)
            if isinstance(item, Intact) and isinstance(item.message, SlotImage):
                return item.message, item.frames
    except OSError as error:
        raise SporaxRuntimeError(f"For 'sporax.ps', '{path}' must be readable, but got: {error}.") from None
    raise SporaxRuntimeError(
        f"For 'sporax.ps', '{path}' must be what the checkpoint's manifest says, but its checksum is another one."
    )
