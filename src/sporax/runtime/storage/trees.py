"""`sporax.save` and `sporax.load`: pytrees of sharded arrays in a directory, for any JAX program.

    sporax.save("runs/a", {"params": params, "step": 7})
    state = sporax.load("runs/a", like={"params": params, "step": 0})

Problem: a state is sharded over the devices of several processes, is loaded under another sharding by another number of
processes, and a job may be killed at any time. Method: every process writes the slices that it owns into a file of its own
(`sporax.runtime.storage.slice_directory`), with the mark of this save in its name; the marker, which one process writes when all
files are there, replaces that of the save before in one step. Until then the save before is what the directory holds. A
process reads the blocks that its devices need, and compares the checksum of each slice that it reads from.
"""

from __future__ import annotations

import re
import reprlib
import secrets
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Sharding

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError, SporaxValueError
from sporax.runtime.session import SESSION
from sporax.runtime.storage.entries import Region
from sporax.runtime.storage.safetensors_format import NAMES
from sporax.runtime.storage.slice_directory import SliceDirectory, open_directory, write_marker, write_slices
from sporax.runtime.storage.slices import held_slices, placed_blocks, this_rank

Tree = TypeVar("Tree")

_ON_HOST = np.ndarray | np.generic | bool | int | float | complex
"""Leaves that are no JAX arrays."""
_KEYS = "keys"
"""Fact of a file: the implementation of each array of random keys, by name."""
_FILE = re.compile(r"rank_\d+-[0-9a-f]{8}\.safetensors")
_SHARED_SECONDS = 30.0
"""How long a file that another process has written may take to appear in this one: file systems over networks are late."""
_MOST_PROBLEMS = 5
"""Leaves in one message."""


def save(path: str | Path, tree: Any) -> None:
    """Save a pytree of arrays, all of it or nothing. All processes of a job call it, with the same path and structure.

    What the directory held before is replaced when everything has been written; a save that fails or is killed leaves it as it
    was.

    Args:
        path: of a directory that all processes see; made if needed.
        tree: its leaves are JAX arrays in any sharding (arrays of random keys, too), numpy arrays and numbers.

    Raises:
        SporaxTypeError: a leaf is something else, or its dtype is none of the safetensors format.
        SporaxValueError: two leaves have the same path, or `path` is a file.
        SporaxRuntimeError: another process could not write, or saves another tree.
        OSError: this process could not write.

    Example:
        >>> sporax.save(folder / "a", {"w": jax.numpy.arange(4.0), "step": 100})
        >>> sorted(path.name.split("-")[0] for path in (folder / "a").iterdir())
        ['complete.json', 'rank_0']
    """
    folder = Path(path)
    For("save").refuse(folder.exists() and not folder.is_dir(), f"'path' must be a directory, but '{folder}' is a file")
    arrays, keys = _arrays_of(tree)
    described = [(name, array.shape, str(array.dtype)) for name, array in arrays.items()]
    offers = _of_all_processes(zlib.crc32(repr(described).encode()), secrets.randbits(32))
    place = this_rank()
    # Nothing is written where processes save different trees.
    others = [rank for rank, (tree_sum, _) in enumerate(offers) if tree_sum != offers[0][0]]
    if others:
        raise SporaxRuntimeError(
            f"For 'save', all processes must save the same tree, but processes {others} have other leaves, shapes or dtypes than "
            "process 0."
        )
    names = [f"rank_{rank}-{offers[0][1]:08x}.safetensors" for rank in range(place.num_ranks)]
    with _together(f"write to '{folder}'"):
        write_slices(folder / names[place.rank], list(held_slices(arrays, place, once=True)), {_KEYS: keys})
    with _together(f"finish the save in '{folder}', which all processes must see"):
        if place.rank == 0:
            write_marker("save", folder, names, _SHARED_SECONDS, {})
            _remove_others(folder, names)


def load(path: str | Path, like: Tree) -> Tree:
    """Load a pytree that `save` has written, in any sharding. Every process reads the blocks that its devices need.

    Args:
        path: of the directory.
        like: the structure to load: leaves are JAX arrays or `jax.ShapeDtypeStruct` with the shardings that the result gets
            (the default device without one), numpy arrays, and numbers; values are not looked at. Leaves of the directory that
            are not in it are left out, so a part of a state can be loaded.

    Returns:
        The values in the structure of `like`: JAX arrays, numpy arrays and numbers where it has such.

    Raises:
        SporaxTypeError: a leaf of `like` is nothing that can be loaded.
        SporaxValueError: there is no complete save, a slice is damaged, or leaves are missing or have another shape or dtype; the
            message names them.

    Example:
        >>> sporax.save(folder / "b", {"w": jax.numpy.arange(4.0), "step": 100})
        >>> state = sporax.load(folder / "b", like={"step": 0})
        >>> int(state["step"])
        100
    """
    SESSION.looked_for_checkpoint = True
    source = open_directory("load", Path(path), verify=False, checks_parts=True)
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = [_wanted(_name(key_path), leaf) for key_path, leaf in leaves]
    names = set(source.names())
    problems = [problem for leaf in wanted for problem in _problems(source, leaf, names)]
    # All at once, and before anything is read.
    if problems:
        more = f"; and {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
        raise For("load").error(f"'{path}' does not fit 'like': {'; '.join(problems[:_MOST_PROBLEMS])}{more}")
    loaded: Tree = jax.tree.unflatten(structure, [_loaded(source, leaf) for leaf in wanted])
    return loaded


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _arrays_of(tree: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """JAX and numpy arrays by the paths of the leaves, and the implementation of those that are random keys."""
    arrays: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = _name(path)
        if name in arrays:
            raise SporaxValueError(
                f"For 'save', every leaf must have a path of its own, but two have '{name}': {jax.tree_util.keystr(path)} and "
                "one before it."
            )
        if _is_keys(leaf):
            keys[name] = str(jax.random.key_impl(leaf))
        arrays[name] = _array(name, leaf)
    return arrays, keys


def _array(name: str, leaf: Any) -> Any:
    if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array | _ON_HOST):
        raise SporaxTypeError(
            f"For 'save', leaf '{name}' must be an array or a number outside of jit, but it is {reprlib.repr(leaf)}."
        )
    array = _data(leaf) if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if array.dtype not in NAMES:
        raise SporaxTypeError(
            f"For 'save', leaf '{name}' must have one of the dtypes {sorted(map(str, NAMES))}, but has {array.dtype}."
        )
    return array


