"""`merge_sliced_parameter`: slices of one Parameter, in the order of the ranks, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sporax.base.errors import SporaxKeyError, SporaxTypeError, SporaxValueError, check_type
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.train.checkpoint.slice_layout import SliceLayout, layout_of
from sporax.mindspore.train.checkpoint.strategy import ParallelLayouts
from sporax.runtime.storage.regions import region_shape

_WHERE = "merge_sliced_parameter"


def merge_sliced_parameter(sliced_parameters: list[Parameter], strategy: dict[str, Any] | None = None) -> Parameter:
    """Put the slices of a Parameter together.

    Args:
        sliced_parameters: those of rank 0, 1, ..., of one name.
        strategy: layouts by name, from `build_searched_strategy`; None concatenates on dimension 0.

    Raises:
        SporaxTypeError: no list of Parameters, or the strategy is no dict.
        SporaxValueError: the list is empty, names, dtypes or shapes differ, or the layout does not fit.
        SporaxKeyError: the strategy lacks the Parameter.

    Example:
        >>> slices = [Parameter(Tensor([0.0, 1.0]), "w"), Parameter(Tensor([2.0, 3.0]), "w")]
        >>> merge_sliced_parameter(slices).shape
        (4,)
    """
    first = _check_slices(sliced_parameters)
    if strategy is not None and not isinstance(strategy, dict):
        raise SporaxTypeError(f"For '{_WHERE}', 'strategy' must be a dict, but got {type(strategy).__name__}.")
    slices = [parameter.asnumpy() for parameter in sliced_parameters]
    if strategy is None:
        # Scalars cannot be concatenated; every rank has the same one.
        merged = np.concatenate(slices) if first.shape else slices[0]
    elif first.name not in strategy:
        raise SporaxKeyError(f"For '{_WHERE}', 'strategy' must have '{first.name}', but has {sorted(strategy)[:10]}.")
    else:
        merged = _assembled(first.name, slices, layout_from_entry(first.name, strategy[first.name]))
    return Parameter(Tensor(merged), first.name, first.requires_grad, first.layerwise_parallel)


def _check_slices(slices: Any) -> Parameter:
    check_type(_WHERE, "sliced_parameters", slices, "a list", list)
    if not slices:
        raise SporaxValueError(f"For '{_WHERE}', 'sliced_parameters' must not be empty.")
    for parameter in slices:
        if not isinstance(parameter, Parameter):
            raise SporaxTypeError.must(_WHERE, "sliced_parameters", "hold Parameters", type(parameter).__name__)
    first: Parameter = slices[0]
    for number, parameter in enumerate(slices):
        for what, value, expected in (
            ("name", parameter.name, first.name),
            ("number of dimensions", len(parameter.shape), len(first.shape)),
            ("shape behind dimension 0", parameter.shape[1:], first.shape[1:]),
            ("dtype", parameter.dtype, first.dtype),
        ):
            if value != expected:
                raise SporaxValueError(
                    f"For '{_WHERE}', all slices must have the same {what}, but slice {number} has {value} and slice 0 "
                    f"{expected}."
                )
    return first


def layout_from_entry(name: str, entry: Any) -> SliceLayout:
    """The layout in what `build_searched_strategy` or `Model.infer_predict_layout` says of a Parameter."""
    try:
        # `hasattr`: also the message of MindSpore's own protobuf module.
        if isinstance(entry, ParallelLayouts) or hasattr(entry, "dev_matrix"):
            fields: dict[str, Any] = {
                # Each field is a list of messages with one list of numbers, as protobuf stores them.
                "dev_matrix": list(entry.dev_matrix[0].dim),
                "tensor_map": list(entry.tensor_map[0].dim),
                "param_split_shape": [row for part in entry.param_split_shape for row in part.dim],
                "opt_weight_shard_step": entry.opt_weight_shard_step,
                "opt_weight_shard_size": entry.opt_weight_shard_size,
            }
        elif isinstance(entry, Mapping):
            fields = dict(entry)
        else:
            # A tuple of `Model.infer_predict_layout`: device matrix, tensor map, and at place 5 the optimizer's group.
            tensor_map = [list(dim) if isinstance(dim, tuple) else dim for dim in entry[1]]
            group = str(entry[5]) if len(entry) > 5 else ""
            fields = {
                "dev_matrix": list(entry[0]),
                "tensor_map": tensor_map,
                "opt_weight_shard_step": 0,
                # A group is named "N-<rank>-<rank>-...": one part more than it has ranks.
                "opt_weight_shard_size": len(group.split("-")) - 1 if group else 0,
            }
        return layout_of(fields)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SporaxValueError(f"For '{_WHERE}', the layout of '{name}' in 'strategy' is broken: {error}.") from None


def _assembled(name: str, slices: Sequence[np.ndarray[Any, Any]], layout: SliceLayout) -> np.ndarray[Any, Any]:
    # A slice that is missing would leave memory that was never written.
    if len(slices) != layout.num_devices:
        raise SporaxValueError(
            f"For '{_WHERE}', 'sliced_parameters' must have one slice of '{name}' for each of {layout.num_devices} ranks, but "
            f"got {len(slices)}."
        )
    try:
        shape = layout.full_shape(slices[0].shape)
        merged = np.empty(shape, slices[0].dtype)
        for rank, values in enumerate(slices):
            region = layout.region(rank, shape)
            if region_shape(region) != values.shape:
                raise SporaxValueError(
                    f"the slice of rank {rank} must be {region_shape(region)}, but is {values.shape}"
                )
            merged[region] = values
    except SporaxValueError as error:
        raise SporaxValueError(f"For '{_WHERE}', slices of '{name}' do not fit the layout: {error}.") from None
    return merged
