"""Values that every package above speaks: layouts, strategies, graphs, marks, plans, settings (`config`). No JAX here.

MindSpore's side finds here what is below, and the dimensions of operators in `operator_dims`.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.ir import uneven, variables
    from sporax.ir.device_matrix import INTERLEAVED, INTERLEAVED_SIZE, DeviceMatrix, ravel, unravel
    from sporax.ir.graph import MICRO_LOOP, SEGMENT, STAGE, OperatorGraph, Role
    from sporax.ir.layout import HasLayout, Layout, Strategy, TensorMap, strategy_text
    from sporax.ir.marks import (
        FIXED,
        GradientMark,
        LayoutMark,
        LossMark,
        OperatorMark,
        RankSumMark,
        RowsMark,
        SavedMark,
        Shardings,
        Side,
        next_number,
    )
    from sporax.ir.operation import Shape, TensorSpec, with_newer
    from sporax.ir.pipeline_schedule import PipelineSchedule
    from sporax.ir.placement import Axes, Placement, axes_index
    from sporax.ir.plan import Plan

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
