"""What a compiled program takes besides its variables, and what it gives back, in the structure of the user's function."""

from __future__ import annotations

from typing import Any

import jax

from sporax.runtime.program.variant import Variant
from sporax.runtime.ranks import joint_arrays


class _Array:
    """Stands for an array among the leaves of a result."""

    def __repr__(self) -> str:
        return "<array>"


_ARRAY = _Array()


def assembled(variant: Variant, outputs: list[jax.Array]) -> Any:
    """Results of the program in the structure of those of the function."""
    # No static values between the arrays, so the structure can be filled directly.
    if len(outputs) == len(variant.out_leaves):  # arrays only
        return variant.out_tree.unflatten(outputs)
    remaining = iter(outputs)
    leaves = [next(remaining) if leaf is _ARRAY else leaf for leaf in variant.out_leaves]
    return jax.tree.unflatten(variant.out_tree, leaves)


def note_results(variant: Variant, result: Any) -> list[Any]:
    """Note the structure of a function's result; gives its leaves."""
    leaves, variant.out_tree = jax.tree.flatten(result)
    variant.out_leaves = tuple(_ARRAY if isinstance(leaf, jax.Array) else leaf for leaf in leaves)
    return leaves


def joint_inputs(variant: Variant, arrays: list[jax.Array], devices: joint_arrays.Devices) -> list[jax.Array]:
    """The arrays over the devices of all ranks."""
    if variant.parts is not None:
        return variant.parts.taken(arrays, devices)
    return [joint_arrays.to_joint(array, devices) for array in arrays]
