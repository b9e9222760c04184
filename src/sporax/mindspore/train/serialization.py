"""Checkpoints: `save_checkpoint`, `load_checkpoint`, `load_param_into_net`, and conversion between the two formats.

``.ckpt`` files are MindSpore's, ``.safetensors`` files are everybody's; MindSpore reads what is written here and the
other way round. Every file is written under a temporary name first, so one that has a checkpoint's name is whole.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sporax.base.errors import For, SporaxNotImplementedError, SporaxValueError, named
from sporax.mindspore import context
from sporax.mindspore._names.missing import homes, missing_names
from sporax.mindspore.common.dtype import all_types, narrow_types
from sporax.mindspore.ops._core.parameters import taking
from sporax.mindspore.train import _ckpt_format, _stored as stored
from sporax.mindspore.train._apply import (
    _update_param as _update_param,  # programs load single Parameters with it
    load_param_into_net as load_param_into_net,
)
from sporax.mindspore.train._entries import Choice, appended, chosen_values, host_values, merged, to_parameter, writer
from sporax.runtime.session import SESSION
from sporax.runtime.storage import (
    CheckpointEntry,
    CorruptCheckpointError,
    SliceSource,
    StoredTensor,
    held_slices,
    safetensors_format,
    this_rank,
)

__all__ = """
    async_ckpt_thread_status ckpt_to_safetensors load_checkpoint load_checkpoint_async load_param_into_net
    safetensors_to_ckpt save_checkpoint
""".split()
if not TYPE_CHECKING:  # checkers should see a missing name themselves
    # MindSpore has some functions of distributed checkpoints here; those modules are built on this one.
    __getattr__ = missing_names(
        __name__,
        {
            **homes("sporax.mindspore.train.export", "export load"),
            **homes(
                "sporax.mindspore.train.checkpoint",
                """
                build_searched_strategy load_distributed_checkpoint load_segmented_checkpoints merge_pipeline_strategys
                merge_sliced_parameter rank_list_for_transform restore_group_info_list transform_checkpoint_by_rank
                transform_checkpoints unified_safetensors get_ckpt_path_with_strategy
                """,
            ),
        },
    )


FORMATS = ("ckpt", "safetensors")
tensor_to_ms_type = {str(dtype): dtype for dtype in (*all_types, *narrow_types)}
"""MindSpore's dtypes by the names that checkpoints have for them."""
tensor_to_np_type = {name: dtype.np_dtype.type for name, dtype in tensor_to_ms_type.items()}
"""The same for numpy."""


# ------------------------------------------------------------------------------------------------------------- saving


def save_checkpoint(
    save_obj: Any,
    ckpt_file_name: str,
    integrated_save: bool = True,
    async_save: bool | str = False,
    append_dict: dict[str, Any] | None = None,
    enc_key: bytes | None = None,
    enc_mode: str = "AES-GCM",
    choice_func: Choice = None,
    crc_check: bool = False,
    format: str = "ckpt",
    **kwargs: Any,
) -> None:
    """Write Parameters to a file, all of it or nothing.

    Args:
        save_obj: a Cell, a list of Parameters or of ``{"name": …, "data": …}``, or a dict name -> Parameter.
        ckpt_file_name: file to write; the suffix is added when it is missing. A name that ends in ``.safetensors`` is
            written in that format (MindSpore requires ``format="safetensors"`` as well).
        integrated_save: every rank writes whole Parameters, gathered one at a time (all at once with `async_save`). False:
            every rank writes the slices that it holds, with their places. All ranks must call it, each with a path of its
            own, which should have ``rank_<N>`` in it: by that the files of the other ranks are found at loading.
        async_save: write in a thread while training goes on; ``"thread"`` and ``"process"`` mean the same here.
        append_dict: further numbers, strings or Tensors to store by name.
        enc_key, enc_mode: encryption is not offered.
        choice_func: says by name which Parameters to save.
        crc_check: accepted for compatibility: a checksum is always written, and compared whenever the file is read.
        format: ``"ckpt"`` (MindSpore's) or ``"safetensors"``.
        kwargs: ``remove_redundancy=True``: slices as with ``integrated_save=False``, each written by one rank only.

    Raises:
        SporaxTypeError, SporaxValueError: an argument is not valid.
        SporaxNotImplementedError: encryption.
        IsADirectoryError: the name is a directory.
        OSError: the file cannot be written.
    """
    # All arguments are checked before the first byte is written.
    _refuse_encryption("save_checkpoint", "enc_key", enc_key, enc_mode)
    for name, value in (("integrated_save", integrated_save), ("crc_check", crc_check)):
        For("save_checkpoint").boolean(name, value)
    check_async("save_checkpoint", async_save)
    path = _target(ckpt_file_name, format)
    once, mark = _options(kwargs)
    further = appended(append_dict)
    values = chosen_values(save_obj, choice_func)
    # Each rank writes slices; a process that is alone has everything, so its file is whole.
    if (not integrated_save or once) and jax.process_count() > 1:
        work = _slice_work(path, values, further, once, mark or _next_mark(path))
    else:
        # In the background the values must be on the host now, since training goes on.
        work = _unsliced_work(
            path, {name: _on_host(value) for name, value in values.items()} if async_save else values, further
        )
    # A plan is made on one machine for many; it must not leave files.
    if context.plans_only():
        return  # `sporax plan` leaves no files
    if async_save:
        writer.start(work)
    else:
        # A file that is being written in the background may be the same one.
        writer.wait()
        work()


