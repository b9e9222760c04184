"""Family 5: windows that slide over dimensions.

A dimension whose window is a single element is mapped. One with real windows can be sharded when inputs and outputs advance in
step; ranks fetch borders from their neighbours where windows overlap.
"""

from __future__ import annotations

from sporax.planner.rules.language import DimFactors, Draft, Operation, Rule, Window, replicate


def reduce_window_named(operation: Operation) -> Rule:
    """Sum, maximum or minimum over windows."""
    draft = Draft(operation)
    operand, result = _slide(draft, operation.operands[0].shape, operation.results[0].shape, exchanges=True)
    if operation.name == "reduce_window_sum":
        draft.passes((0,), "sum")
    return draft.finish([operand], [result], recipe="window")


def reduce_window(operation: Operation) -> Rule:
    """Any function over windows: only dimensions whose windows do not reach into other slices can be sharded."""
    draft = Draft(operation)
    operand, result = _slide(draft, operation.operands[0].shape, operation.results[0].shape, exchanges=False)
    operands = [operand if tensor.num_dims == len(operand) else () for tensor in operation.operands]
    return draft.finish(operands, [result] * len(operation.results), recipe="window")


def select_and_gather_add(operation: Operation) -> Rule:
    """Of every window the tangent at the place of the extreme. Linear in the tangents."""
    draft = Draft(operation)
    operand, result = _slide(draft, operation.operands[1].shape, operation.results[0].shape, exchanges=False)
    draft.passes((0,), "sum")
    return draft.finish([operand, operand], [result], recipe="window")


def select_and_scatter_add(operation: Operation) -> Rule:
    """Each source element is added at the place of its window's extreme. Linear in the source."""
    draft = Draft(operation)
    operand, source = _slide(draft, operation.operands[1].shape, operation.operands[0].shape, exchanges=False)
    draft.passes((0,), "sum")
    return draft.finish([source, operand], [operand], recipe="window")


def select_and_scatter(operation: Operation) -> Rule:
    """The general form: functions of its own; operand, source and an initial value."""
    if operation.operands[2].num_dims:
        return replicate(operation, "its form is not known")
    draft = Draft(operation)
    operand, source = _slide(draft, operation.operands[0].shape, operation.operands[1].shape, exchanges=False)
    return draft.finish([operand, source, ()], [operand], recipe="window")


def _slide(
    draft: Draft, shape: tuple[int, ...], outputs: tuple[int, ...], *, exchanges: bool
) -> tuple[DimFactors, DimFactors]:
    """Factors of the dimensions that windows slide over, and of those that they make."""
    params = draft.operation.params
    ones = (1,) * len(shape)
    base, inner = (params.get(key, ones) for key in ("base_dilation", "window_dilation"))
    operand, result = [], []
    for dim, (size, num_outputs) in enumerate(zip(shape, outputs, strict=True)):
        extent, stride = params["window_dimensions"][dim], params["window_strides"][dim]
        padding = tuple(params["padding"][dim])
        # A window of one element is an elementwise operation along its dimension.
        if extent == stride == base[dim] == 1 and padding == (0, 0):
            operand.append(draft.map(size))
        else:
            window = Window(size, num_outputs, extent, stride, base[dim], inner[dim], padding[0], exchanges)
            operand.append(_sliding(draft, window))
        result.append(operand[-1])
    return tuple(operand), tuple(result)


def _sliding(draft: Draft, window: Window) -> tuple[int, ...]:
    """A halo factor; slices of a dilated base cannot be cropped here, unlike a convolution's, so those stay whole."""
    return draft.halo(window) if window.base_dilation == 1 else ()
