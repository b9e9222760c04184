"""All passes over a step's jaxpr in their order, and the compiler options that go with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from sporax.lowering.memory.flat import flat
from sporax.lowering.memory.recompute import recompute

_DISABLED = "xla_disable_hlo_passes"


def rewritten(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of pytrees of arrays, as a program to which the passes have been applied."""

    def program(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        closed, shapes = jax.make_jaxpr(lambda *flat_args: function(*tree.unflatten(flat_args)), return_shape=True)(
            *leaves
        )
        results = jaxpr_as_fun(rewrite(closed))(*leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    program.__name__ = program.__qualname__ = function.__name__
    return program


def rewrite(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program after all passes."""
    return recompute(flat(closed)).program


def compiler_options() -> Mapping[str, Any]:
    """Options for programs that were rewritten.

    On CPUs XLA takes `optimization_barrier` away before it merges equal expressions, and finds that what is computed again
    is there already. Without that pass barriers stay to the end; they cost nothing.
    """
    return {_DISABLED: "cse_barrier_expander"} if jax.default_backend() == "cpu" else {}


def merged_options(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Options of both; lists of passes that are switched off are joined."""
    lists = [each[_DISABLED] for each in (first, second) if _DISABLED in each]
    return {**first, **second, **({_DISABLED: ",".join(lists)} if lists else {})}