_saves: Counter[Path] = Counter()
"""How often this process has saved slices under a name."""


def _next_mark(path: Path) -> str:
    """What the files of one save of all ranks have in common: their job, and how many times it has saved under this name."""
    _saves[path] += 1
    membership = SESSION.membership
    return f"{membership.environment.coordinator_address if membership else ''} {_saves[path]}"


def _slice_work(
    path: Path, values: dict[str, Any], further: list[CheckpointEntry], once: bool, mark: str
) -> Callable[[], None]:
    """Writes this rank's slices; they are on the host when this returns."""
    texts = [CheckpointEntry(name, value) for name, value in values.items() if isinstance(value, str)]
    arrays = {name: value for name, value in values.items() if not isinstance(value, str)}
    taken = {entry.name for entry in further}
    place = this_rank()
    # An appended value replaces the Parameter of its name.
    slices = [part for part in held_slices(arrays, place, once=once) if part.name not in taken]

    def work() -> None:
        _check_directory(path)
        stored.write_rank_file(path, slices, place, mark, [*texts, *further])

    return work


def _unsliced_work(path: Path, values: dict[str, Any], further: list[CheckpointEntry]) -> Callable[[], None]:
    """Writes whole Parameters, each gathered when its turn comes, so that one at a time is whole in this process's memory."""
    # It warns of names that are there twice.
    merged([CheckpointEntry(name, "") for name in values], further)
    everything = {**values, **{entry.name: entry.value for entry in further}}
    specs = [
        StoredTensor.of(name, value)
        if isinstance(value, str)
        else StoredTensor(name, tuple(value.shape), _dtype(value))
        for name, value in everything.items()
    ]
    # A thread could not raise it here.
    stored.check_format(path, specs)

    def work() -> None:
        _check_directory(path)
        stored.write_stream(path, specs, lambda spec: _on_host(everything[spec.name]))

    return work


def _on_host(value: Any) -> Any:
    return value if isinstance(value, str) else host_values(value)


def _dtype(value: Any) -> np.dtype[Any]:
    return value.dtype if isinstance(value, np.ndarray) else value.dtype.np_dtype


def _check_directory(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"For 'save_checkpoint', the directory '{path.parent}' must exist, but does not.")


def _target(name: Any, format: Any) -> Path:
    """The file to write; its suffix is that of the format."""
    For("save_checkpoint").one_of("format", format, FORMATS)
    For("save_checkpoint").typed("ckpt_file_name", name, "a string", str)
    # Links are followed, so that the file replaces their target and not the link.
    path = Path(os.path.realpath(name))
    if path.is_dir():
        raise IsADirectoryError(f"For 'save_checkpoint', 'ckpt_file_name' must be a file, but {path} is a directory.")
    # A name with a dot, "net-1_10.5", keeps it.
    is_complete = name.endswith((".safetensors", f".{format}"))
    return path if is_complete else path.with_name(f"{path.name}.{format}")


def _options(options: dict[str, Any]) -> tuple[bool, str]:
    """``remove_redundancy``, and the mark that `ModelCheckpoint` gives all files of one save."""
    # Options that no code reads would hide a spelling mistake.
    once, mark = options.pop("remove_redundancy", None), options.pop("_mark", "")
    For("save_checkpoint").refuse(options, "further options must be among ['remove_redundancy']", sorted(options))
    return once is not None and For("save_checkpoint").boolean("remove_redundancy", once), mark


