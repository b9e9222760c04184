"""`state_dict` and `load_state_dict`: the values of a Cell by the paths of attributes that lead to them.

Unlike the names of Parameters, which are fixed when a Cell becomes part of another, these paths follow from the present tree.
A Parameter with two paths is there twice.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from sporax.base.errors import For, SporaxAttributeError, SporaxRuntimeError
from sporax.mindspore.common import Parameter, Tensor


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` left over."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def _compare_keys(keys: IncompatibleKeys, expected: Mapping[str, Any], state_dict: Mapping[str, Any]) -> None:
    keys.missing_keys.extend(key for key in expected if key not in state_dict)
    keys.unexpected_keys.extend(key for key in state_dict if key not in expected)


def _key_problems(keys: IncompatibleKeys) -> Iterator[str]:
    if keys.missing_keys:
        yield f"missing: {keys.missing_keys}"
    if keys.unexpected_keys:
        yield f"unexpected: {keys.unexpected_keys}"


def _misfits(own: Mapping[str, Parameter], state_dict: Mapping[str, Any]) -> Iterator[str]:
    for key, target in own.items():
        # A missing value stands for the present one, which fits.
        value = state_dict.get(key, target)
        if not isinstance(value, Tensor):
            yield f"'{key}' must be a Tensor, but is {type(value).__name__}"
        elif value.shape != target.shape:
            yield f"'{key}' must have shape {target.shape}, but has {value.shape}"


def _take_over(own: Mapping[str, Parameter], extras: Mapping[str, StateDict], state_dict: Mapping[str, Any]) -> None:
    for key, target in own.items():
        if key in state_dict and state_dict[key] is not target:
            target.set_data(state_dict[key].astype(target.dtype))
    for key, cell in extras.items():
        if key in state_dict:
            cell.set_extra_state(state_dict[key])


_EXTRA = "_extra_state"
"""Where a Cell's extra state is in a state dict, behind its path."""


class StateHookHandle:
    """What registering returns; `remove` takes the hook away."""

    _numbers = itertools.count()

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        self._number = next(self._numbers)
        hooks[self._number] = hook

    def remove(self) -> None:
        """Take the hook away; doing it twice is fine."""
        self._hooks.pop(self._number, None)


