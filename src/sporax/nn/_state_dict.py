"""`state_dict` and `load_state_dict`: the values of a Cell by the paths of attributes that lead to them.

Unlike the names of Parameters, which are fixed when a Cell becomes part of another, these paths follow from the present tree.
A Parameter with two paths is there twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sporax.common.parameter import Parameter
from sporax.common.tensor import Tensor
from sporax.ir.errors import SporaxAttributeError, SporaxRuntimeError, SporaxTypeError


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` left over."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


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
        values.update((prefix + path, value) for path, value in self._values_by_path(""))
        return values

    def _values_by_path(self, prefix: str) -> Iterator[tuple[str, Parameter]]:
        for name, parameter in self._params.items():
            if parameter is not None:
                yield prefix + name, parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._transient_buffers:
                yield prefix + name, buffer
        for name, child in self._cells.items():
            if child is not None:
                yield from child._values_by_path(f"{prefix}{name}.")

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
        name = type(self).__name__
        if not isinstance(state_dict, Mapping):
            raise SporaxTypeError(
                f"For 'load_state_dict', 'state_dict' must be a dict, but got {type(state_dict).__name__}."
            )
        own = dict(self._values_by_path(""))
        keys = IncompatibleKeys(
            [key for key in own if key not in state_dict], [key for key in state_dict if key not in own]
        )
        problems = [f"missing: {keys.missing_keys}"] if strict and keys.missing_keys else []
        problems += [f"unexpected: {keys.unexpected_keys}"] if strict and keys.unexpected_keys else []
        for key, target in own.items():
            # A missing value stands for the present one, which fits.
            value = state_dict.get(key, target)
            if not isinstance(value, Tensor):
                problems.append(f"'{key}' must be a Tensor, but is {type(value).__name__}")
            elif value.shape != target.shape:
                problems.append(f"'{key}' must have shape {target.shape}, but has {value.shape}")
        if problems:
            raise SporaxRuntimeError(f"For 'load_state_dict', the values do not fit {name}: {'; '.join(problems)}.")
        # Only after all checks, so that nothing is changed by half.
        for key, target in own.items():
            if key in state_dict and state_dict[key] is not target:
                target.set_data(state_dict[key].astype(target.dtype))
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
