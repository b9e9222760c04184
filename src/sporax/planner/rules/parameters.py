"""Which parameters of primitives the rules know.

Problem: a rule that does not read a parameter is wrong where that parameter changes which slices a device needs, as
`dimensions` of a reshape does; and new versions of JAX add parameters.

Method: parameters are handed to a rule in a mapping that notes what is read. What a rule neither reads nor `HARMLESS` names may
mean anything, unless it says nothing (None): the operands then stay whole, for a reason that plans report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sporax.ir.operation import Operation
from sporax.planner.rules.language import Rule, replicate

HARMLESS = frozenset(
    """accuracy aggregate_to_topk algorithm alpha beta bit_width computation compute_left_eigenvectors
    compute_right_eigenvectors compute_schur_vectors compute_uv conjugate_a consts dim dimension dtype edtype
    enable_eigvec_derivs exponent_bits fft_type full_matrices impl implementation index_dtype indices_are_sorted
    input_dtype is_max_k is_stable jaxpr k left limit_indices log_space lower mantissa_bits name new_dtype
    new_sizes num_keys num_rows offsets out_dtype out_sharding permutation_size perturb_singular pivoting
    precision preferred_element_type recall_target reduction_input_size_override reverse rounding_method rows
    scatter_consts scatter_jaxpr select_callable select_consts select_jaxpr select_prim shape sharding sizes
    slice_sizes sort_eig_vals sort_eigenvalues subset_by_index symmetrize_output transpose transpose_a
    unique_indices unit_diagonal update_consts use_magma value weak_type y""".split()
)
"""Parameters that say what is computed of each slice or follow from shapes, for every rule that does not read them."""


class _Noted(Mapping[str, Any]):
    """Parameters, and the names of those that were asked for."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self.params[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.params)

    def __len__(self) -> int:
        return len(self.params)


def checked(rule: Callable[[Operation], Rule], operation: Operation) -> Rule:
    """The rule of an operation; one that shards nothing where a parameter is not known to it."""
    noted = _Noted(operation.params)
    made = rule(replace(operation, params=noted))
    unknown = sorted(
        name
        for name, value in operation.params.items()
        if value is not None and name not in noted.read and name not in HARMLESS
    )
    if not unknown or made.opaque:
        return made
    return replicate(
        operation,
        f"'{operation.name}' is not sharded: {unknown[0]}={operation.params[unknown[0]]} is unknown to its rule",
    )
