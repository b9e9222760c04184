"""The graph of any JAX function: what `sporax.plan` plans.

Problem: a plan is of a graph with flat inputs and outputs, some of which share memory between calls; users have functions of
pytrees, and say which result becomes which argument. Method: the function is traced with its pytrees flattened, and results that
`carry` names, or that donated arguments leave room for, become aliases of their arguments.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from sporax.base.errors import For, SporaxTypeError, SporaxValueError, named
from sporax.ir.graph import Role
from sporax.lowering.ingest.constraints import ANY_MESH, Constraints
from sporax.lowering.ingest.ingest import Ingested, ingest
from sporax.lowering.marks.gpu_attention import attention_of_gpus
from sporax.runtime.planned.fixed_arguments import check_mapping, positions
from sporax.runtime.planned.user_mesh import NamedAxes, is_explicit, traced_under, typed_sharding


def traced(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    carry: Mapping[int, int],
    donated: Sequence[int] = (),
    marked: Callable[[Any], Any] = lambda results: results,
    axes: NamedAxes | None = None,
    constraints: Constraints = ANY_MESH,
) -> tuple[Ingested, Any, Any]:
    """The graph of a function, and the structures of its arguments and of its result.

    Args:
        carry: positions of arguments by that of the result which takes their place.
        donated: positions of arguments whose memory results may use.
        marked: the results with marks for the planner.
        axes: of the plan, where they have names.
        constraints: makes marks of the shardings that the function says.
    """
    leaves, in_tree = jax.tree.flatten(args)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(args)[0]]
    structs = list(map(_struct, leaves, paths))
    out_tree: list[Any] = []
    weak: list[bool] = []

    def flat(*values: Any) -> list[Any]:
        args = jax.tree.unflatten(in_tree, values)
        outputs = fn(*args)
        results, tree = jax.tree.flatten(outputs)
        _check_nothing_is_lost(args, in_tree, values, results)
        named = jax.tree_util.tree_flatten_with_path(outputs)[0]
        # Checked here, where the path of the result is known; marks have no weak types.
        made = [_struct(result, jax.tree_util.keystr(path), "the results", "result") for path, result in named]
        weak[:] = [struct.weak_type for struct in made]
        out_tree.append(tree)
        return jax.tree.leaves(marked(outputs))

    flat.__name__ = getattr(fn, "__name__", "fn")  # what JAX's messages call it
    try:
        with attention_of_gpus():
            jaxpr = traced_under(axes, lambda: jax.make_jaxpr(flat)(*structs))
    except (NameError, ValueError) as error:
        raise_if_known(error, "plan")
        raise
    check_mapping("carry", carry, "{position of result: position of argument}")
    made = _results(in_tree, out_tree[0], carry, donated)
    carry = {**carry, **_carried_by_donation(donated, carry, (jaxpr.in_avals, in_tree), (jaxpr.out_avals, made))}
    aliases = _aliases(carry, in_tree, [where for _, where in made])
    # A carried result takes the buffer of its argument, so both must have one shape and dtype.
    for result, argument in aliases:
        expected, got = structs[argument], jaxpr.out_avals[result]
        if (expected.shape, expected.dtype) != (got.shape, got.dtype):
            raise SporaxValueError(
                f"For 'plan', 'carry' needs a result that is like args{paths[argument]}, {expected.dtype}{list(expected.shape)}, "
                f"but got {got.dtype}{list(got.shape)}."
            )
    carried = {argument for _, argument in aliases}
    roles = [(Role.PARAMETER if number in carried else Role.DATA, path) for number, path in enumerate(paths)]
    types = [struct.weak_type for struct in structs], weak
    return replace(ingest(jaxpr, roles, aliases, constraints), weak=types), in_tree, out_tree[0]


def raise_if_known(error: Exception, where: str) -> None:
    """Raise an error that says what to do instead, for static arguments and for axes that `jax.pmap` would name."""
    if "static arguments" in str(error):
        raise SporaxValueError(
            f"For '{where}', static arguments of 'fn' must be bound before, as all arguments of a plan are arrays: "
            "functools.partial(fn, n=3)."
        ) from error
    found = re.search(r"unbound axis name: (\w+)", str(error))
    if found:
        raise SporaxValueError(
            f"For '{where}', 'fn' must reduce over dimensions, but got a collective over the axis '{found[1]}', which no "
            "`jax.vmap` or `jax.shard_map` around it names. A planned function sees the whole batch. "
            f"jax.vmap(fn, axis_name='{found[1]}', axis_size=1, in_axes=None, out_axes=None) in place of `jax.pmap` leaves the "
            "function as it is, without a dimension of devices in its arguments; or leave its collectives out: "
            f"`pmean(x, '{found[1]}')` of a loss is the batch's mean."
        ) from error


def _struct(leaf: Any, path: str, whose: str = "the arguments", what: str = "args") -> jax.ShapeDtypeStruct:
    """Shape and dtype of an argument's array; Python numbers are arrays without dimensions."""
    if isinstance(leaf, jax.Ref):
        raise SporaxTypeError(
            f"For 'plan', {whose} must hold arrays, but got a mutable reference at {what}{path}. Its value `ref[...]` is one; "
            "the new value is a result."
        )
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        try:
            leaf = jax.typeof(leaf)
        except TypeError:
            raise SporaxTypeError(
                f"For 'plan', {whose} must hold arrays or numbers, but got {reprlib.repr(leaf)} at {what}{path}. In modules of "
                "equinox, `eqx.partition(model, eqx.is_array)` gives the arrays; `eqx.combine` makes the module of them."
            ) from None
    # As JAX itself converts arguments: int64 is int32 unless x64 is enabled.
    dtype = jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)
    sharding = typed_sharding(leaf)
    # On automatic axes a sharding is no part of the type.
    typed = sharding if is_explicit(sharding) else None
    return jax.ShapeDtypeStruct(tuple(leaf.shape), dtype, sharding=typed, weak_type=getattr(leaf, "weak_type", False))


