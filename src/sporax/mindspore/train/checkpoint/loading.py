"""Loading slices into a network: `load_distributed_checkpoint` and `load_segmented_checkpoints`.

A network here holds logical wholes. A Parameter that a compiled step keeps in slices is filled slice by slice: each process
reads the blocks of its own devices and no more. A Parameter that no step has placed yet is read whole.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from msgspec import Struct

from sporax.base import MalformedError, decode
from sporax.base.errors import For, SporaxNotImplementedError, SporaxValueError
from sporax.mindspore import context
from sporax.mindspore.common import Parameter, wrap
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train import _ranks
from sporax.mindspore.train._apply import load_param_into_net
from sporax.mindspore.train._stored import open_checkpoint, unsliced, write_stream
from sporax.mindspore.train.checkpoint.assembly import ShardedCheckpoint, layout_from_entry, open_ranks
from sporax.mindspore.train.checkpoint.strategy import SliceLayout, Strategy, read_strategy
from sporax.mindspore.train.checkpoint.transform import COUNTERS, NAME_MAP
from sporax.mindspore.train.serialization import load_checkpoint, name_filter
from sporax.runtime.session import SESSION
from sporax.runtime.storage import Region, StoredTensor, full_region, placed_blocks, region_shape

_DISTRIBUTED = "load_distributed_checkpoint"


class Source(Protocol):
    """Where values come from: slices of ranks, or whole Parameters in several files."""

    def names(self) -> list[str]:
        """All Parameters."""

    def spec(self, name: str) -> StoredTensor:
        """Whole shape and dtype."""

    def read(self, name: str, region: Region | None = None) -> np.ndarray[Any, Any] | str:
        """The values of a block; of all by default."""


def load_distributed_checkpoint(
    network: Cell | None,
    checkpoint_filenames: list[str] | None = None,
    predict_strategy: dict[str, Any] | str | None = None,
    train_strategy_filename: str | None = None,
    strict_load: bool = False,
    dec_key: bytes | None = None,
    dec_mode: str = "AES-GCM",
    format: str = "ckpt",
    unified_safetensors_dir: str | None = None,
    dst_safetensors_dir: str | None = None,
    rank_id: int | None = None,
    output_format: str = "safetensors",
    name_map: dict[str, str] | None = None,
    max_process_num: int = 64,
    return_param_dict: bool = False,
) -> dict[str, Parameter] | None:
    """Load the slices of a distributed job, or unified safetensors, into a network of any other job.

    Args:
        network: the network; None to write slices to `dst_safetensors_dir` or return them.
        checkpoint_filenames: the files of rank 0, 1, ... of the job that saved them; where its processes had several devices,
            those that are there.
        predict_strategy: layouts by name, of slices that are written or returned
            (`Model.infer_predict_layout`) or a strategy file. The network itself knows how it is sharded.
        train_strategy_filename: strategy of the files; None takes ``strategy_ckpt_load_file``.
        strict_load: demand equal dtypes.
        dec_key, dec_mode: encryption is not offered.
        format: of the files: ``"ckpt"`` or ``"safetensors"``.
        unified_safetensors_dir: what `unified_safetensors` wrote, in place of the files.
        dst_safetensors_dir: write the slices of rank `rank_id` to ``rank_N/net<N>.<output_format>`` here.
        rank_id: whose slices are written or returned; this rank's by default.
        output_format: of what is written.
        name_map: names in the network by names in the unified files.
        max_process_num: how many Parameters are read at a time, by threads; no more than there are processors.
        return_param_dict: return this rank's slices.

    Returns:
        The slices by name, if requested.

    Raises:
        SporaxValueError: no Cell, a file that does not exist, another number of files than the strategy has ranks.
        SporaxRuntimeError: a shape or dtype does not fit; nothing was loaded.
    """
    SESSION.looked_for_checkpoint = True
    _check_network(network)
    if dec_key is not None or dec_mode != "AES-GCM":
        raise SporaxNotImplementedError(f"For '{_DISTRIBUTED}', encryption is not offered, but 'dec_key' is given.")
    for name, value in (("strict_load", strict_load), ("return_param_dict", return_param_dict)):
        For(_DISTRIBUTED).boolean(name, value)
    For(_DISTRIBUTED).text("format", format, ("ckpt", "safetensors"))
    For(_DISTRIBUTED).text("output_format", output_format, ("ckpt", "safetensors"))
    For(_DISTRIBUTED).integer("max_process_num", max_process_num, 1)
    if network is None and dst_safetensors_dir is None and not return_param_dict:
        raise SporaxValueError(
            f"For '{_DISTRIBUTED}', without 'network' either 'dst_safetensors_dir' or 'return_param_dict' must be given."
        )
    source: Source
    if unified_safetensors_dir is not None:
        source = _unified(unified_safetensors_dir, name_map)
    else:
        source = _slices(checkpoint_filenames, train_strategy_filename, format)
    if network is not None:
        # More threads than processors only cost memory: each holds a whole Parameter.
        load_source_into_net(_DISTRIBUTED, source, network, strict_load, min(max_process_num, os.cpu_count() or 1))
    rank = _ranks.rank() if rank_id is None else For(_DISTRIBUTED).integer("rank_id", rank_id, 0)
    region_of = _regions(predict_strategy, rank)
    if dst_safetensors_dir is not None:
        folder = Path(dst_safetensors_dir) / f"rank_{rank}"
        folder.mkdir(parents=True, exist_ok=True)
        _write_slices(source, region_of, folder / f"net{rank}.{output_format}")
    return _parameters(source, region_of) if return_param_dict else None


def _check_network(network: object) -> None:
    if network is not None and not isinstance(network, Cell):
        raise SporaxValueError(f"For '{_DISTRIBUTED}', 'network' must be a Cell, but got {type(network).__name__}.")


def _parameters(source: Source, region_of: Callable[[StoredTensor], Region]) -> dict[str, Parameter]:
    """The blocks of a rank by name."""
    names = [name for name in source.names() if source.spec(name).dtype is not None]
    return {name: Parameter(_tensor(source.read(name, region_of(source.spec(name)))), name=name) for name in names}


def _tensor(values: Any) -> Any:
    """A Tensor of an array of numpy or JAX."""
    wrap_any: Any = wrap  # declared for Tensors alone
    return wrap_any(jnp.asarray(values))


def _slices(names: object, strategy_file: str | None, format: str) -> ShardedCheckpoint:
    if not isinstance(names, list | tuple) or not names:
        raise For(_DISTRIBUTED).error("'checkpoint_filenames' must be a list of files", repr(names))
    listed = f"'checkpoint_filenames' must list existing .{format} files, but got {{path!r}}."
    for name in names:
        if not isinstance(name, str) or not name.endswith(f".{format}"):
            raise SporaxValueError(f"For '{_DISTRIBUTED}', {listed.format(path=name)}")
    # An empty name in the context means that none is set.
    strategy_file = strategy_file or context.snapshot().strategy_ckpt_load_file or None
    strategy = read_strategy(_DISTRIBUTED, "train_strategy_filename", strategy_file)
    checkpoint = open_ranks(_DISTRIBUTED, strategy, dict(enumerate(names)), absent=listed)
    # Without one file for each rank, blocks would be missing or taken for those of another rank.
    if strategy.num_ranks != len(names) and not checkpoint.describes_itself:
        raise SporaxValueError(
            f"For '{_DISTRIBUTED}', 'checkpoint_filenames' must have one file for each of the strategy's "
            f"{strategy.num_ranks} ranks, but has {len(names)}."
        )
    checkpoint.check_files(strategy.layouts)
    return checkpoint


class NameMap(Struct, frozen=True):
    """The file that says which file holds each parameter."""

    weight_map: dict[str, str]


def _unified(directory: str, name_map: dict[str, str] | None) -> Source:
    folder = Path(directory)
    try:
        names = sorted(set(decode((folder / NAME_MAP).read_bytes(), NameMap).weight_map.values()))
    except (OSError, MalformedError) as error:
        raise SporaxValueError(
            f"For '{_DISTRIBUTED}', '{folder / NAME_MAP}' must say where parameters are, but: {error}."
        ) from None
    paths = [folder / name for name in names]
    # Step counters are no part of the map, as in MindSpore.
    paths += [folder / COUNTERS] if (folder / COUNTERS).is_file() else []
    files = [open_checkpoint(_DISTRIBUTED, path) for path in paths]
    # The map of the user speaks of names in the unified files.
    for file in files:
        for old, new in (name_map or {}).items():
            if old in file.specs:
                file.rename(old, new)
    return unsliced(_DISTRIBUTED, directory, files)


def _regions(strategy: dict[str, Any] | str | None, rank: int) -> Callable[[StoredTensor], Region]:
    """What gives a rank's block of a Parameter."""
    if isinstance(strategy, str) or strategy is None:
        target = read_strategy(_DISTRIBUTED, "predict_strategy", strategy)
        layout_for = target.layout
        device = target.place(rank)[1]
    elif isinstance(strategy, dict):
        layouts = {name: {0: layout_from_entry(name, entry)} for name, entry in strategy.items() if entry}
        # All layouts of a job have the same number of devices; an empty dict is one rank with everything.
        num_devices = next((stages[0].num_devices for stages in layouts.values()), 1)
        target = Strategy(layouts, 1, num_devices)
        layout_for, device = target.layout, target.place(rank)[1]
    else:
        raise For(_DISTRIBUTED).type_error("'predict_strategy' must be a dict, a file or None", type(strategy).__name__)

    def region_of(spec: StoredTensor) -> Region:
        layout: SliceLayout | None = layout_for(spec.name, rank)
        return full_region(spec.shape) if layout is None else layout.region(device, spec.shape)

    return region_of