def check_async(where: str, async_save: Any) -> bool | str:
    """`async_save`, if it is a bool, ``"thread"`` or ``"process"``.

    Raises:
        SporaxTypeError, SporaxValueError: it is not.
    """
    For(where).typed("async_save", async_save, "a bool or str", bool | str)
    if isinstance(async_save, str) and async_save not in ("thread", "process"):
        raise SporaxValueError(f"For '{where}', 'async_save' must be 'thread' or 'process', but got '{async_save}'.")
    return async_save


def async_ckpt_thread_status() -> bool:
    """Whether a checkpoint is being written in the background."""
    return writer.busy()


# ------------------------------------------------------------------------------------------------------------ loading


def load_checkpoint(
    ckpt_file_name: Any,
    net: Any = None,
    strict_load: bool = False,
    filter_prefix: Any = None,
    dec_key: bytes | None = None,
    dec_mode: str = "AES-GCM",
    specify_prefix: Any = None,
    choice_func: Choice = None,
    crc_check: bool = False,
    remove_redundancy: bool = False,
    format: str = "ckpt",
) -> dict[str, Any]:
    """Read a checkpoint, and put it into a network if one is given.

    Args:
        ckpt_file_name: the file; for safetensors an `io.BytesIO` will do.
        net, strict_load, remove_redundancy: see `load_param_into_net`.
        filter_prefix: leave out names that start so (a string or several).
        dec_key, dec_mode: encryption is not offered.
        specify_prefix: take only names that start so.
        choice_func: says by name what to take, where neither is given.
        crc_check: warn if the file has no checksum. One that is there is always compared, but for files of which this
            process reads its blocks only: those in slices, and whole ones in a planned job of several processes.
        format: ``"ckpt"`` or ``"safetensors"``; a name that ends in ``.safetensors`` says so by itself.

    Returns:
        Parameters (and appended strings) by name.

    Raises:
        SporaxValueError: the file does not exist, is broken (the text says where), or holds nothing that was requested.
        SporaxTypeError: an argument is of the wrong type.
        SporaxNotImplementedError: the file is encrypted, or a key is given.
        SporaxRuntimeError: a shape or dtype does not fit `net`; then nothing was loaded into it.
    """
    SESSION.looked_for_checkpoint = True
    _refuse_encryption("load_checkpoint", "dec_key", dec_key, dec_mode)
    For("load_checkpoint").boolean("crc_check", crc_check)
    keep = name_filter(specify_prefix, filter_prefix, choice_func)
    path, kind = _source(ckpt_file_name, format)
    source = _slice_source(path, crc_check)
    if source is not None:
        return _from_slices(source, path, keep, net, strict_load, crc_check)
    entries, check = _parsed(path, kind, crc_check)
    # The checksum needs the whole file, and so does the copy; together they read it once from disk.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="check_sum") as executor:
        checked = executor.submit(check)  # reads the file while its values are copied
        parameters = {entry.name: to_parameter(entry) for entry in entries if keep(entry.name)}
        # Raises if the file is broken, before anything reaches the network.
        checked.result()
    if not parameters:
        raise _nothing_left(path)
    if net is not None:
        load_param_into_net(net, parameters, strict_load, remove_redundancy)
    return parameters


def _slice_source(path: Any, crc_check: bool) -> SliceSource | None:
    """What blocks of Parameters are read from; None where this process needs the whole file.

    In a job of several processes whose steps are planned, a process needs of a whole file what its devices will hold. To
    compare the checksum it must read everything.
    """
    # A BytesIO has no neighbours.
    if not isinstance(path, Path):
        return None
    if stored.is_in_slices(path):
        return stored.open_rank_files("load_checkpoint", path)
    if crc_check or jax.process_count() == 1 or not context.snapshot().in_global_view:
        return None
    return stored.unsliced_file("load_checkpoint", path)


