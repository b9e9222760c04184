"""`mindspore.common.api`: compilation, and the executors that scripts reach into.

MindSpore has one object that compiles and runs graphs and one for eager operators. Here Cells compile themselves, so both
objects only forward what scripts ask of them.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, NoReturn

import jax

from sporax.base.errors import SporaxAttributeError, SporaxNotImplementedError, SporaxTypeError
from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common import _gradient_switch
from sporax.mindspore.common.jit import jit, jit_class, ms_function
from sporax.mindspore.common.toplevel import mutable

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
        self.prev_state = _gradient_switch.is_on()
        _gradient_switch.turn(False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _gradient_switch.turn(self.prev_state)


class _CellGraphExecutor:
    """Compiles and runs Cells, as `Cell.compile` and calls do."""

    def compile(self, obj: Any, *args: Any, phase: str = "predict", do_convert: bool = True) -> tuple[str, bool]:
        """Compile a Cell for these inputs.

        Args:
            obj: the Cell.
            args: its inputs.
            phase: changes nothing; given back.
            do_convert: must be True: there is no compilation in steps of one's own.

        Returns:
            `phase`, and True: it was compiled.

        Raises:
            SporaxTypeError: `obj` is not a Cell.
            SporaxNotImplementedError: `do_convert` is False.
        """
        if not do_convert:
            raise SporaxNotImplementedError(
                "For '_cell_graph_executor.compile', 'do_convert' must be True, but got False."
            )
        if not hasattr(obj, "construct"):
            raise SporaxTypeError.must("_cell_graph_executor.compile", "obj", "be a Cell", type(obj).__name__)
        obj.compile(*args)
        return phase, True

    def __call__(self, obj: Any, *args: Any, phase: str = "predict") -> Any:
        """Run a Cell compiled, whatever the mode."""
        return obj.compile_and_run(*args)

    run = __call__

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
        return _gradient_switch.is_on()

    def set_enable_grad(self, flag: bool) -> None:
        """Say whether operators take part in gradients."""
        _gradient_switch.turn(flag)

    def __getattr__(self, name: str) -> NoReturn:
        _refuse("_pynative_executor", name)


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