def _write_slices(source: Source, region_of: Callable[[StoredTensor], Region], path: Path) -> None:
    # Strings have no blocks, and safetensors has no place for them.
    regions = {name: region_of(spec) for name in source.names() if (spec := source.spec(name)).dtype is not None}
    specs = [StoredTensor(name, region_shape(region), source.spec(name).dtype) for name, region in regions.items()]
    write_stream(path, specs, lambda spec: source.read(spec.name, regions[spec.name]))


def load_source_into_net(
    where: str, source: Source, net: Cell, strict: bool = False, num_threads: int = 1
) -> tuple[list[str], list[str]]:
    """Fill the Parameters of a network, each device with its own block.

    Args:
        where: what errors name.
        source: where values come from.
        net: the network.
        strict: demand equal dtypes.
        num_threads: how many Parameters are read at a time, and are in memory besides the network's own.

    Returns:
        Names in `net` that were not loaded, and names of the source that were not used.

    Raises:
        SporaxRuntimeError: a shape or dtype does not fit; nothing was loaded.
    """
    by_name = fitting_parameters(where, {name: source.spec(name) for name in source.names()}, net, strict)
    # All are checked before the first is changed.
    targets = list(by_name.values())
    with ThreadPoolExecutor(num_threads) as executor:
        # In groups, so that not more than `num_threads` Parameters are in memory besides the network's.
        for first in range(0, len(targets), num_threads):
            together = targets[first : first + num_threads]
            shardings = [None if parameter.has_init else parameter.raw.sharding for parameter in together]
            arrays = executor.map(
                lambda piece: _values(piece[0], source, piece[1]), zip(together, shardings, strict=True)
            )
            for parameter, array in zip(together, arrays, strict=True):
                parameter.set_data(_tensor(array))
    missing = warn_of_missing(where, net, by_name)
    return missing, [name for name in source.names() if name not in by_name]


