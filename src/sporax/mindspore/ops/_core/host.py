"""Operators that the host runs inside a compiled step (`Primitive.set_device("CPU")`).

Arrays are in device memory, so the operator's inputs are moved to the host, it is computed there, and its results are
moved back; XLA does all three within the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from sporax.lowering import marks as trace_marks
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.runtime.state import frames


def on_host(
    run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], constants: tuple[Any, ...] = ()
) -> Any:
    """``run(args, kwargs, constants)`` on the host; Tensors come from, and go back to, device memory."""
    # A step with work of the host is compiled in another way.
    frames.note_tag("host")
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda leaf: isinstance(leaf, Tensor))
    positions = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    # Written while `inside` is traced, as JAX returns flat results.
    shape: dict[str, Any] = {}

    def inside(*arrays: Any) -> list[Any]:
        # The leaves are replaced in place: numbers and attributes between them stay constants.
        for place, array in zip(positions, arrays, strict=True):
            leaves[place] = wrap(array)
        inner_args, inner_kwargs = jax.tree.unflatten(tree, leaves)
        results, shape["tree"] = jax.tree.flatten(
            run(inner_args, inner_kwargs, constants), is_leaf=lambda leaf: isinstance(leaf, Tensor)
        )
        return [result.array for result in results]

    results = trace_marks.run_on_host(inside, *(leaves[place].array for place in positions))
    return jax.tree.unflatten(shape["tree"], list(map(wrap, results)))
