"""Putting a dictionary of Parameters into a network: everything is checked first, then everything is written.

So an error leaves the network as it was, and what was *not* loaded is always said.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError
from sporax.mindspore.common import Parameter, Tensor, dtypes, wrap
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.train._stored import StoredValues, check_can_be_read, stored_values
from sporax.runtime.state import frames

# Longer lists would hide the message.
_MOST_NAMES = 10
_OF_ONE_RANK = (
    ", as if it were the slice that one rank holds (load_distributed_checkpoint or transform_checkpoints, with the strategy "
    "file, make what this job needs)"
)


def load_param_into_net(
    net: Cell, parameter_dict: dict[str, Any], strict_load: bool = False, remove_redundancy: bool = False
) -> tuple[list[str], list[str]]:
    """Give the Parameters of `net` the values of those in `parameter_dict` that have the same names.

    Nothing is written unless everything fits. A Parameter that is sharded over devices keeps its sharding.

    Args:
        net: the network.
        parameter_dict: what `load_checkpoint` returns.
        strict_load: demand equal dtypes and names. Otherwise floats are converted to floats and integers to integers,
            and names may have a common prefix in `parameter_dict` that they do not have in `net`.
        remove_redundancy: the files lack what other ranks hold as well; it is read from theirs, also without this.

    Returns:
        Names in `net` that were not loaded, and names in `parameter_dict` that were not used.

    Raises:
        SporaxTypeError: an argument is of the wrong type.
        SporaxRuntimeError: a shape or dtype differs; the text lists all that do.
        SporaxValueError: slices that this process needs are in none of the files.

    Warns:
        UserWarning: Parameters of `net` were not loaded, or values were converted.
    """
    _check_arguments(net, parameter_dict, strict_load, remove_redundancy)
    targets = list(net.get_parameters())
    sources = {name: value for name, value in parameter_dict.items() if isinstance(value, Tensor)}
    pairs = _pairs(targets, sources, strict_load)
    # All checks before the first write, so that an error leaves the network as it was.
    _check_fit(pairs, sources, strict_load)
    _check_files(pairs, sources)
    for target, name in pairs:
        if not _take_stored(target, sources[name]):
            target.set_data(wrap(_placed(sources[name].array, target)))
    # By identity: several Parameters may share a name.
    loaded = {id(target) for target, _ in pairs}
    used = {name for _, name in pairs}
    not_loaded = [target.name for target in targets if id(target) not in loaded]
    if not_loaded:
        warnings.warn(
            f"For 'load_param_into_net', {len(not_loaded)} of {len(targets)} parameters of the network are not in "
            f"'parameter_dict' and keep their values: {_listed(not_loaded)}.",
            stacklevel=2,
        )
    return not_loaded, [name for name in parameter_dict if name not in used]


def _pairs(targets: list[Parameter], sources: dict[str, Any], strict_load: bool) -> list[tuple[Parameter, str]]:
    """Parameters with the names of their values; names must be equal under `strict_load`."""
    pairs = [(target, target.name) for target in targets if target.name in sources]
    missing = [target for target in targets if target.name not in sources]
    return pairs if strict_load else pairs + _behind_prefix(missing, sources)


def _update_param(param: Parameter, new_param: Parameter, strict_load: bool) -> None:
    """Give one Parameter the values of another, as `load_param_into_net` does.

    Args:
        param: the Parameter of the network.
        new_param: what it gets.
        strict_load: refuse another dtype, instead of converting it.

    Raises:
        SporaxRuntimeError: another shape, or a dtype that is not converted.
    """
    sources = {new_param.name: new_param}
    _check_fit([(param, new_param.name)], sources, strict_load)
    if not _take_stored(param, new_param):
        param.set_data(wrap(_placed(new_param.array, param)))


def _check_arguments(net: Any, parameter_dict: Any, strict_load: Any, remove_redundancy: Any) -> None:
    where = "load_param_into_net"
    For(where).typed("net", net, "a Cell", Cell)
    For(where).typed("parameter_dict", parameter_dict, "a dict", dict)
    for name, value in parameter_dict.items():
        if not isinstance(name, str) or not isinstance(value, Parameter | str):
            raise For(where).type_error(
                "'parameter_dict' must map strings to Parameters", f"{type(name).__name__} -> {type(value).__name__}"
            )
    For(where).boolean("strict_load", strict_load)
    in_slices = any(stored_values(value) is not None for value in parameter_dict.values())
    if For(where).boolean("remove_redundancy", remove_redundancy) and not in_slices:
        raise SporaxTypeError(
            f"For '{where}', 'remove_redundancy' must be False unless 'parameter_dict' comes from files in slices, but got "
            "True for whole parameters."
        )


def _behind_prefix(missing: list[Parameter], sources: dict[str, Any]) -> list[tuple[Parameter, str]]:
    """Pairs for Parameters whose names in the dictionary have something in front, the same for as many as possible."""
    pairs: list[tuple[Parameter, str]] = []
    # One prefix at a time, until no name is found by taking one off.
    while missing:
        endings = ((name, parameter.name) for parameter in missing for name in sources if name.endswith(parameter.name))
        prefix = next((name.removesuffix(ending) for name, ending in endings if name != ending), "")
        renamed = [
            (parameter, prefix + parameter.name)
            for parameter in missing
            if prefix and prefix + parameter.name in sources
        ]
        if not renamed:
            break
        warnings.warn(
            f"For 'load_param_into_net', {len(renamed)} names in 'parameter_dict' are taken without their prefix '{prefix}'.",
            stacklevel=3,
        )
        pairs += renamed
        # Names without a match may have another prefix.
        missing = [parameter for parameter in missing if prefix + parameter.name not in sources]
    return pairs


def _check_fit(pairs: Iterable[tuple[Parameter, str]], sources: dict[str, Any], strict: bool) -> None:
    """Raise if a value does not fit its target; warn of what will be converted."""
    problems, converted = [], []
    for target, name in pairs:
        source = sources[name]
        stored = stored_values(source)
        shape = source.shape if stored is None else stored.full_shape
        # A file in slices has no dimensions that could be dropped.
        if not _same_shape(target.shape, shape) or (stored is not None and shape != target.shape):
            hint = _OF_ONE_RANK if stored is None and _divides(shape, target.shape) else ""
            problems.append(f"'{target.name}' has shape {target.shape}, but '{name}' has {shape}{hint}")
        elif source.dtype != target.dtype:
            is_converted = any(
                {source.dtype, target.dtype} <= {*kinds} for kinds in (dtypes.float_type, dtypes.int_type)
            )
            if strict or not is_converted:
                problems.append(f"'{target.name}' has dtype {target.dtype}, but '{name}' has {source.dtype}")
            else:
                converted.append(f"{target.name} ({source.dtype} to {target.dtype})")
    if problems:
        raise SporaxRuntimeError(
            "For 'load_param_into_net', the parameters of the network must fit those of 'parameter_dict', but "
            f"{_listed(problems, '; ')}. Nothing was loaded."
        )
    if converted:
        warnings.warn(f"For 'load_param_into_net', values were converted: {_listed(converted)}.", stacklevel=3)


def _divides(part: tuple[int, ...], full: tuple[int, ...]) -> bool:
    return len(part) == len(full) and all(size and length % size == 0 for size, length in zip(part, full, strict=True))


def _same_shape(expected: tuple[int, ...], actual: tuple[int, ...]) -> bool:
    """Equal, or `actual` has further dimensions of size 1 at its end."""
    # MindSpore stores scalars of some optimizers with shape (1,).
    return actual[: len(expected)] == expected and all(size == 1 for size in actual[len(expected) :])


def _check_files(pairs: Iterable[tuple[Parameter, str]], sources: dict[str, Any]) -> None:
    """Raise SporaxValueError if files in slices that are needed are missing."""
    for target, name in pairs:
        stored = stored_values(sources[name])
        if stored is not None:
            check_can_be_read(StoredValues(stored.source, stored.name), sharding_of(target))


def _take_stored(target: Parameter, source: Any) -> bool:
    """Give `target` the values of a file in slices: its devices' blocks now, or the promise of them where none are placed."""
    stored = stored_values(source)
    if stored is None:
        return False
    values = StoredValues(stored.source, stored.name, None, target.dtype)
    sharding = sharding_of(target)
    # Lazy Parameters read their values when they are placed, each device its own block.
    if sharding is None:
        target.take_later(values)
    else:
        target.set_data(wrap(values.make(sharding)))
    return True


def sharding_of(target: Parameter) -> NamedSharding | None:
    """Where a compiled step keeps a Parameter; None where none has placed it."""
    raw = None if target.has_init else frames.slot(target, "raw")
    return raw.sharding if raw is not None and isinstance(raw.sharding, NamedSharding) else None


def _placed(array: jax.Array, target: Parameter) -> jax.Array:
    values = jnp.reshape(array, target.shape).astype(target.dtype.np_dtype)
    # A placed Parameter keeps its sharding; a lazy one is placed later, and one that no step has had where JAX likes.
    return jax.device_put(values, target.raw.sharding) if not target.has_init and target.raw.committed else values


def _listed(items: list[str], separator: str = ", ") -> str:
    text = separator.join(items[:_MOST_NAMES])
    return text if len(items) <= _MOST_NAMES else f"{text}{separator}and {len(items) - _MOST_NAMES} more"