def fitting_parameters(where: str, specs: Mapping[str, StoredTensor], net: Cell, strict: bool) -> dict[str, Parameter]:
    """The Parameters of a network that a checkpoint has, by name.

    Args:
        where: what errors name.
        specs: whole shapes and dtypes of the checkpoint.
        net: the network.
        strict: demand equal dtypes.

    Raises:
        SporaxRuntimeError: a shape or dtype does not fit.
    """
    # The order is the network's.
    targets = {parameter.name: parameter for parameter in net.get_parameters() if parameter.name in specs}
    problems = [text for name, parameter in targets.items() if (text := _misfit(parameter, specs[name], strict))]
    if problems:
        # A report of ten is long enough; thousands may have one cause.
        raise For(where).state_error(
            f"the parameters of the network must fit the checkpoint, but {'; '.join(problems[:10])}. Nothing was loaded"
        )
    return targets


def warn_of_missing(where: str, net: Cell, loaded: Mapping[str, Parameter]) -> list[str]:
    """Names in a network that were not loaded, with a warning if there are any."""
    missing = [parameter.name for parameter in net.get_parameters() if parameter.name not in loaded]
    if missing:
        warnings.warn(
            f"For '{where}', {len(missing)} parameters of the network are not in the checkpoint and keep their values: "
            f"{', '.join(missing[:10])}.",
            stacklevel=4,
        )
    return missing


