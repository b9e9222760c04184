"""Which Cells and operators of a network compute in half precision.

Parameters stay in float32. A Cell in half precision casts its floating inputs on entry, and layers cast their weights to
match (`Cell.to_float`); what leaves a Cell that stays behind is cast back. Level ``"auto"`` decides operator by operator
instead (`sporax.mindspore.ops._core.precision`).
`build_train_network` makes a training step in mixed precision of network, loss and optimizer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from sporax.base.errors import For, SporaxNotImplementedError, SporaxTypeError, SporaxValueError
from sporax.mindspore import context, nn, ops
from sporax.mindspore.amp._scalers import DynamicLossScaleManager, LossScaleManager
from sporax.mindspore.common import DType, Tensor, dtypes
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.optim import Optimizer
from sporax.mindspore.ops import Primitive
from sporax.mindspore.ops._core.precision import Precision, ruled_by
from sporax.runtime.state import ordered_trees


@functools.cache
def _white_cells() -> tuple[type[Cell], ...]:
    """MindSpore's published list: products and convolutions gain most from half precision and accumulate in float32."""
    return (
        nn.Conv1d,
        nn.Conv2d,
        nn.Conv3d,
        nn.Conv1dTranspose,
        nn.Conv2dTranspose,
        nn.Conv3dTranspose,
        nn.Dense,
        nn.LSTMCell,
        nn.RNNCell,
        nn.GRUCell,
    )


_WHITE_PRIMITIVES = (
    ops.Conv2D,
    ops.Conv3D,
    ops.Conv2DTranspose,
    ops.Conv3DTranspose,
    ops.Conv2DBackpropInput,
    ops.MatMul,
    ops.BatchMatMul,
    ops.PReLU,
    ops.ReLU,
    ops.Ger,
)


@functools.cache
def _black_cells() -> tuple[type[Cell], ...]:
    """Statistics over many elements lose too many bits in half precision, so level O2 leaves these Cells out."""
    return (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm)


def get_white_list() -> list[type]:
    """Cells and primitives that level O1 computes in half precision; a new list."""
    return [*_white_cells(), *_WHITE_PRIMITIVES]


def get_black_list() -> list[type]:
    """Cells that level O2 keeps in float32; a new list."""
    return list(_black_cells())


def auto_mixed_precision(network: Any, amp_level: str = "O0", dtype: DType = dtypes.float16) -> Any:
    """Make a network compute in mixed precision; changes it and returns it.

    Args:
        network: the network; for level ``"auto"`` a function too, which comes back wrapped.
        amp_level: ``"O0"``: nothing. ``"O1"``: Cells and primitives of the white list in half precision, their results in
            float32. ``"O2"``: all in half precision but the Cells of the black list; the network's outputs in float32.
            ``"O3"``: all in half precision, outputs in float32. ``"auto"``: each operator chooses: products and
            convolutions compute in half precision, what loses too much there (norms, softmax, exponentials, losses, …)
            in float32, others in what their inputs have; the network's outputs may be in half precision. Cells with a
            `to_float` of their own stay as that says.
        dtype: float16 or bfloat16.

    Raises:
        SporaxTypeError: `network` is not a Cell (or a function, for ``"auto"``).
        SporaxValueError: no such level or dtype.
    """
    # Other callables have no code to wrap, so only true functions and methods count.
    function = amp_level == "auto" and isinstance(network, FunctionType | MethodType)
    if not isinstance(network, Cell) and not function:
        expected = "a Cell or a function" if amp_level == "auto" else "a Cell"
        raise For("auto_mixed_precision").type_error(f"'network' must be {expected}", type(network).__name__)
    _check_dtype("auto_mixed_precision", dtype)
    For("auto_mixed_precision").one_of("amp_level", amp_level, ("O0", "O1", "O2", "O3", "auto"))
    if function:
        return _choosing(network, dtype)
    if amp_level == "auto":
        # Decided per operator while the network runs: the Cells keep no casts of their own.
        network.set_precision(Precision(dtype))
        return network
    if amp_level == "O1":
        _lower_listed(network, tuple(get_white_list()), dtype)
    # Level O3 is level O2 with an empty black list.
    elif amp_level != "O0":
        _lower_others(network, _black_cells() if amp_level == "O2" else (), dtype)
    return network


def _choosing(function: Callable[..., Any], dtype: DType) -> Callable[..., Any]:
    """`function`, its operators choosing their precision."""
    precision = Precision(dtype)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # The rule holds during the call only, so it also covers functions that `function` calls.
        with ruled_by(precision):
            return function(*args, **kwargs)

    return call


