"""Parameters and state that are in files between steps (``offload_param="disk"``).

Such a Parameter has no array of its own; its attribute ``filed`` says where the values are. A step takes and returns a number
in its place (`lowering.passes.host.file_values`), which connects it with the step before. Reading ``raw`` reads the file; what
is assigned to it goes to the file when the next step begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.made_later import dataclass
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames
from sporax.runtime.storage.block_files import BlockFiles, DiskSettings, FiledArray
from sporax.runtime.storage.host_memory import chosen_variables
from sporax.runtime.storage.variables import Fetched, names_of

_FILES = "files "
_ABOVE = re.compile(r"files above (\d+)")


@dataclass(slots=True, eq=False)
class Place:
    """Where a variable is.

    Attributes:
        array: its file.
        token: of the last write; the file has the values when it is there.
    """

    array: FiledArray
    token: jax.Array

    def full(self) -> jax.Array:
        """The values, in memory."""
        # The token comes from the program that wrote the file, so the file is complete when it is ready.
        self.token.block_until_ready()
        return jnp.asarray(self.array.read())


def files_tag(settings: DiskSettings) -> str:
    """The tag of steps that keep values in files."""
    return _FILES + json.dumps(asdict(settings), sort_keys=True)


def above_tag(above: int) -> str:
    """The tag of steps that send variables to files until the rest needs no more than so many bytes."""
    return f"files above {above}"


def files_of(tags: Collection[str]) -> BlockFiles | None:
    """The files that a step uses; None where it uses none."""
    texts = [tag.removeprefix(_FILES) for tag in tags if tag.startswith(_FILES + "{")]
    if not texts:
        return None
    # Steps with the same settings share one folder, so that its limit counts all of them.
    if texts[0] not in SESSION.files:
        SESSION.files[texts[0]] = BlockFiles(DiskSettings(**json.loads(texts[0])))
    files: BlockFiles = SESSION.files[texts[0]]
    return files


def bring_to_files(variables: Sequence[Any], tags: Collection[str], peak_bytes: Callable[[], int | None]) -> None:
    """Send the variables of a step to files that its settings ask for.

    Args:
        variables, tags, peak_bytes: as for `host_memory.bring_to_host`.

    Raises:
        SporaxRuntimeError: the disk is full, or the limit of the settings is reached.
    """
    files = files_of(tags)
    limits = [int(match.group(1)) for tag in tags if (match := _ABOVE.fullmatch(tag)) is not None]
    if files is None or not limits:
        return
    # Variables that an earlier step has sent to files stay there.
    present = [variable for variable in variables if place_of(variable) is None]
    for variable in chosen_variables(present, limits[0], peak_bytes):
        array = files.new(variable.name, tuple(variable.raw.shape), variable.raw.dtype)
        variable.filed = Place(array, jnp.zeros((), jnp.int32))
        _flush(variable)


def place_of(variable: Any) -> Place | None:
    """Where the file of a variable is; None for one in memory."""
    return getattr(variable, "filed", None)


def filed_arrays(variables: Sequence[Any]) -> Mapping[int, FiledArray]:
    """The files of variables, by position."""
    return {
        number: place.array for number, variable in enumerate(variables) if (place := place_of(variable)) is not None
    }


@dataclass(frozen=True, slots=True)
class Filed:
    """Variables of a step that uses files; for those in files it takes and returns tokens.

    Attributes:
        updated, read: the variables.
    """

    updated: Sequence[Any]
    read: Sequence[Any]

    def fetch(self) -> Fetched:
        """Arrays, and tokens of those in files, which have what was assigned since."""
        return list(map(_taken, self.updated)), list(map(_taken, self.read))

    def store(self, arrays: Sequence[jax.Array]) -> None:
        """Set arrays and tokens."""
        for variable, array in zip(self.updated, arrays, strict=True):
            place = place_of(variable)
            if place is None:
                variable.raw = array
            else:
                place.token = array

    def names(self) -> tuple[list[str], list[str]]:
        """Names of the variables."""
        return names_of(self.updated), names_of(self.read)


def _taken(variable: Any) -> jax.Array:
    place = place_of(variable)
    if place is None:
        array: jax.Array = variable.raw
        return array
    _flush(variable)
    return place.token


def _flush(variable: Any) -> None:
    """Bring what was assigned to a variable to its file."""
    # An array in `raw` was assigned since the last step and replaces what the file has.
    array = frames.slot(variable, "raw")
    if array is not None:
        place = variable.filed
        place.token.block_until_ready()
        place.array.write(np.asarray(array))
        del variable.raw