class StateDict:
    """Values by path. Mixed into `Cell`."""

    _cells: dict[str, Any]
    _params: dict[str, Parameter | None]
    _buffers: dict[str, Parameter | None]
    _transient_buffers: frozenset[str] = frozenset()
    """Names of buffers that are no part of the state."""

    def state_dict(
        self, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers of this Cell and all below it, by path.

        Args:
            args: `destination`, `prefix` and `keep_vars` by position, as before.
            destination: put them in there, instead of in a new dict.
            prefix: put in front of every path.
            keep_vars: same either way, as in MindSpore: Parameters are handed out themselves.
        """
        # Positional arguments take their places, and keywords fill the rest.
        destination, prefix = (*args, *(destination, prefix)[len(args) :])[:2]
        values = OrderedDict[str, Any]() if destination is None else destination
        self._collect(values, prefix, keep_vars)
        return values

    def _collect(self, values: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Put the state of this Cell and all below it into `values`, between the hooks of each."""
        for hook in self._state_hooks("state_dict_pre"):
            hook(self, prefix, keep_vars)
        values.update((prefix + name, value) for name, value in self._own_values())
        extra = self._extra_state()
        if extra is not None:
            values[f"{prefix}{_EXTRA}"] = extra
        for name, child in self._cells.items():
            if child is not None:
                child._collect(values, f"{prefix}{name}.", keep_vars)
        for hook in self._state_hooks("state_dict_post"):
            hook(self, values, prefix, {})

    def _own_values(self) -> Iterator[tuple[str, Parameter]]:
        for name, parameter in self._params.items():
            if parameter is not None:
                yield name, parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._transient_buffers:
                yield name, buffer

    def _walk_state(self, prefix: str = "") -> Iterator[tuple[str, StateDict]]:
        """This Cell and all below it, each with what its names start with."""
        yield prefix, self
        for name, child in self._cells.items():
            if child is not None:
                yield from child._walk_state(f"{prefix}{name}.")

    def get_extra_state(self) -> Any:
        """What this Cell wants to have in its state besides Parameters and buffers; a class that has some defines both methods.

        Raises:
            SporaxRuntimeError: this class has none.
        """
        raise SporaxRuntimeError(f"For '{type(self).__name__}', 'get_extra_state' must be defined by the class.")

    def set_extra_state(self, state: Any) -> None:
        """Take over what `get_extra_state` gave.

        Raises:
            SporaxRuntimeError: this class has none.
        """
        raise SporaxRuntimeError(f"For '{type(self).__name__}', 'set_extra_state' must be defined by the class.")

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not StateDict.get_extra_state

    def _extra_state(self) -> Any:
        return self.get_extra_state() if self._has_extra_state() else None

    def _state_hooks(self, kind: str) -> list[Callable[..., Any]]:
        # A copy: a hook may remove itself.
        return list(self.__dict__.get("_hooks_of_state", {}).get(kind, {}).values())

    def _register_state_hook(self, kind: str, hook: Callable[..., Any]) -> StateHookHandle:
        For(f"register_{kind}_hook").refuse_type(not callable(hook), "the hook must be a function", type(hook).__name__)
        if "_hooks_of_state" not in self.__dict__:
            object.__setattr__(self, "_hooks_of_state", {})
        return StateHookHandle(self.__dict__["_hooks_of_state"].setdefault(kind, {}), hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> StateHookHandle:
        """``hook(cell, prefix, keep_vars)`` runs before the state of this Cell is collected."""
        return self._register_state_hook("state_dict_pre", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> StateHookHandle:
        """``hook(cell, state_dict, prefix, local_metadata)`` runs after that; it may change the dict."""
        return self._register_state_hook("state_dict_post", hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> StateHookHandle:
        """``hook(cell, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`` runs before state
        is taken over; it may change the dict, a copy, and add to the three lists.
        """
        return self._register_state_hook("load_state_dict_pre", hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> StateHookHandle:
        """``hook(cell, incompatible_keys)`` runs after that; what it takes off the two lists is no problem any more."""
        return self._register_state_hook("load_state_dict_post", hook)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Take over values by path. Nothing is changed when something does not fit.

        Args:
            state_dict: Tensors by path, as `state_dict` gives them; they are converted to the dtypes here.
            strict: the paths must be the same ones.

        Returns:
            The paths that were missing and those that were not expected.

        Raises:
            SporaxTypeError: no mapping.
            SporaxRuntimeError: paths or shapes do not fit, or a value is no Tensor; the message has all of them.
        """
        For("load_state_dict").typed("state_dict", state_dict, "a dict", Mapping)
        cells = list(self._walk_state())
        state_dict, keys, broken = dict(state_dict), IncompatibleKeys([], []), list[str]()
        for prefix, cell in cells:
            for hook in cell._state_hooks("load_state_dict_pre"):
                hook(cell, state_dict, prefix, {}, True, keys.missing_keys, keys.unexpected_keys, broken)
        own = {prefix + path: value for prefix, cell in cells for path, value in cell._own_values()}
        extras = {f"{prefix}{_EXTRA}": cell for prefix, cell in cells if cell._has_extra_state()}
        _compare_keys(keys, {**own, **extras}, state_dict)
        # Those below come first, as they are complete first.
        for _, cell in reversed(cells):
            for hook in cell._state_hooks("load_state_dict_post"):
                hook(cell, keys)
        problems = [*broken, *(_key_problems(keys) if strict else ()), *_misfits(own, state_dict)]
        For("load_state_dict").refuse_state(
            problems, f"the values do not fit {type(self).__name__}: {'; '.join(problems)}"
        )
        # Only after all checks, so that nothing is changed by half.
        _take_over(own, extras, state_dict)
        return keys

    def get_sub_cell(self, target: str) -> Any:
        """The Cell at a path such as ``"block.dense"``; this one for ``""``.

        Raises:
            SporaxAttributeError: there is none.
        """
        cell: Any = self
        for name in filter(None, target.split(".")):
            cell = cell._cells.get(name)
            if cell is None:
                raise SporaxAttributeError(f"For '{type(self).__name__}', '{target}' is not the path of a Cell.")
        return cell