def _check_nothing_is_lost(args: Any, tree: Any, values: Sequence[Any], results: Sequence[Any]) -> None:
    """Raise if a function has changed its arguments (objects of flax.nnx, dictionaries) in place: a plan has results alone.

    A new value that is a result, too, is not lost: what `nnx.merge` makes of an argument shares its variables.

    Raises:
        SporaxValueError: it has.
    """
    paths, now = jax.tree_util.tree_flatten_with_path(args)
    present = {id(result) for result in results}
    other = [
        path
        for (path, leaf), value in zip(paths, values, strict=False)
        if leaf is not value and id(leaf) not in present
    ]
    if other or now != tree:
        where = f"args{jax.tree_util.keystr(other[0])}" if other else "the structure of its arguments"
        raise SporaxValueError(
            f"For 'plan', 'fn' must leave its arguments as they are, but it changes {where} in place, and the change would be "
            "lost. Return what changes and name it in 'carry'; nnx.split makes values of a flax.nnx object, nnx.merge an object."
        )


def donated_positions(donated: int | Sequence[int], count: int, name: str) -> tuple[int, ...]:
    """Positions of arguments as `jax.jit` takes them: one or several, negative ones from the last of `count` on.

    Raises:
        SporaxTypeError: something else than positions.
    """
    several = (donated,) if isinstance(donated, int) else donated
    if not isinstance(several, Sequence) or not all(type(entry) is int for entry in several):
        raise For("plan").type_error(
            f"{named(name)} must be a position of an argument or several", reprlib.repr(donated)
        )
    return tuple(entry + count if -count <= entry < 0 else entry for entry in several)


def _carried_by_donation(
    donated: Sequence[int],
    carry: Mapping[int, int],
    arguments: tuple[Sequence[Any], Any],
    results: tuple[Sequence[Any], Sequence[tuple[Any, range]]],
) -> dict[int, int]:
    """For donated arguments the first result of equal structure, shapes and dtypes, and types on explicit axes.

    Args:
        donated: positions of arguments.
        carry: what the user has said.
        arguments: leaves and structure.
        results: leaves, and the structure of each with where its leaves are.
    """
    children, ranges = arguments[1].children(), positions(arguments[1])
    made = results[1]

    def facts(leaves: Sequence[Any], where: range) -> list[Any]:
        return [(leaves[number].shape, leaves[number].dtype, leaves[number].sharding.spec) for number in where]

    found: dict[int, int] = {}
    for argument in donated:
        if argument not in range(len(children)):
            raise SporaxValueError(
                f"For 'plan', 'donate_argnums' must name some of {len(children)} arguments, but got {argument!r}."
            )
        expected = children[argument], facts(arguments[0], ranges[argument])
        free = (number for number in range(len(made)) if number not in carry and number not in found)
        equal = [number for number in free if (made[number][0], facts(results[0], made[number][1])) == expected]
        if equal and argument not in carry.values():
            found[equal[0]] = argument
    return found


def _aliases(carry: Mapping[int, int], in_tree: Any, results: Sequence[range]) -> list[tuple[int, int]]:
    wrong = next((item for item in carry.values() if not isinstance(item, int) or isinstance(item, bool)), None)
    For("plan").refuse_type(wrong is not None, "'carry' must name positions of arguments", wrong, show=reprlib.repr)
    if len(set(carry.values())) < len(carry):
        # A dict of arguments is one argument: positions count the children of the outermost structure.
        raise SporaxValueError(f"For 'plan', 'carry' must name every argument once at most, but got {dict(carry)}.")
    arguments = positions(in_tree)
    aliases: list[tuple[int, int]] = []
    for result, argument in carry.items():
        if result not in range(len(results)) or argument not in range(len(arguments)):
            raise SporaxValueError(
                f"For 'plan', 'carry' must name one of {len(results)} results and {len(arguments)} arguments, but got "
                f"{{{result}: {argument}}}."
            )
        if len(results[result]) != len(arguments[argument]):
            raise SporaxValueError(
                f"For 'plan', 'carry' needs result {result} to have the structure of argument {argument}, but got "
                f"{len(results[result])} arrays for {len(arguments[argument])}."
            )
        aliases += zip(results[result], arguments[argument], strict=True)
    return aliases


def _results(in_tree: Any, out_tree: Any, carry: Mapping[int, int], donated: Sequence[int]) -> list[tuple[Any, range]]:
    """The structure of each result, and where its leaves are.

    A tuple or list is several results. An array, dict or state of a class is result 0 itself; so is a tuple or list with the
    structure of the argument that it is carried to, such as ``step(state, batch) -> state`` with ``state = (params, moments)``.
    """
    node, arguments = out_tree.node_data(), in_tree.children()
    named = [*carry.values()] if {*carry} == {0} else [] if carry else donated
    is_argument = any(
        out_tree == arguments[number] for number in named if isinstance(number, int) and number in range(len(arguments))
    )
    if is_argument or node is None or node[0] not in (tuple, list):
        return [(out_tree, range(out_tree.num_leaves))]
    return [*zip(out_tree.children(), positions(out_tree), strict=True)]
