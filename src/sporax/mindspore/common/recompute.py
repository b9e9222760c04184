"""Computing again instead of keeping: how calls are run so that their inside is not kept for the backward pass.

In a compiled step a call is *tagged*, and a pass over the step's jaxpr decides operator by operator
(`sporax.lowering.passes.recompute.recompute`). Outside of compiled steps the call runs under `jax.checkpoint`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

from sporax.base.errors import For
from sporax.ir import SavedMark, next_number
from sporax.lowering import marks as trace_marks
from sporax.lowering.marks import new_tag, offload_scope
from sporax.mindspore import context
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.runtime.state import frames, ordered_trees

SETTINGS = ("mp_comm_recompute", "parallel_optimizer_comm_recompute", "recompute_slice_activation", "output_recompute")
"""What can be said of a recomputed Cell."""
_AUTO = 1
"""Calls earlier that values come back where the user says ``"Auto"``."""


def checked_settings(where: str, settings: Mapping[str, Any]) -> dict[str, bool]:
    """All settings of a recomputed Cell, with the defaults of those that are not given.

    Raises:
        SporaxValueError: unknown setting.
        SporaxTypeError: a setting that is not a bool.
    """
    for name, value in settings.items():
        For(where).refuse(name not in SETTINGS, f"the settings are {SETTINGS}, but got '{name}'")
        For(where).typed(name, value, "a bool", bool)
    return {"output_recompute": False, "mp_comm_recompute": True, **settings}


def recompute(
    block: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = True,
    output_recompute: bool = False,
    early_stop: bool = True,
    context_fn: Any = None,
    **kwargs: Any,
) -> Any:
    """Call `block`, and compute its inside again in the backward pass instead of keeping it. Values do not change.

    Works in both modes. In GRAPH_MODE `Cell.recompute` says the same once for all calls.

    Args:
        block: a Cell.
        args, kwargs: what it is called with.
        use_reentrant, early_stop, context_fn: settings of MindSpore's eager engine, with no counterpart here.
        output_recompute: compute the result again as well.

    Raises:
        SporaxTypeError: `block` is no Cell, or `output_recompute` no bool.

    Example:
        >>> y = recompute(self.block, x)
    """
    For("recompute").refuse_type(not hasattr(block, "construct"), "'block' must be a Cell", type(block).__name__)
    settings = checked_settings("recompute", {"output_recompute": output_recompute})
    return run_recomputed(block, args, kwargs, settings)


@contextmanager
def offloading(prefetch: int) -> Iterator[None]:
    """Context in which what is computed waits for the backward pass in host memory.

    Args:
        prefetch: how many calls earlier values are brought back.
    """
    frames.note_tag("offload")
    stages = context.snapshot().pipeline_stages
    if prefetch != _AUTO and stages > 1:
        warnings.warn(
            f"For 'Cell.offload', 'backward_prefetch' {prefetch} has no effect with {stages} pipeline stages: the backward "
            "program of a stage brings back what it reads when it begins.",
            stacklevel=2,
        )
    # The number of the scope says to the pass which call it was.
    with jax.named_scope(offload_scope(next_number() + 1, prefetch)):
        yield


def run_recomputed(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Mapping[str, bool]
) -> Any:
    """``call(*args, **kwargs)``, whose inside is computed again for the gradient."""
    # Only in compiled steps a pass can decide operator by operator.
    if frames.compiling():
        return _tagged(call, args, kwargs, settings)
    # Outside of any frame there is no gradient that would keep anything.
    return call(*args, **kwargs) if frames.current_frame() is None else _checkpointed(call, args, kwargs)


def _tagged(
    call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], settings: Mapping[str, bool]
) -> Any:
    frames.note_tag("recompute")
    with jax.named_scope(new_tag(**settings).scope):
        result = call(*args, **kwargs)
    # Then the result is computed again, too, and needs no mark.
    if settings["output_recompute"]:
        return result
    leaves, tree = ordered_trees.flatten(result, is_leaf=lambda leaf: isinstance(leaf, Tensor))
    positions = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for place, array in zip(
        positions, trace_marks.apply_mark([leaves[place_].array for place_ in positions], SavedMark()), strict=True
    ):
        leaves[place] = wrap(array)
    return jax.tree.unflatten(tree, leaves)


def _checkpointed(call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run under `jax.checkpoint`: only inputs are kept, everything inside is computed again for the gradient."""
    leaves, tree = ordered_trees.flatten((args, kwargs))
    positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    # Filled while the function is traced: these are no arrays.
    static: dict[str, Any] = {}

    def inside(arrays: list[jax.Array]) -> tuple[list[Any], list[Any]]:
        for place, array in zip(positions, arrays, strict=True):
            leaves[place] = array
        inner_args, inner_kwargs = jax.tree.unflatten(tree, leaves)
        # Writes leave as outputs, so that `jax.checkpoint` sees a pure function.
        result, updates = frames.isolate(lambda: call(*inner_args, **inner_kwargs))
        outputs, static["tree"] = ordered_trees.flatten(result)
        static["written"] = tuple(updates)
        return outputs, list(updates.values())

    outputs, values = jax.checkpoint(inside)([leaves[place] for place in positions])
    frames.commit(dict(zip(static["written"], values, strict=True)))
    return jax.tree.unflatten(static["tree"], outputs)