def _from_slices(
    source: SliceSource, path: Path, keep: Any, net: Any, strict_load: bool, crc_check: bool
) -> dict[str, Any]:
    """Parameters whose values are read later: those of which this file has one block stand for that, others for the whole.

    The file of a pipeline stage has the Parameters of that stage, and loading it gives no others.
    """
    own = next(rank for rank, file in source.files.items() if file.path == path)
    parameters: dict[str, Any] = {}
    for name in filter(keep, source.names()):
        held = [part.region for part in source.slices(name) if part.rank == own]
        if source.by_stage and not held:
            continue
        if crc_check:
            source.check_values(name)
        # One block: the file stands for it. Several: only the whole has a meaning.
        parameters[name] = stored.deferred_parameter(
            stored.StoredValues(source, name, held[0] if len(held) == 1 else None), name
        )
    for name, text in stored.further_entries(source, own):
        if keep(name):
            parameters[name] = text if isinstance(text, str) else to_parameter(CheckpointEntry(name, text))
    if not parameters:
        raise _nothing_left(path)
    if net is not None:
        load_param_into_net(net, parameters, strict_load)
    return parameters


def _nothing_left(path: Any) -> SporaxValueError:
    return SporaxValueError(
        f"For 'load_checkpoint', nothing is left of '{_title(path)}' after 'filter_prefix', 'specify_prefix' and "
        "'choice_func'; check them."
    )


class ParamDictFuture:
    """A checkpoint that is being read; `result` waits for it."""

    def __init__(self, future: Future[dict[str, Any]]) -> None:
        self._future = future

    def result(self) -> dict[str, Any]:
        """What `load_checkpoint` returns, or raises."""
        return self._future.result()


@taking(load_checkpoint, "crc_check remove_redundancy format")
def load_checkpoint_async(**settings: Any) -> ParamDictFuture:
    """Read a checkpoint in a thread; arguments as for `load_checkpoint`.

    Returns:
        Something whose ``result()`` is the dictionary; `net` has its values only after that.
    """
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="load_ckpt")
    future = executor.submit(load_checkpoint, **settings)
    # The thread ends with its task; the caller need not wait for it.
    executor.shutdown(wait=False)
    return ParamDictFuture(future)


def _source(name: Any, format: Any) -> tuple[Any, str]:
    For("load_checkpoint").one_of("format", format, FORMATS)
    if isinstance(name, BytesIO):
        For("load_checkpoint").refuse_type(format == "ckpt", "a BytesIO must hold format 'safetensors', but got 'ckpt'")
        return name, format
    For("load_checkpoint").typed("ckpt_file_name", name, "a string", str)
    if name.endswith(".safetensors"):
        format = "safetensors"
    # The name says it, too; MindSpore wants the argument.
    if not name.endswith(f".{format}"):
        raise SporaxValueError(f"For 'load_checkpoint', the file must end in '.{format}', but got '{name}'.")
    For("load_checkpoint").refuse(not os.path.isfile(name), f"the file '{os.path.realpath(name)}' does not exist")
    return Path(os.path.realpath(name)), format


def _parsed(path: Any, kind: str, wants_crc: bool) -> tuple[list[CheckpointEntry], Callable[[], None]]:
    """What a file holds, as views of it, and what compares its checksum with the values."""
    content = _content(path)
    with _naming(path):
        if kind == "ckpt":
            stored.refuse_encrypted("load_checkpoint", path, content)
            entries, has_crc = _ckpt_format.parsed(content), _ckpt_format.has_checksum(content)
            compare = partial(_ckpt_format.check_sum, content)
        else:
            entries, metadata = safetensors_format.parsed(content)
            has_crc = "crc_num" in metadata
            compare = partial(safetensors_format.check_sum, entries, metadata)
    if wants_crc and not has_crc:
        warnings.warn(f"For 'load_checkpoint', '{_title(path)}' carries no checksum to compare.", stacklevel=3)

    def check() -> None:
        with _naming(path):
            compare()

    return entries, check


@contextlib.contextmanager
def _naming(path: Any) -> Iterator[None]:
    """Errors about a file's content name the file."""
    try:
        yield
    except CorruptCheckpointError as error:
        raise SporaxValueError(f"For 'load_checkpoint', the file '{_title(path)}' cannot be read: {error}.") from None


def _content(path: Any) -> memoryview:
    """All bytes of a file, mapped into memory rather than read: most are copied to a device right away."""
    if isinstance(path, BytesIO):
        return memoryview(path.getvalue())
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        # The view keeps the map open.
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _title(path: Any) -> str:
    return "<BytesIO>" if isinstance(path, BytesIO) else str(path)


