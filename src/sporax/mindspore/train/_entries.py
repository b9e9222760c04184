"""Checkpoints in the making: what `save_checkpoint` takes as named arrays and strings on the host, and who writes them.

Entries are those of `sporax.runtime.storage.entries`. Behind the back of training they are written one checkpoint at a time, by a
thread, from copies on the host.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore.common import Parameter, Tensor, dtypes
from sporax.mindspore.common._host_arrays import taken_over
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train import _ranks
from sporax.runtime.session import SESSION
from sporax.runtime.storage import CheckpointEntry

Choice = Callable[[str], bool] | None


def chosen_values(save_obj: Any, choice: Choice) -> dict[str, Any]:
    """What is to be saved by name: Tensors, arrays and strings, on the devices that hold them.

    Raises:
        SporaxTypeError: `save_obj` is, or holds, something else.
    """
    chosen: dict[str, Any] = {}
    for name, value in _named(save_obj):
        if choice is None or choice(name):
            # Two Parameters of one name would be written twice, and reading takes the last one.
            if name in chosen:
                warnings.warn(
                    f"For 'save_checkpoint', two different parameters are called '{name}'; only the last one is saved.",
                    stacklevel=4,
                )
            chosen[name] = _full_table(value)
    return chosen


def _full_table(value: Any) -> Any:
    """The rows of a table that parameter servers keep, in place of the Parameter with the few that are cached here."""
    # Only rows that this worker used lately are in its Parameter.
    servers, cache = SESSION.servers, value.server_rows if isinstance(value, Parameter) else None
    if servers is None or cache is None or cache.key < 0:
        return value
    return Tensor(servers.full_table(cache))


def appended(append_dict: dict[str, Any] | None) -> list[CheckpointEntry]:
    """Entries for what users append to a checkpoint.

    Raises:
        SporaxTypeError: a key is not a string, or a value no number, string, Parameter or Tensor.
    """
    if append_dict is None:
        return []
    For("save_checkpoint").typed("append_dict", append_dict, "a dict", dict)
    entries = []
    for name, value in append_dict.items():
        if not isinstance(name, str) or not isinstance(value, int | float | str | Tensor):
            raise SporaxTypeError(
                "For 'save_checkpoint', 'append_dict' must map strings to numbers, strings, Parameters or Tensors, but got "
                f"{type(name).__name__} -> {type(value).__name__}."
            )
        entries.append(CheckpointEntry(name, value if isinstance(value, str) else host_values(Tensor(value))))
    return entries


def merged(parameters: list[CheckpointEntry], further: list[CheckpointEntry]) -> list[CheckpointEntry]:
    """Both lists; where a name is in both, the further entry wins, with a warning."""
    by_name = {entry.name: entry for entry in parameters}
    for entry in further:
        if entry.name in by_name:
            warnings.warn(
                f"For 'save_checkpoint', '{entry.name}' of 'append_dict' takes the place of the parameter of that name.",
                stacklevel=3,
            )
        by_name[entry.name] = entry
    return list(by_name.values())


def _named(save_obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(save_obj, Cell):
        for parameter in save_obj.get_parameters():
            yield parameter.name, parameter
    elif isinstance(save_obj, dict):
        yield from map(_checked_item, save_obj.items())
    elif isinstance(save_obj, list):
        yield from map(_checked_element, save_obj)
    else:
        raise For("save_checkpoint").type_error("'save_obj' must be a Cell, a list or a dict", type(save_obj).__name__)


def _checked_item(item: tuple[Any, Any]) -> tuple[str, Any]:
    name, value = item
    if not isinstance(name, str) or not isinstance(value, Tensor | np.ndarray | str):
        raise SporaxTypeError(
            "For 'save_checkpoint', a dict must map strings to Parameters, arrays or strings, but got "
            f"{type(name).__name__} -> {type(value).__name__}."
        )
    return name, value


def _checked_element(element: object) -> tuple[str, Any]:
    if isinstance(element, Parameter):
        return element.name, element
    if isinstance(element, dict) and isinstance(element.get("name"), str) and isinstance(element.get("data"), Tensor):
        return element["name"], element["data"]
    raise SporaxTypeError(
        "For 'save_checkpoint', a list must hold Parameters, or dicts with a string 'name' and a Tensor 'data', but got "
        f"{element if isinstance(element, dict) else type(element).__name__}."
    )


def host_values(value: Any) -> np.ndarray[Any, Any]:
    """The values of a Tensor or array on the host; those of one that is sharded over devices are put together.

    They may share the device's memory: XLA does not give a buffer to the next step while an array looks at it.
    """
    if isinstance(value, np.ndarray):
        return value
    array = value.array
    # An array of a pipeline stage: other ranks have no part of it.
    if _ranks.is_on_some(array):
        return _ranks.of_stage(array)
    # All devices have the same values, so one copy is enough.
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))
    if array.is_fully_addressable:
        return np.asarray(array)
    # Slices of other processes have to be fetched.
    return _ranks.global_array(array)


def to_parameter(entry: CheckpointEntry) -> Parameter | str:
    """What `load_checkpoint` gives for an entry: a Parameter of that name, or the string."""
    if isinstance(entry.value, str):
        return entry.value
    values = _Loaded(entry.value)
    # A lazy Parameter takes its array without a second copy.
    parameter = Parameter(Tensor(dtype=values.dtype, shape=values.shape, init=values), name=entry.name)
    parameter.init_data()
    parameter.by_initializer = False
    return parameter


class _Loaded:
    """Values of a file on their way into a Parameter; stands where a lazy Tensor has its initializer."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, dtypes.from_numpy(array.dtype)

    def bound(self, shape: tuple[int, ...], dtype: dtypes.DType) -> _Loaded:
        """Itself: shape and dtype are those of the file."""
        return self

    def make(self) -> jax.Array:
        """The values, copied once."""
        return taken_over(self._array)


THREAD_NAME = "asyn_save_ckpt"  # MindSpore's, which scripts look for


class BackgroundWriter:
    """Runs one piece of writing at a time in a thread; an error comes up at the next call."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Begin `write`, after the one before has ended.

        Raises:
            BaseException: what the one before raised.
        """
        # One at a time: two would compete for the disk and the host's memory.
        self.wait()

        def run() -> None:
            try:
                write()
            # Also KeyboardInterrupt and SystemExit: nothing may be lost in a thread.
            except BaseException as error:  # raised again by `wait`
                self._error = error

        # Not a daemon: the interpreter waits for the file to be whole before it ends.
        self._thread = threading.Thread(target=run, name=THREAD_NAME)
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is being written.

        Raises:
            BaseException: what the writing raised.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        # Raised once.
        error, self._error = self._error, None
        if error is not None:
            raise error

    def busy(self) -> bool:
        """Whether something is being written."""
        return self._thread is not None and self._thread.is_alive()


writer = BackgroundWriter()
"""The process's only one, so that two checkpoints never compete for the disk."""
