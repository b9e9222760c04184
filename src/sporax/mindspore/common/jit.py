"""`jit`: compile a function, a Cell or a method into one program.

The work is done by `sporax.runtime.program.program.Program`; here are MindSpore's ways of requesting it.
"""

from __future__ import annotations

import functools
import traceback
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore import context
from sporax.mindspore.common import _deferred_gradients as deferred_gradients
from sporax.mindspore.common._assigned_globals import AssignedGlobals
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.symbol import check_described
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.runtime import program as programs, world
from sporax.runtime.ranks import initial_broadcast
from sporax.runtime.session import SESSION
from sporax.runtime.state import frames

# Calls whose arguments are all Tensors take a quicker path through `Program`.
SESSION.holders.add(Tensor)

_DEFAULTS = {"capture_mode": "ast", "jit_level": "O0", "dynamic": 0, "backend": ""}
_WITHOUT_MEANING = (*_DEFAULTS, "mode", "hash_args", "jit_config", "compile_once")


class Compiled:
    """A function that runs as one compiled program; inside another program it becomes part of that one.

    Example:
        >>> @jit
        ... def step(x, y):
        ...     return x + y
    """

    def __init__(self, function: Callable[..., Any], input_signature: Any = None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        name = getattr(function, "__name__", type(function).__name__)
        self.program = programs.Program(returning_values(function), name, context.plan_settings)
        self._signature = _signature_leaves(input_signature)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, compiling it first when the inputs are new."""
        if self._signature is not None:
            self._check_signature(args)
        if frames.current_frame() is not None:
            return self.function(*args, **kwargs)
        return run_program(self.program, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def _check_signature(self, args: tuple[Any, ...]) -> None:
        # Arguments that are no Tensors are not declared.
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        check_described(self.program.name, "input_signature", self._signature or [], tensors)


_handlers: list[Callable[[Exception], bool]] = []


def when_failed(handler: Callable[[Exception], bool]) -> None:
    """Have `handler` called with the error of a trace; it says whether the program is to end there, without a result."""
    _handlers.append(handler)


def returning_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as the body of a program: entered under the present context, and with results that can leave it.

    A program returns values, so Parameters become Tensors. What is read one by one, such as ``zip(x, y)``, is read before the
    step ends: as in MindSpore, filters and generators become lists, the others tuples. Dicts keep the order of their keys.
    Global names that it assigns are as before after a trace, which is no call of the user's.
    """
    assigned = AssignedGlobals(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        context.enter_step()
        if frames.compiling():
            if context.starts_from_first_rank():  # its first loss, too
                initial_broadcast.request(())
            try:
                return assigned.run(lambda: _result(function(*args, **kwargs)))
            except Exception as error:
                # May have the function rewritten and traced again.
                if not any(handler(error) for handler in _handlers):
                    raise
                return None
        return assigned.run_openly(lambda: _result(function(*args, **kwargs)))

    call.assigned = assigned  # type: ignore[attr-defined]  # functions carry what belongs to them
    return call


_READ_AS_TUPLE = (map, zip, enumerate, range)
READ_AS_LIST: list[type] = [filter, types.GeneratorType]


def _result(value: Any) -> Any:
    """A result of a function as its program returns it."""
    kind = type(value)
    if kind is tuple or kind in _READ_AS_TUPLE:
        return tuple(map(_result, value))
    if kind is list or kind in READ_AS_LIST:
        return list(map(_result, value))
    if kind is dict:
        return {key: _result(entry) for key, entry in value.items()}
    return jax.tree.map(lambda leaf: wrap(leaf.array) if isinstance(leaf, Parameter) else leaf, value)


def run_program(program: programs.Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a program; where its function reads values, for numpy or for shapes, run that operator by operator, with a warning.

    The same where it assigns global names, which a compiled program cannot do at each call.
    MindSpore at its default ``jit_syntax_level`` (LAX) does the same with such parts of a function.

    Raises:
        SporaxTypeError: values are read, and a plan shards the step, or ranks work on it together, or the level is STRICT
            and they are for numpy.
    """
    assigned = getattr(program.function, "assigned", None)
    if assigned is not None:
        assigned.look()
    try:
        # Gradients may be computed here and used by an optimizer in a call of its own.
        return deferred_gradients.run(program, args, kwargs) if context.plans_only() else program(*args, **kwargs)
    except frames.ValueNeededError as needed:
        # MindSpore's compiled steps have shapes that depend on values at any level, but Python's values only at LAX.
        is_shape = isinstance(needed, frames.ShapeNeededError)
        is_strict = context.get_context("jit_syntax_level") == context.STRICT and not is_shape
        # A plan, or peers that wait in a collective, cannot go on operator by operator.
        if is_strict or program.settings() or world.has_peers():
            raise
        if program.needed is None:
            place = needed.place or _place_of(needed)
            warnings.warn(
                f"For '{program.name}', the step runs operator by operator instead of as one compiled program, because "
                f"{needed.reason}{place}.",
                stacklevel=3,
            )
            # The traceback would keep all frames of the step alive.
            program.needed = needed.with_traceback(None)
    # In a frame, where nothing is compiled.
    result, updates = frames.isolate(lambda: program.function(*args, **kwargs))
    frames.commit(updates)
    return result


_PACKAGE = str(Path(__file__).parents[2])


def _place_of(error: BaseException) -> str:
    """File and line of the user's code where an error came from."""
    calls = traceback.extract_tb(error.__traceback__)
    # The last call in the user's own files is the nearest to the cause.
    own = [call for call in calls if not call.filename.startswith(_PACKAGE) and call.name != "run_program"]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _signature_leaves(signature: Any) -> list[Tensor] | None:
    if signature is None:
        return None
    return list(signature) if isinstance(signature, tuple | list) else [signature]


def jit(
    function: Any = None,
    *,
    capture_mode: str = "ast",
    jit_level: str = "O0",
    dynamic: int = 0,
    fullgraph: bool = False,
    backend: str = "",
    input_signature: Any = None,
    **options: Any,
) -> Any:
    """Compile a function, a Cell or a method; usable as ``@jit``, ``@jit(…)`` and ``jit(f)``.

    Args:
        function: what to compile. A Cell comes back as a callable that runs it compiled. (`fn`, in older versions.)
        capture_mode, jit_level, dynamic, backend, options: settings of MindSpore's own compiler; another value than the
            default is accepted with a warning.
        fullgraph: accepted; the whole function is always one program here.
        input_signature: Tensor or tuple of Tensors whose shapes (-1 for any size) and dtypes calls must have.

    Raises:
        SporaxTypeError: unknown option, or `function` cannot be called.
    """
    # The name of the argument in older versions.
    function = options.pop("fn", function)
    settings = {"capture_mode": capture_mode, "jit_level": jit_level, "dynamic": dynamic, "backend": backend}
    changed = [name for name, value in settings.items() if value != _DEFAULTS[name]]
    for name in (*changed, *options):
        For("jit").refuse_type(name not in _WITHOUT_MEANING, f"the option '{name}' is not one of {_WITHOUT_MEANING}")
        warnings.warn(f"For 'jit', the option '{name}' has no counterpart in XLA and changes nothing.", stacklevel=2)
    # Used with arguments: the function comes in a second call.
    if function is None:
        return functools.partial(jit, input_signature=input_signature)
    if isinstance(function, Compiled):
        return function
    For("jit").refuse_type(not callable(function), "the argument must be a function or a Cell", type(function).__name__)
    return Compiled(function, input_signature)


def compiled_in_graph_mode(what: str, function: Callable[..., Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """A transformed function that is compiled in GRAPH_MODE, or when the user's is compiled; otherwise it runs eagerly.

    Args:
        what: name of the transformation.
        function: what it makes of `fn`.
        fn: the user's function or Cell.

    Raises:
        SporaxTypeError: `fn` is neither.
    """
    For(what).refuse_type(not callable(fn), "'fn' must be a function or a Cell", type(fn).__name__)
    function.__name__ = f"{what}_of_{getattr(fn, '__name__', type(fn).__name__)}"
    compiled = Compiled(function)
    always = isinstance(fn, Compiled) or getattr(fn, "always_compiled", False)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if frames.current_frame() is None:
            if always or context.graph_mode() or context.plan_settings_of_training() is not None:
                return compiled(*args, **kwargs)
            # In a sharding mode operators run only inside of compiled steps.
            context.refuse_eager(what)
        return function(*args, **kwargs)

    call.program = compiled.program  # type: ignore[attr-defined]  # functions carry what belongs to them
    return call


ms_function = jit
"""What it was called before MindSpore 2.0."""


def lazy_inline(fn: Any = None, attrs: Any = None, policy: str | None = None) -> Any:
    """Decorator for ``Cell.__init__`` that requests one compilation of repeated Cells; usable with and without arguments.

    A compiled step that holds such a Cell has its repeated blocks as loops over stacked Parameters
    (`sporax.lowering.passes.repeat.block_loops`). Values are the same to float rounding.

    Args:
        fn: the ``__init__``.
        attrs: name or names of attributes that distinguish Cells; blocks are compared by what they compute here.
        policy: None or ``"front"``, when the Cell becomes part of its caller; both mean the same here.

    Raises:
        SporaxValueError: a policy other than None and ``"front"``.
    """
    For("lazy_inline").refuse(policy not in (None, "front"), "'policy' must be None or 'front'", policy, show=repr)
    if fn is None:
        return functools.partial(lazy_inline, attrs=attrs, policy=policy)

    @functools.wraps(fn)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        fn(self, *args, **kwargs)
        # Past the Cell's own `__setattr__`, which would take it for a child or a setting.
        object.__setattr__(self, "compiled_once", True)

    return construct


def no_inline(fn: Any = None) -> Any:
    """Decorator that requests a function to stay a sub-program; values are the same either way, so it stays as it is."""
    return fn


def jit_class(cls: type) -> type:
    """Mark a class as usable in compiled functions. Every class is, here."""
    return cls


def recompilations(compiled: Any) -> list[str]:
    """Why each program of a compiled function, Cell or optimizer was compiled, in order.

    Args:
        compiled: what `jit` returned, or a Cell that was called in GRAPH_MODE.

    Returns:
        One line per compilation: the reason, and the numbers of Parameters read and updated. The same lines go to the
        logger ``sporax.compile`` at level INFO when they happen.

    Raises:
        SporaxTypeError: nothing of it is compiled.
    """
    program = getattr(compiled, "program", None)
    if not isinstance(program, programs.Program):
        raise SporaxTypeError(
            f"For 'recompilations', the argument must be a compiled function or a Cell, but got {type(compiled).__name__}."
        )
    return [str(compilation) for compilation in program.compilations]
