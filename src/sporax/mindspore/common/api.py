"""`mindspore.common.api`: compilation, and the executors that scripts reach into.

MindSpore has one object that compiles and runs graphs and one for eager operators. Here Cells compile themselves, so both
objects only forward the calls of scripts.

Small things `mindspore` offers at its top level.

`JitConfig`: settings of MindSpore's own compiler, checked and kept.
"""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType
from typing import Any, NoReturn

import jax
import numpy as np

from sporax.base.errors import For, SporaxAttributeError, SporaxNotImplementedError, SporaxTypeError
from sporax.mindspore._names.missing import answer_missing_names, late
from sporax.mindspore.common import gradient_hooks
from sporax.mindspore.common._rank_parts import of_all_ranks
from sporax.mindspore.common.jit import jit, jit_class, ms_function
from sporax.mindspore.common.tensor import Tensor, is_tensor as is_tensor


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A Tensor with the values of a numpy array (a copy).

    Raises:
        SporaxTypeError: not a numpy array.
    """
    return Tensor.from_numpy(array)


def set_recursion_limit(recursion_limit: int = 1000) -> None:
    """Let functions call each other at least so deep while they are traced.

    The limit is Python's own, which is raised and never lowered: a lower one would stop Python's libraries too.

    Raises:
        SporaxTypeError: not an int.
        SporaxValueError: not positive.
    """
    if isinstance(recursion_limit, bool) or not isinstance(recursion_limit, int):
        raise SporaxTypeError(
            f"For 'set_recursion_limit', the input value must be int, but got '{type(recursion_limit).__name__}'."
        )
    For("set_recursion_limit").refuse(
        recursion_limit <= 0, "the input value must be int and must > 0", f"'{recursion_limit}'"
    )
    sys.setrecursionlimit(max(recursion_limit, sys.getrecursionlimit()))


def mutable(input_data: Any, dynamic_len: bool = False) -> Any:
    """Arguments of a compiled function that may change without a new compilation.

    Tensors may anyway, wherever they are; numbers are constants of a compiled step, so they become Tensors of no dimension,
    which have no gradient.
    A step with a shape, an axis or a setting of them runs operator by operator.

    Args:
        input_data: a number, a Tensor, or tuples, lists and dicts of these.
        dynamic_len: the length of a tuple or list may change as well; each length has a program of its own.

    Raises:
        SporaxTypeError: something else in it, `dynamic_len` is not a bool, or is True for what has no length.
    """
    For("mutable").typed("dynamic_len", dynamic_len, "a bool", bool)
    if dynamic_len:
        For("mutable").typed("input_data", input_data, "a tuple or list if 'dynamic_len' is True", tuple | list)
    if isinstance(input_data, tuple | list):
        return type(input_data)(mutable(item) for item in input_data)
    if isinstance(input_data, dict):
        return {key: mutable(item) for key, item in input_data.items()}
    if isinstance(input_data, Tensor):
        return input_data
    if isinstance(input_data, bool | int | float):
        number = Tensor(input_data)
        number.static_part = gradient_hooks.NUMBER
        return number
    raise SporaxTypeError(
        "For 'mutable', 'input_data' must be a bool, int, float, Tensor, or tuples, lists and dicts of these, but got "
        f"{type(input_data).__name__}."
    )


__all__ = ["jit", "jit_class", "ms_function", "ms_memory_recycle", "mutable"]

answer_missing_names(__name__)


class _no_grad(contextlib.ContextDecorator):  # noqa: N801 (MindSpore's name)
    """Context, or decorator, in which operators take no part in gradients.

    Same as MindSpore; works in both modes.

    Example:
        >>> with _no_grad():
        ...     target = net(x)
    """

    # Nested uses restore what was on before.
    def __init__(self) -> None:
        self.prev_state = True

    def __enter__(self) -> None:
        self.prev_state = gradient_hooks.is_on()
        gradient_hooks.turn(False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gradient_hooks.turn(self.prev_state)


class _CellGraphExecutor:
    """Compiles and runs Cells, as `Cell.compile` and calls do."""

    def compile(self, obj: Any, *args: Any, phase: str = "predict", do_convert: bool = True) -> tuple[str, bool]:
        """Compile a Cell for these inputs.

        Args:
            obj: the Cell.
            args: its inputs, as one rank feeds them.
            phase: changes nothing; given back.
            do_convert: must be True: there is no compilation in steps of one's own.

        Returns:
            `phase`, and True: it was compiled.

        Raises:
            SporaxTypeError: `obj` is not a Cell.
            SporaxNotImplementedError: `do_convert` is False.
        """
        if not do_convert:
            raise For("_cell_graph_executor.compile").fault(
                SporaxNotImplementedError, "'do_convert' must be True", "False"
            )
        if not hasattr(obj, "construct"):
            raise For("_cell_graph_executor.compile").type_error("'obj' must be a Cell", type(obj).__name__)
        obj.compile(*of_all_ranks(args))
        return phase, True

    def __call__(self, obj: Any, *args: Any, phase: str = "predict") -> Any:
        """Run a Cell compiled, whatever the mode."""
        return obj.compile_and_run(*args)

    run = __call__

    def _get_shard_strategy(self, obj: Any) -> dict[str, list[list[int]]]:
        """Numbers of slices of each operator of a compiled Cell, by its name; empty where no plan shards the Cell."""
        planned = obj.program.planned
        return {} if planned is None else _by_operator(planned)

    def _get_num_parallel_ops(self, obj: Any) -> int:
        """Number of operators of a compiled Cell that a plan shards."""
        return len(self._get_shard_strategy(obj))

    def __getattr__(self, name: str) -> NoReturn:
        _refuse("_cell_graph_executor", name)


class _PyNativeExecutor:
    """The executor of eager operators, as far as scripts reach into it."""

    def sync(self) -> None:
        """Wait until everything that was started is computed."""
        # Effects first: they may still write to arrays.
        jax.effects_barrier()
        for array in jax.live_arrays():
            # Buffers of Parameters are given away at each step.
            if not array.is_deleted():
                array.block_until_ready()

    def enable_grad(self) -> bool:
        """Whether operators take part in gradients."""
        return gradient_hooks.is_on()

    def set_enable_grad(self, flag: bool) -> None:
        """Say whether operators take part in gradients."""
        gradient_hooks.turn(flag)

    def __getattr__(self, name: str) -> NoReturn:
        _refuse("_pynative_executor", name)


_by_operator = late("sporax.mindspore.context._strategy_files.files:by_operator")


def _refuse(executor: str, name: str) -> NoReturn:
    # Python looks up special names itself and expects an AttributeError.
    if name.startswith("__"):
        raise AttributeError(name)
    raise SporaxAttributeError(f"For '{__name__}', '{executor}.{name}' is not offered.")


def ms_memory_recycle() -> None:
    """Give memory of compiled programs back."""
    # JAX frees programs that nothing refers to any more.
    jax.clear_caches()


_cell_graph_executor = _CellGraphExecutor()
_executor = _cell_graph_executor
_pynative_executor = _PyNativeExecutor()

_CHOICES = {
    "jit_level": ("", "O0", "O1", "O2"),
    "exc_mode": ("auto", "sink", "no_sink"),
    "jit_syntax_level": ("", "STRICT", "COMPATIBLE", "LAX"),
    "debug_level": ("RELEASE", "DEBUG"),
    "infer_boost": ("on", "off"),
}


class JitConfig:
    """Settings for `Cell.set_jit_config`, which has no use for them and says so.

    Args:
        jit_level, exc_mode, jit_syntax_level, debug_level, infer_boost: as in MindSpore.
        kwargs: kept with the others.

    Raises:
        SporaxValueError: a value that is not one of MindSpore's.
    """

    def __init__(
        self,
        jit_level: str = "",
        exc_mode: str = "auto",
        jit_syntax_level: str = "",
        debug_level: str = "RELEASE",
        infer_boost: str = "off",
        **kwargs: Any,
    ) -> None:
        settings = {
            "jit_level": jit_level,
            "exc_mode": exc_mode,
            "jit_syntax_level": jit_syntax_level,
            "debug_level": debug_level,
            "infer_boost": infer_boost,
        }
        for name, value in settings.items():
            For("JitConfig").one_of(name, value, _CHOICES[name])
        # Named settings win over further ones of the same name.
        self.jit_config_dict = {**kwargs, **settings}