def _data(array: jax.Array) -> jax.Array:
    """The array as files have it: random keys as their numbers."""
    return jax.random.key_data(array) if _is_keys(array) else array


def _is_keys(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _of_all_processes(*numbers: int) -> list[tuple[int, ...]]:
    """The numbers, below 2**32, that each process calls this with, by process."""
    if jax.process_count() == 1:
        return [numbers]
    # The exchange below is not one of those that are ordered among themselves.
    SESSION.turn.finish()
    gathered = multihost_utils.process_allgather(np.array(numbers, np.uint32))
    return [tuple(map(int, row)) for row in np.asarray(gathered)]


@contextmanager
def _together(task: str) -> Iterator[None]:
    """All processes end the block before one goes on; where it fails in one, errors of the others name `task`."""
    error = None
    try:
        yield
    except Exception as caught:  # the others must be notified of it first
        error = caught
    failed = [rank for rank, (has_failed,) in enumerate(_of_all_processes(int(error is not None))) if has_failed]
    if error is not None:
        raise error
    For("save").refuse_state(
        failed, f"all processes must {task}, but processes {failed} could not; the save before is unchanged"
    )


def _remove_others(folder: Path, names: list[str]) -> None:
    """Remove the files of earlier saves, those of killed ones included."""
    for file in folder.iterdir():
        if _FILE.fullmatch(file.name) and file.name not in names:
            file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A leaf to load.

    Attributes:
        name: its path.
        leaf: of `like`.
        shape, dtype: of its array in the file.
        sharding: of the result; None for the default device, and for what is no JAX array.
    """

    name: str
    leaf: Any
    shape: tuple[int, ...]
    dtype: Any
    sharding: Sharding | None = None

    @property
    def is_on_device(self) -> bool:
        """Whether the result is a JAX array."""
        return isinstance(self.leaf, jax.Array | jax.ShapeDtypeStruct)


def _wanted(name: str, leaf: Any) -> _Wanted:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        data = jax.eval_shape(jax.random.key_data, leaf) if _is_keys(leaf) else leaf
        return _Wanted(name, leaf, tuple(data.shape), data.dtype, leaf.sharding)
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
        array = _data(leaf)
        # What is on the default device for lack of a choice may still go anywhere.
        return _Wanted(name, leaf, array.shape, array.dtype, array.sharding if leaf.committed else None)
    if isinstance(leaf, _ON_HOST):
        values = np.asarray(leaf)
        return _Wanted(name, leaf, values.shape, values.dtype)
    raise For("load").type_error(
        f"leaf '{name}' of 'like' must be an array, a jax.ShapeDtypeStruct or a number, but it is {reprlib.repr(leaf)}"
    )


def _problems(source: SliceDirectory, wanted: _Wanted, names: Collection[str]) -> Iterator[str]:
    """Why a leaf cannot be loaded from a directory with these names."""
    name = wanted.name
    if name not in names:
        yield f"leaf '{name}' is missing, there are {reprlib.repr(source.names())}"
        return
    spec = source.spec(name)
    if (spec.shape, spec.dtype) != (wanted.shape, wanted.dtype):
        yield f"leaf '{name}' must have shape {wanted.shape} and dtype {wanted.dtype}, but has {spec.shape} and {spec.dtype}"
    if wanted.is_on_device and jax.dtypes.canonicalize_dtype(wanted.dtype) != wanted.dtype:
        yield f"leaf '{name}' can have dtype {wanted.dtype} with the setting jax_enable_x64 alone"
    stored = _implementation(source, name)
    found = None if stored is None else jax.eval_shape(partial(jax.random.key, 0, impl=stored)).dtype
    expected = wanted.leaf.dtype if _is_keys(wanted.leaf) else None
    if found != expected:
        yield f"leaf '{name}' must be {expected or 'no random keys'}, but is {found or 'no random keys'}"


def _implementation(source: SliceDirectory, name: str) -> str | None:
    """The implementation of an array of random keys; None of other arrays."""
    found: str | None = source.facts[0].get(_KEYS, {}).get(name)
    return found


def _loaded(source: SliceDirectory, wanted: _Wanted) -> Any:
    def read(block: Region | None = None) -> np.ndarray[Any, Any]:
        return source.read(wanted.name, block)

    if not wanted.is_on_device:
        values = read()
        return (
            values
            if isinstance(wanted.leaf, np.ndarray)
            else values[()]
            if isinstance(wanted.leaf, np.generic)
            else values.item()
        )
    array = jnp.array(read()) if wanted.sharding is None else placed_blocks(wanted.shape, wanted.sharding, read)
    implementation = _implementation(source, wanted.name)
    return array if implementation is None else jax.random.wrap_key_data(array, impl=implementation)
