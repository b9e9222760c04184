"""Tensors made of several: stacked along new dims, block diagonals, products and combinations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.mindspore.ops._core import check
from sporax.mindspore.ops._core.operator import Array, operator

# ------------------------------------------------------------------------------------------------------------ joining


def _joined(name: str, function: Callable[..., Array], first: str, doc: str, mint: str) -> None:
    # Two kernels, as the parameter's name is part of MindSpore's signature.
    def of_tensors(tensors: Array) -> Array:
        return function(tensors)

    def of_inputs(inputs: Array) -> Array:
        return function(inputs)

    kernel = of_inputs if first == "inputs" else of_tensors
    kernel.__name__, kernel.__doc__ = name, doc
    operator(function=name, mint=mint)(kernel)


def _at_least(name: str, function: Callable[..., Array], dims: int) -> None:
    def kernel(inputs: Array) -> Any:
        # One tensor or several, as in MindSpore; the results have the form of the input.
        return tuple(map(function, inputs)) if isinstance(inputs, tuple) else function(inputs)

    kernel.__name__ = name
    kernel.__doc__ = f"A tensor, or each of several, with dimensions of size 1 added until there are {dims}."
    operator(function=name)(kernel)


@operator(function="block_diag")
def block_diag(*inputs: Array) -> Array:
    """A matrix with the given matrices (vectors as rows) as blocks on its diagonal, zeros elsewhere."""
    check.rank("block_diag", (0, 1, 2), **{f"inputs[{index}]": block for index, block in enumerate(inputs)})
    return jax.scipy.linalg.block_diag(*inputs)


@operator(function="cartesian_prod")
def cartesian_prod(*inputs: Array) -> Array:
    """All combinations of one element of each vector, one a row."""
    grids = jnp.meshgrid(*inputs, indexing="ij")
    # A single vector is its own product, and stays a vector.
    return jnp.stack([grid.reshape(-1) for grid in grids], -1) if len(inputs) > 1 else inputs[0]


@operator(function="combinations")
def combinations(input: Array, r: int = 2, with_replacement: bool = False) -> Array:
    """All choices of `r` elements of a vector, one a row; with `with_replacement` an element may occur more than once."""
    check.rank("combinations", 1, input=input)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    # Positions are known while compiling: they depend on the size alone.
    rows = np.array(list(choose(range(input.size), r)), np.int64).reshape(-1, r)
    return input[rows]