def custom_mixed_precision(
    network: Cell,
    *,
    white_list: list[type] | None = None,
    black_list: list[type] | None = None,
    dtype: DType = dtypes.float16,
) -> Cell:
    """Make a network compute in mixed precision by a list of one's own; changes it and returns it.

    Args:
        network: the network.
        white_list: Cells and primitives to compute in half precision, as level O1 does with its own list.
        black_list: Cells to keep in float32, as level O2 does.
        dtype: float16 or bfloat16.

    Raises:
        SporaxTypeError: `network` is not a Cell, or a list holds something else than such classes.
        SporaxValueError: not exactly one list, or no such dtype.
    """
    name = "custom_mixed_precision"
    For(name).typed("network", network, "a Cell", Cell)
    if (white_list is None) == (black_list is None):
        raise SporaxValueError(f"For '{name}', give either 'white_list' or 'black_list', but got both or none.")
    _check_dtype(name, dtype)
    if white_list is not None:
        _lower_listed(network, _checked_list("white_list", white_list, (Cell, Primitive)), dtype)
    else:
        _lower_others(network, _checked_list("black_list", black_list, (Cell,)), dtype)
    return network


def _check_dtype(name: str, dtype: Any) -> None:
    if dtype not in (dtypes.float16, dtypes.bfloat16):
        raise SporaxValueError(f"For '{name}', 'dtype' must be float16 or bfloat16, but got {dtype!r}.")


def _checked_list(what: str, classes: Any, allowed: tuple[type, ...]) -> tuple[type, ...]:
    For("custom_mixed_precision").typed(what, classes, "a list", list)
    # A subclass test with a value that is not a class would raise Python's own TypeError.
    for class_ in classes:
        if not isinstance(class_, type) or not issubclass(class_, allowed):
            kinds = " or ".join(kind.__name__ for kind in allowed)
            raise For("custom_mixed_precision").type_error(f"'{what}' must hold subclasses of {kinds}, got {class_!r}")
    return tuple(classes)


def _lower_listed(network: Cell, listed: tuple[type, ...], dtype: DType) -> None:
    """Half precision inside listed Cells and primitives, float32 behind them."""
    if isinstance(network, listed):
        network.to_float(dtype)
        # Behind every listed Cell the result is cast back, so other Cells never see half precision.
        network.set_precision(dtype, dtypes.float32)
        # What is inside a listed Cell follows its cast; a second one there would be redundant.
        return
    for name, value in vars(network).items():
        # A primitive is a plain attribute and no child Cell, so it is replaced by one that casts.
        if isinstance(value, listed) and isinstance(value, Primitive):
            # Past `Cell.__setattr__`: the wrapper stands for the same attribute, so nothing new is registered.
            object.__setattr__(network, name, _Lowered(value, dtype))
    for child in network.cells():
        _lower_listed(child, listed, dtype)


def _lower_others(network: Cell, excluded: tuple[type, ...], dtype: DType) -> None:
    """Half precision everywhere but in `excluded` Cells, whose results are cast to it; the network's results are float32."""

    def lower(cell: Cell) -> None:
        cell.set_precision(dtype)
        for child in cell.cells():
            if isinstance(child, excluded):
                # Inputs to float32, results back to half precision: the next Cell expects what its neighbours give.
                child.to_float(dtypes.float32)
                child.set_precision(dtypes.float32, dtype)
            else:
                lower(child)

    lower(network)
    # Last, since `lower` leaves the outputs of the outermost Cell in half precision.
    network.set_precision(dtype, dtypes.float32)


class _Lowered:
    """A primitive that computes in half precision and gives float32. Everything else about it is the primitive's."""

    def __init__(self, primitive: Primitive, dtype: DType) -> None:
        self._primitive = primitive
        self._dtype = dtype

    def __call__(self, *args: Any) -> Any:
        """Run the primitive on cast inputs."""
        result = self._primitive(*(_cast(arg, self._dtype) for arg in args))
        if isinstance(result, tuple):
            return tuple(_cast(output, dtypes.float32) for output in result)
        return _cast(result, dtypes.float32)

    # Attributes such as the name and the strategy stay readable through the wrapper.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._primitive, name)

    def __repr__(self) -> str:
        return repr(self._primitive)


def _cast(value: Any, dtype: DType) -> Any:
    return value.astype(dtype) if isinstance(value, Tensor) and value.dtype in dtypes.float_type else value


# The names that MindSpore takes as keyword arguments; others are mistakes.
_SETTINGS = ("cast_model_type", "keep_batchnorm_fp32", "loss_scale_manager")


