"""Which primitive has which rule.

Every lax primitive has an entry: a rule, or a word on what happens to it instead. `rule_for` is the one way to get the rule
of an operation; a primitive that cannot be sharded gets one that says why (`Rule.opaque`), for plans to report.

Users add primitives and custom calls of their own in one line::

    register("ffi_call:my_attention", "b h q d, b h k d, b h k d -> b h q d", blocked="k d")

Which parameters of primitives the rules know.

Problem: a rule that does not read a parameter is wrong where that parameter changes which slices a device needs, as
`dimensions` of a reshape does; and new versions of JAX add parameters.

Method: parameters are handed to a rule in a mapping that notes what is read. What a rule neither reads nor `HARMLESS` names may
mean anything, unless it says nothing (None): the operands then stay whole, for a reason that plans report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import Any

from sporax.base.errors import SporaxValueError
from sporax.ir.operation import LIKE, Operation, Shape, TensorSpec
from sporax.planner.rules import contraction, derive, dimension, elementwise, indexing, kernels, loop_rules, reduction
from sporax.planner.rules.language import Adapt, Rule, replicate
from sporax.planner.rules.notation import Statement

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
    """Parameters, and the names of those that were read."""

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


RuleFunction = Callable[[Operation], Rule]


class Behaviour(Enum):
    """What becomes of a primitive in a plan."""

    RULE = "rule"
    """It has a factor rule."""
    PIN = "pin"
    """An identity that gives the placement of a tensor."""
    INLINE = "inline"
    """A call; its body is planned in its place."""
    CONTROL = "control"
    """Loops and branches; their bodies are planned, with layouts that fit from one iteration to the next."""
    OPAQUE = "opaque"
    """Nothing is known of it: operands are gathered, every rank computes everything, and the plan reports it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one primitive.

    Attributes:
        family: what it belongs to, as in the manual's table.
        behaviour: what becomes of it.
        rule: makes its rule; None unless `behaviour` is RULE or PIN.
        reason: why it is not sharded; "" when it can be.
    """

    family: str
    behaviour: Behaviour
    rule: RuleFunction | None = None
    reason: str = ""

    @property
    def is_known(self) -> bool:
        """Whether anything is known of it; what is not costs time and memory that plans warn of."""
        return self is not _UNKNOWN


_UNKNOWN = Entry(
    "unknown", Behaviour.OPAQUE, None, "it is unknown to the planner; sporax.planner.rules.register adds it"
)


def _rules(family: str, rules: Mapping[str, RuleFunction]) -> dict[str, Entry]:
    return {name: Entry(family, Behaviour.RULE, rule) for name, rule in rules.items()}


def _named(module: ModuleType, names: str) -> dict[str, RuleFunction]:
    """Rules of a module that have the names of their primitives."""
    return {name: getattr(module, name) for name in names.split()}


def _others(family: str, behaviour: Behaviour, reason: str, names: str) -> dict[str, Entry]:
    return {name: Entry(family, behaviour, None, reason) for name in names.split()}


_ELEMENTWISE: dict[str, RuleFunction] = {
    **dict.fromkeys([*elementwise.PLAIN, *elementwise.ALL_TOGETHER, *elementwise.ONE_OPERAND], elementwise.elementwise),
    **dict.fromkeys(elementwise.KEYS, elementwise.leading),
    "mul": elementwise.product,
    "div": elementwise.product,
    "select_n": elementwise.select_n,
    "convert_element_type": elementwise.convert,
    "optimization_barrier": elementwise.side_by_side,
}

_DIMENSION: dict[str, RuleFunction] = {
    **_named(
        dimension,
        """bitcast_convert_type broadcast_in_dim broadcast_to concatenate pad reshape rev split squeeze stack tile transpose
        unstack""",
    ),
    "slice": dimension.slice_,
}

_OTHER_RULES: dict[str, Entry] = {
    **_rules("3 contraction", _named(contraction, "dot_general ragged_dot_general conv_general_dilated")),
    **_rules(
        "4 reduction",
        {
            **dict.fromkeys(reduction.REDUCTION, reduction.reduce_dims),
            **dict.fromkeys(reduction.CUMULATIVE, reduction.cumulative),
            "reduce": reduction.general_reduce,
            "argmax": reduction.argument_of_extreme,
            "argmin": reduction.argument_of_extreme,
        },
    ),
    **_rules(
        "5 window",
        {
            **dict.fromkeys(
                ("reduce_window_sum", "reduce_window_max", "reduce_window_min"), contraction.reduce_window_named
            ),
            **_named(contraction, "reduce_window select_and_gather_add select_and_scatter_add select_and_scatter"),
        },
    ),
    **_rules(
        "6 indexing",
        {
            **dict.fromkeys(("scatter", *indexing.SCATTER_REDUCTION), indexing.scatter),
            **_named(indexing, "gather dynamic_slice dynamic_update_slice part_lookup part_update fill_spare_rows"),
        },
    ),
    **_rules("7 order", _named(derive, "sort top_k approx_top_k")),
    **_rules(
        "8 linear algebra",
        {
            **dict.fromkeys((*reduction.CORE_DIMS, "fft"), reduction.batched),
            **_named(reduction, "triangular_solve tridiagonal_solve"),
        },
    ),
    **_rules("11 collectives", {"shard_map": derive.shard_map}),
    **_rules(
        kernels.FAMILY,
        {
            "pallas_call": kernels.pallas_call,
            **dict.fromkeys(("cudnn_attention_fwd", "cudnn_attention_bwd"), kernels.dot_product_attention),
            **{
                f"dot_product_attention_{kind}{step}{form}": kernels.dot_product_attention
                for kind in ("", "fp8_")
                for step in ("fwd", "bwd")
                for form in ("", "_wrapper")
            },
        },
    ),
    **_rules("9 creation", {**_named(indexing, "empty iota iota_2x32_shape random_bits"), "empty2": indexing.empty}),
}

FOREIGN = "foreign code, opaque without a registered rule"
"""Why kernels are not sharded that no one has registered with the planner."""

_WITHOUT_RULES: dict[str, Entry] = {
    **_others("13 kernels", Behaviour.OPAQUE, FOREIGN, "scaled_matmul scaled_matmul_wrapper scaled_dot cudnn_fusion"),
    **_others("6 indexing", Behaviour.OPAQUE, "a table in uneven parts is gathered for an operator that needs all rows",
        "blocks_of_rows rows_of_blocks"),
    **_others("9 creation", Behaviour.OPAQUE, "its random numbers depend on the whole shape",
        "rng_uniform rng_bit_generator"),
    **_others("10 control flow and calls", Behaviour.INLINE, "a call: the lowering plans its body in its place",
        """jit closed_call call custom_jvp_call custom_jvp_call_jaxpr custom_vjp_call custom_vmap_call remat2 remat_opt
        linear_call composite eval_jaxpr call_hi_primitive call_hi_primitive_linearized custom_lin core_map stage run_state
        row_update"""),
    **_others("10 control flow and calls", Behaviour.CONTROL, "control flow: the lowering plans its bodies",
        "scan while cond custom_linear_solve"),
    **_others("10 control flow and calls", Behaviour.OPAQUE, "the number of the platform, which all devices have",
        "platform_index"),
    **_others("11 collectives", Behaviour.OPAQUE, "a collective over an axis that the function names",
        """psum psum_invariant pmax pmin ppermute pbroadcast pbroadcast_dynamic all_gather all_gather_invariant all_gather_reduced
        all_to_all ragged_all_to_all reduce_scatter unreduced_psum unreduced_reduce_scatter psend precv axis_index
        psum_start psum_done psum_invariant_start pbroadcast_start pbroadcast_done ppermute_start ppermute_done
        all_gather_start all_gather_done all_gather_reduced_start all_to_all_start all_to_all_done reduce_scatter_start
        reduce_scatter_done unreduced_psum_start unreduced_reduce_scatter_start"""),
    **_others("13 kernels", Behaviour.OPAQUE, FOREIGN, "custom_partitioning ffi_call call_exported"),
    **_others("12 annotations and opaque", Behaviour.OPAQUE, "runs Python on the host with the whole tensors",
        "pure_callback io_callback debug_callback debug_print inspect_sharding check shape_assertion"),
    **_others("12 annotations and opaque", Behaviour.OPAQUE, "orders effects; it has no data to shard",
        "after_all create_token dce_sink unreachable tie"),
    **_others("12 annotations and opaque", Behaviour.OPAQUE, "a mutable reference, held whole by every rank",
        """get swap addupdate accum_grad_in_ref new_ref empty_ref free_ref freeze box_get box_set new_box create_linear
        pin unpin new_log log_extend log_read"""),
    **_others("12 annotations and opaque", Behaviour.OPAQUE, "dynamic shapes are not planned",
        "dim_as_value dimension_size"),
}  # fmt: skip

_PINS: dict[str, Entry] = {
    name: Entry("12 annotations and opaque", Behaviour.PIN, elementwise.side_by_side)
    for name in ["sharding_constraint", "reshard", "layout_constraint", "device_put", "with_memory_space_constraint"]
}

_OLDER: dict[str, Entry] = {
    **_rules("1 elementwise", _ELEMENTWISE),
    **_rules("2 dimensions", _DIMENSION),
    **_OTHER_RULES,
    **_WITHOUT_RULES,
    **_PINS,
}
_BUILT_IN: dict[str, Entry] = {**_OLDER, **{newer: _OLDER[older] for newer, older in LIKE.items()}}
TABLE: Mapping[str, Entry] = MappingProxyType(_BUILT_IN)
"""The primitives that Sporax knows, by name."""

_EDGES: Mapping[str, Entry] = _rules("2 dimensions", loop_rules.RULES)
"""Edges of loops that are inlined for planning: no primitives, so the table does not list them."""

_KNOWN: dict[str, Entry] = {**_EDGES, **_BUILT_IN}
_registered: dict[str, Entry] = {}

_MOST_REMEMBERED = 1 << 14
"""Rules that are stored: far more than a network has kinds of operators, few enough for a process that plans all day."""


def entry_for(name: str) -> Entry:
    """What is known of the primitive `name`, registered rules first.

    A custom call is looked up by its full name and then by what is before the colon; an unknown primitive is opaque.
    """
    entry = _registered.get(name) or _KNOWN.get(name)
    if entry is None and ":" in name:
        name = name.partition(":")[0]
        entry = _registered.get(name) or _KNOWN.get(name)
    return entry or _UNKNOWN


def is_uncounted(operation: Operation) -> bool:
    """Whether it is foreign code of which no one has said how much arithmetic it does."""
    entry = entry_for(operation.name)
    return entry.reason == FOREIGN or (entry.rule is kernels.pallas_call and not kernels.pallas_flops(operation))


def rule_for(operation: Operation) -> Rule:
    """The rule of an operation, remembered for equal ones; layers repeat.

    Never fails for lack of a rule: an opaque primitive's rule shards nothing and says why.
    """
    # The parameters' values are part of the key: the same primitive may have other dimensions.
    try:
        return _remembered(operation.name, operation.operands, operation.results, tuple(operation.params.items()))
    except TypeError:  # a parameter that cannot be hashed
        return _make_rule(operation)


@lru_cache(_MOST_REMEMBERED)
def _remembered(
    name: str, operands: tuple[TensorSpec, ...], results: tuple[TensorSpec, ...], params: tuple[tuple[str, object], ...]
) -> Rule:
    return _make_rule(Operation(name, operands, results, dict(params)))


def _make_rule(operation: Operation) -> Rule:
    entry = entry_for(operation.name)
    if entry.rule is None:
        return replicate(operation, f"'{operation.name}' is not sharded: {entry.reason}")
    # Who registers a rule knows the primitive, rules of kernels say which they know, and pins and edges change nothing.
    known = operation.name in _registered or operation.name in _EDGES
    knows = known or entry.behaviour is Behaviour.PIN or entry.family == kernels.FAMILY
    return entry.rule(operation) if knows else checked(entry.rule, operation)


def register(
    name: str,
    rule: str | RuleFunction,
    *,
    reduce: Mapping[str, str] | None = None,
    blocked: str = "",
    linear: Iterable[Sequence[int]] = (),
    flops_per_point: float = 1.0,
) -> None:
    """Register how a primitive or custom call of yours can be sharded. Replaces an earlier rule of that name.

    Args:
        name: the primitive's name; for foreign code ``"ffi_call:<target>"`` or ``"pallas_call:<name>"``.
        rule: a statement such as ``"b i k, k j -> b i j"`` (`sporax.planner.rules.notation`), or a function from an
            `Operation` to a `Rule`.
        reduce: how parts combine for indices that no result has; "sum" where nothing is said.
        blocked: indices that must stay whole.
        linear: groups of operands in which the primitive is linear together: ``[(0,), (1,)]`` for a product,
            ``[(0, 1)]`` for a sum.
        flops_per_point: work per point of the index space.

    Raises:
        SporaxValueError: the statement cannot be read, or options are given next to a function.
    """
    # Rules made before may be of the name that is registered now.
    _remembered.cache_clear()
    if callable(rule):
        if reduce or blocked or tuple(linear):
            raise SporaxValueError(
                f"For 'register', 'reduce', 'blocked' and 'linear' must be left out when the rule of '{name}' is a function."
            )
        _registered[name] = Entry("registered", Behaviour.RULE, rule)
        return
    statement, groups = Statement.parse(rule), tuple(tuple(group) for group in linear)
    reductions = dict(reduce or {})

    def apply(operation: Operation) -> Rule:
        return statement.rule(
            operation,
            reduce=reductions,
            blocked=blocked,
            linear=groups,
            adapt=_result_avals(operation),
            flops_per_point=flops_per_point,
        )

    _registered[name] = Entry("registered", Behaviour.RULE, apply)


def has_own_rules() -> bool:
    """Whether the user has registered rules."""
    return bool(_registered)


def unregister(name: str) -> None:
    """Forget a registered rule; a built-in one of that name counts again."""
    _registered.pop(name, None)
    _remembered.cache_clear()


def entries() -> Iterator[tuple[str, Entry]]:
    """All primitives with an entry, registered ones included, by name."""
    yield from sorted({**TABLE, **_registered}.items())


def _result_avals(operation: Operation) -> Adapt | None:
    """Custom calls carry the shapes of their results as a parameter, which must say the local ones."""
    if "result_avals" not in operation.params:
        return None

    def adapt(full: Operation, _: tuple[Shape, ...], results: tuple[Shape, ...]) -> Mapping[str, object]:
        avals = full.params["result_avals"]
        return {"result_avals": tuple(aval.update(shape=shape) for aval, shape in zip(avals, results, strict=True))}

    return adapt
