"""Functions about where tensors are: `mindspore.parallel.function`."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import For
from sporax.ir import LayoutMark, next_number
from sporax.lowering.marks import apply_mark
from sporax.mindspore import context
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.mindspore.parallel._layout import Layout
from sporax.runtime.devices import global_view
from sporax.runtime.state import frames

__path__: list[str] = []  # a package in MindSpore, see `sporax.mindspore._names.module_paths`

__all__ = ["reshard"]


def reshard(tensor: Tensor, layout: Layout) -> Tensor:
    """The same Tensor, sharded as `layout` says. Same as MindSpore.

    Inside a step of semi-automatic or automatic parallelism it is part of the plan; outside, the array is moved. On one
    device nothing happens.

    Args:
        tensor: any Tensor.
        layout: a called Layout over the devices of the run.

    Raises:
        SporaxTypeError: `tensor` is not a Tensor, or `layout` not a Layout.
        SporaxValueError: the layout does not fit the Tensor's shape (SporaxRuntimeError inside a compiled step).
    """
    For("reshard").typed("tensor", tensor, "a Tensor", Tensor)
    For("reshard").typed("layout", layout, "a Layout", Layout)
    value: Any = layout.__layout__()
    # Part of the plan: the mark pins the placement at this place of the program.
    if frames.planning():
        return wrap(apply_mark([tensor.array], LayoutMark("reshard", next_number(), (value,)))[0])
    config = context.plan_settings()
    # In programs without a plan every tensor is whole on its rank.
    if config is None or frames.current_frame() is not None:
        return wrap(tensor.array)
    # Checked before the array moves, with an error that names the dimension.
    value.slice_shape(tensor.shape)
    return wrap(global_view.place_by_layout(tensor.array, value, config.parallel))
