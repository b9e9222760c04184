"""One forward pass for a Cell that a compiled step calls and differentiates.

Problem: MindSpore's own step cells write ``loss = self.network(*inputs)`` and then ``self.grad(self.network, weights)(*inputs,
sens)``. MindSpore's compiler makes one forward pass of the two: dropout draws once, moving statistics are updated once, and a
pipeline has one loop over its micro batches. Traced as it is written, the step would have two.

Method: calls of Cells are noted while a step is traced. Where a gradient needs a Cell that has been called with the same
inputs, and nothing has been written since, the trace begins again (`Retrace`), and this time the first call already prepares the
gradient (`Pullback`), which the second one takes. A call that comes after the gradient gets its outputs. In PYNATIVE_MODE both
calls run, as in MindSpore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sporax.base.lazy_members import dataclass
from sporax.mindspore.common._pullback import Call, Pullback
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.runtime.state import frames


@dataclass(frozen=True, slots=True)
class Request:
    """What a gradient wants of a call.

    Attributes:
        cell: what is called.
        positions: of the inputs to differentiate.
        weights: the Parameters to differentiate.
    """

    cell: Any
    positions: tuple[int, ...]
    weights: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """A call of a Cell.

    Attributes:
        cell, args, kwargs: what was called.
        training: whether the Cell was in training.
        end: how often the frame had written variables behind it.
        pullback: what its gradient needs, if there is one.
    """

    cell: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    training: bool
    end: int
    pullback: Pullback | None = None


def run_once(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[..., Any]) -> Any:
    """Call a Cell in the frame of a compiled step.

    Args:
        cell: the Cell.
        args, kwargs: its inputs.
        run: what it does.
    """
    frame = frames.current_frame()
    if frame is None or not frame.compiled:
        return run(*args, **kwargs)
    before = _find(frame, cell, args, kwargs)
    if before is not None and before.pullback is not None:
        return before.pullback.outputs
    calls = frame.calls.setdefault(id(cell), [])
    place = len(calls)
    # A Cell that calls itself comes behind this call.
    calls.append(Made(cell, args, kwargs, cell.training, -1))
    request: Request | None = frame.requests.get((id(cell), place))
    wanted = request is not None and request.cell is cell
    pullback = Pullback(Call(cell, args, kwargs, request.positions, request.weights)) if request and wanted else None
    result = run(*args, **kwargs) if pullback is None else pullback.outputs
    calls[place] = Made(cell, args, kwargs, cell.training, frame.writes, pullback)
    return result


def pullback_of(call: Call) -> Pullback:
    """The pullback of a call; that of an earlier call of the same Cell where there is one.

    Raises:
        Retrace: the Cell has been called already, and the trace of the step must begin again.
    """
    cell: Any = call.fn
    frame = frames.current_frame()
    is_cell = hasattr(cell, "construct") and hasattr(cell, "training")
    if frame is None or not frame.compiled or call.has_aux or not is_cell:
        return Pullback(call)
    split = len(call.values) - len(call.names)
    args, kwargs = tuple(call.values[:split]), dict(zip(call.names, call.values[split:], strict=True))
    before = _find(frame, cell, args, kwargs)
    if before is None:
        pullback = Pullback(call)
        calls = frame.calls.setdefault(id(cell), [])
        calls.append(Made(cell, args, kwargs, cell.training, frame.writes, pullback))
        return pullback
    # The trace that finds a step's variables is the first one; later ones know what it has found.
    if before.pullback is None and isinstance(frame, frames.DiscoveryFrame):
        number = len(frame.calls[id(cell)]) - 1
        frame.requests[id(cell), number] = Request(cell, call.positions, call.weights)
        raise frames.Retrace(type(cell).__name__)
    # Another gradient of the same call has a forward pass of its own.
    if before.pullback is None or _wish(before.pullback.call) != _wish(call):
        return Pullback(call)
    return before.pullback


def _wish(call: Call) -> tuple[tuple[int, ...], list[int]]:
    """What is differentiated; Parameters by identity, since comparing them compares their values."""
    return call.positions, [id(weight) for weight in call.weights]


def _find(frame: frames.Frame, cell: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Made | None:
    """The last call of a Cell, if it was with these inputs and nothing that the Cell reads has changed since."""
    calls = frame.calls.get(id(cell))
    made: Made | None = calls[-1] if calls else None
    if made is None or made.cell is not cell or made.training != cell.training or made.kwargs.keys() != kwargs.keys():
        return None
    inputs = [*args, *kwargs.values()]
    earlier = [*made.args, *(made.kwargs[name] for name in kwargs)]
    if len(inputs) != len(earlier) or not all(map(_is_same, inputs, earlier)):
        return None
    return made if made.end == frame.writes else None


def _is_same(value: object, other: object) -> bool:
    if value is other:
        return True
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        # A Parameter is its variable, whatever its value is.
        return not isinstance(value, Parameter) and not isinstance(other, Parameter) and value.array is other.array
    return isinstance(value, bool | int | float | str) and type(value) is type(other) and value == other