def _prefixes(what: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    prefixes = (value,) if isinstance(value, str) else value
    if not isinstance(prefixes, list | tuple) or not all(isinstance(prefix, str) for prefix in prefixes):
        raise For("load_checkpoint").type_error(f"{named(what)} must be a string or a list of strings", repr(value))
    # Every name begins with "".
    For("load_checkpoint").refuse(not prefixes or "" in prefixes, f"'{what}' must not be empty", value, show=repr)
    return tuple(prefixes)


def name_filter(specify_prefix: Any, filter_prefix: Any, choice: Choice) -> Callable[[str], bool]:
    """What says by name whether `load_checkpoint` takes a Parameter.

    Raises:
        SporaxTypeError, SporaxValueError: prefixes that are no strings, or empty.
    """
    selected, excluded = _prefixes("specify_prefix", specify_prefix), _prefixes("filter_prefix", filter_prefix)
    # `choice_func` counts only where no prefix is given, as in MindSpore.
    if selected is None and excluded is None:
        return choice or (lambda name: True)
    return lambda name: (selected is None or name.startswith(selected)) and not (excluded and name.startswith(excluded))


# --------------------------------------------------------------------------------------------------------- encryption


def _refuse_encryption(where: str, what: str, key: Any, mode: Any) -> None:
    if not isinstance(key, bytes | None) or not isinstance(mode, str):
        raise For(where).error(
            f"{named(what)} must be bytes or None and its mode a string",
            f"{type(key).__name__} and {type(mode).__name__}",
        )
    if key is not None:
        raise SporaxNotImplementedError(
            f"For '{where}', encryption is not offered, but '{what}' is given; encrypt the file or its disk instead."
        )


# --------------------------------------------------------------------------------------------------------- conversion


def ckpt_to_safetensors(
    file_path: str,
    save_path: str | None = None,
    name_map: Mapping[str, str] | None = None,
    file_name_regex: str | None = None,
    processes_num: int = 1,
) -> None:
    """Convert a ``.ckpt`` file, or those in the ``rank*`` directories of a directory, to safetensors.

    Args:
        file_path: file or directory.
        save_path: directory for the results; next to the originals by default.
        name_map: new names of Parameters by old ones.
        file_name_regex: convert only files whose names it is found in.
        processes_num: accepted for compatibility; files are converted one after the other.

    Raises:
        SporaxValueError: there is no such file, or nothing to convert.
    """
    _convert("ckpt_to_safetensors", "ckpt", "safetensors", file_path, save_path, name_map, file_name_regex)


def safetensors_to_ckpt(
    file_path: str,
    save_path: str | None = None,
    name_map: Mapping[str, str] | None = None,
    file_name_regex: str | None = None,
    processes_num: int = 1,
) -> None:
    """Convert safetensors to ``.ckpt``; arguments as for `ckpt_to_safetensors`."""
    _convert("safetensors_to_ckpt", "safetensors", "ckpt", file_path, save_path, name_map, file_name_regex)


def _convert(
    where: str, old: str, new: str, source: str, save_path: str | None, name_map: Any, regex: str | None
) -> None:
    if name_map is not None and not isinstance(name_map, Mapping):
        raise SporaxValueError(f"For '{where}', 'name_map' must be a dict, but got {type(name_map).__name__}.")
    For(where).refuse(save_path and Path(save_path).suffix, f"'save_path' must be a directory, but got '{save_path}'")
    root = Path(source)
    for path in _files_to_convert(where, root, old, regex):
        parameters = load_checkpoint(str(path), format=old)
        renamed = {(name_map or {}).get(name, name): value for name, value in parameters.items()}
        folder = path.parent
        # The folders of ranks are kept under the new root.
        target = folder if save_path is None else Path(save_path) / (folder.relative_to(root) if root.is_dir() else ".")
        target.mkdir(parents=True, exist_ok=True)
        save_checkpoint(renamed, str(target / f"{path.stem}.{new}"), format=new)


def _files_to_convert(where: str, root: Path, suffix: str, regex: str | None) -> list[Path]:
    if root.is_file():
        if root.suffix != f".{suffix}" or (regex and not re.search(regex, str(root))):
            raise For(where).error(f"the file must be a .{suffix} file that fits {regex!r}, got '{root}'")
        return [root]
    For(where).refuse(not root.is_dir(), "'file_path' must be a file or a directory", f"'{root}'")
    ranks = [entry for entry in sorted(root.iterdir()) if entry.is_dir() and entry.name.startswith("rank")]
    For(where).refuse(not ranks, f"'{root}' must hold directories called rank…, but there are none")
    return [
        path for rank in ranks for path in sorted(rank.glob(f"*.{suffix}")) if not regex or re.search(regex, path.name)
    ]