def _misfit(parameter: Parameter, spec: StoredTensor, strict: bool) -> str:
    if spec.dtype is None or tuple(parameter.shape) != spec.shape:
        return f"'{parameter.name}' has shape {parameter.shape}, but the checkpoint {spec.shape}"
    dtype = parameter.dtype.np_dtype
    # float16 into float32 is a change of precision, an integer into a float a mistake.
    same_kind = jnp.issubdtype(dtype, jnp.floating) == jnp.issubdtype(spec.dtype, jnp.floating)
    if dtype != spec.dtype and (strict or not same_kind):
        return f"'{parameter.name}' has dtype {dtype}, but the checkpoint {spec.dtype}"
    return ""


def _values(parameter: Parameter, source: Source, sharding: Any) -> Any:
    """The values of a Parameter, each device's block read for itself; whole where no step has placed it yet."""
    name, dtype = parameter.name, parameter.dtype.np_dtype

    def read(region: Region | None) -> np.ndarray[Any, Any]:
        return np.asarray(source.read(name, region)).astype(dtype, copy=False)

    return read(None) if sharding is None else placed_blocks(tuple(parameter.shape), sharding, read)


def load_segmented_checkpoints(
    ckpt_file_dir: str,
    net: Cell | None = None,
    strict_load: bool = False,
    filter_prefix: str | Sequence[str] | None = None,
    dec_key: bytes | None = None,
    dec_mode: str = "AES-GCM",
    specify_prefix: str | Sequence[str] | None = None,
    choice_func: Callable[[str], bool] | None = None,
) -> dict[str, Any]:
    """Read all ``.ckpt`` files of a directory, each of which has some of the Parameters.

    Args:
        ckpt_file_dir: the directory.
        net, strict_load, filter_prefix, dec_key, dec_mode, specify_prefix, choice_func: see `load_checkpoint`.

    Returns:
        Parameters by name.

    Raises:
        SporaxTypeError: the directory is no string.
        SporaxValueError: there is no such directory, it has no ``.ckpt`` file, a file is broken, or two have one Parameter.
    """
    where = "load_segmented_checkpoints"
    For(where).typed("ckpt_file_dir", ckpt_file_dir, "a string", str)
    folder = Path(ckpt_file_dir)
    paths = sorted(path for path in folder.glob("*.ckpt") if path.name[0] != ".") if folder.is_dir() else []
    For(where).refuse(not paths, f"'ckpt_file_dir' must be a directory with .ckpt files, but '{ckpt_file_dir}' is none")
    parameters: dict[str, Any] = {}
    wanted = name_filter(specify_prefix, filter_prefix, choice_func)
    for path in paths:
        # A file without any name that is selected would make `load_checkpoint` raise.
        if not any(map(wanted, open_checkpoint(where, path).specs)):
            continue
        values = load_checkpoint(
            str(path), None, strict_load, filter_prefix, dec_key, dec_mode, specify_prefix, choice_func
        )
        # Which of the two values counts would depend on the names of files.
        twice = sorted(set(values) & set(parameters))
        if twice:
            raise SporaxValueError(f"For '{where}', parameter '{twice[0]}' of '{path}' is in another file as well.")
        parameters.update(values)
    if not parameters:
        raise SporaxValueError(
            f"For '{where}', nothing is left of '{ckpt_file_dir}' after 'filter_prefix', 'specify_prefix' and 'choice_func'."
        )
    if net is not None:
        load_param_into_net(net, parameters, strict_load)
    return parameters