def build_train_network(
    network: Cell, optimizer: Optimizer, loss_fn: Any = None, level: str = "O0", boost_level: str = "O0", **kwargs: Any
) -> Cell:
    """One training step as a Cell, in training mode.

    Args:
        network: the network.
        optimizer: updates its Parameters.
        loss_fn: the loss; None when the network gives it.
        level: as in `auto_mixed_precision`. ``"O2"`` also takes a `DynamicLossScaleManager`.
        boost_level: ``"O0"``; MindSpore's other levels are not offered.
        kwargs: override what the level says: ``cast_model_type`` (float16 or float32), ``keep_batchnorm_fp32`` (bool),
            ``loss_scale_manager`` (a `LossScaleManager`, or None).

    Raises:
        SporaxTypeError, SporaxValueError: settings of another kind.
        SporaxNotImplementedError: `boost_level` above O0.
    """
    name = "build_train_network"
    For(name).typed("optimizer", optimizer, "an Optimizer", Optimizer)
    if level not in ("O0", "O1", "O2", "O3", "auto"):
        raise SporaxValueError(f"For '{name}', 'level' must be 'O0' to 'O3' or 'auto', but got {level!r}.")
    For(name).refuse(
        boost_level != "O0", "'boost_level' must be 'O0'", boost_level, show=repr, kind=SporaxNotImplementedError
    )
    _check_settings(name, kwargs)
    network = auto_mixed_precision(network, _effective_level(level, kwargs))
    if loss_fn is not None:
        # Levels whose outputs may be in half precision; a loss summed there would lose small terms.
        in_half = _effective_level(level, kwargs) in ("O2", "O3", "auto")
        network = _InFloat32(network, loss_fn) if in_half else nn.WithLossCell(network, loss_fn)
    # Level O2 has a dynamic scale by default, as in MindSpore; an explicit None turns it off.
    manager = kwargs.get("loss_scale_manager", DynamicLossScaleManager() if level == "O2" else None)
    step: nn.TrainOneStepCell
    if manager is None:
        step = nn.TrainOneStepCell(network, optimizer)
    elif (update := manager.get_update_cell()) is None:
        # A fixed scale without overflow check: one multiplication, so the plain training Cell is enough.
        step = nn.TrainOneStepCell(network, optimizer, manager.get_loss_scale())
    else:
        step = nn.TrainOneStepWithLossScaleCell(network, optimizer, update)
    # Read when the step is compiled: the number of stages may be set later than this.
    step.divisor = functools.partial(_gradient_divisor, network)
    return step.set_train()


def _gradient_divisor(network: Cell) -> int:
    """By what gradients are divided: the number of micro batches, where they are summed by a pipeline or `GradAccumulation`.

    The loss stays the sum over the micro batches.
    """
    cells = [cell for _, cell in network.cells_and_names()]
    stages = [cell.get_pipeline_stages() for cell in cells if hasattr(cell, "get_pipeline_stages")]
    # The number of stages may come from the context or from an `AutoParallel` Cell around the network.
    piped = max([context.snapshot().pipeline_stages, *stages]) > 1
    for cell in cells:
        size = getattr(cell, "micro_size", None)
        # Cells with micro batches divide only where something sums their gradients.
        if isinstance(size, int) and (piped or getattr(cell, "divides_gradients", False)):
            return size
    return 1


class _InFloat32(nn.WithLossCell):
    """Network and loss, the loss of float32 outputs and labels."""

    def construct(self, data: Any, label: Any) -> Tensor:
        return self._loss_fn(_raised(self._backbone(data)), _raised(label))


def _raised(value: Any) -> Any:
    def raise_one(leaf: Any) -> Any:
        return leaf.astype(dtypes.float32) if isinstance(leaf, Tensor) and leaf.dtype in dtypes.float_type else leaf

    return ordered_trees.mapped(raise_one, value, is_leaf=lambda leaf: isinstance(leaf, Tensor))


def _effective_level(level: str, settings: dict[str, Any]) -> str:
    """The level that settings given one by one amount to."""
    # Settings beat the level, so the level gives the defaults and what results is named again.
    in_half = settings.get("cast_model_type", dtypes.float16 if level in ("O2", "O3") else None)
    if in_half == dtypes.float32:
        # float32 undoes only the levels that cast all Cells; O1 and auto do not depend on this setting.
        return "O0" if level in ("O2", "O3") else level
    if in_half == dtypes.float16:
        return "O2" if settings.get("keep_batchnorm_fp32", level == "O2") else "O3"
    return level


def _check_settings(name: str, settings: dict[str, Any]) -> None:
    for what, value in settings.items():
        For(name).refuse(what not in _SETTINGS, f"the settings are {_SETTINGS}, but got '{what}'")
        if what == "cast_model_type" and value not in (dtypes.float16, dtypes.float32):
            raise SporaxTypeError(f"For '{name}', 'cast_model_type' must be float16 or float32, but got {value!r}.")
        if what == "keep_batchnorm_fp32" and not isinstance(value, bool):
            raise For(name).type_error("'keep_batchnorm_fp32' must be a bool", type(value).__name__)
        if what == "loss_scale_manager" and value is not None and not isinstance(value, LossScaleManager):
            raise For(name).type_error("'loss_scale_manager' must be a LossScaleManager", type(value).__name__)
