"""Arguments of a function that the user has fixed: by position, keyword or path in the tree; by slices or `PartitionSpec`.

Results of a function whose shardings the user has fixed: `out_shardings` of `sporax.plan`.

Problem: a plan decides where results are; users of JAX say it, as `jax.jit` takes it. Method: the traced function marks the
results, and the planner keeps what marks say. A result that takes an argument's place fixes this argument, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from sporax.base.errors import For, SporaxValueError, did_you_mean, named
from sporax.ir.device_matrix import DeviceMatrix
from sporax.ir.graph import OperatorGraph
from sporax.ir.layout import Layout
from sporax.ir.marks import LayoutMark, next_number
from sporax.ir.placement import Placement
from sporax.lowering.ingest.constraints import Constraints
from sporax.lowering.marks.mark_primitive import apply_mark
from sporax.runtime.planned.user_mesh import NamedAxes, is_explicit


def fixed_placements(
    fixed: Mapping[int | str, Any],
    args: tuple[Any, ...],
    names: Sequence[str],
    graph: OperatorGraph,
    num_constants: int,
    mesh: DeviceMatrix,
    axes: NamedAxes | None,
    by_position: Collection[int | str] = (),
) -> dict[int, Placement]:
    """The placements of fixed inputs, by number of the tensor.

    Args:
        fixed: as `sporax.plan` takes it.
        args: the arguments, those by keyword last.
        num_constants: how many of its inputs come before the arguments.
        mesh: the devices, with axes of prime sizes.
        by_position: what of it `in_shardings` says.

    Raises:
        SporaxValueError: an argument that there is not, or a sharding that does not fit.
    """
    inputs = graph.inputs[num_constants:]
    ranges = positions(jax.tree.structure(args))
    placements: dict[int, Placement] = {}
    for argument, requested in fixed.items():
        if isinstance(argument, str):
            leaves, part = _at_path(argument, [f"args{entry.name}" for entry in inputs], names, ranges, args)
        elif argument in range(len(args)):
            leaves, part = ranges[argument], args[argument]
        else:
            raise SporaxValueError(f"For 'plan', 'fixed' must name one of {len(args)} arguments, but got {argument!r}.")
        option = "in_shardings" if argument in by_position else "fixed"
        for position, split in zip(leaves, by_leaf(requested, part, option, f"argument {argument}"), strict=True):
            entry = inputs[position]
            if split is not None:
                shape = graph.tensors[entry.tensor].shape
                placements[entry.tensor] = placement_of(split, shape, f"args{entry.name}", mesh, axes, option)
    return placements


def check_mapping(name: str, value: Any, form: str) -> None:
    """Raise unless an option is a mapping of such a form."""
    For("plan").refuse_type(not isinstance(value, Mapping), f"'{name}' must be a mapping, {form}", value, show=repr)


def positions(tree: Any) -> list[range]:
    """For every child of a structure the positions of its leaves."""
    found, start = [], 0
    for child in tree.children():
        found.append(range(start, start + child.num_leaves))
        start += child.num_leaves
    return found


def _at_path(
    path: str, paths: Sequence[str], names: Sequence[str], ranges: Sequence[range], args: tuple[Any, ...]
) -> tuple[Sequence[int], Any]:
    """The leaves of an argument with such a keyword, or at such a path of the arguments or below it, and that part of them."""
    if path in names:
        number = len(ranges) - len(names) + list(names).index(path)
        return ranges[number], args[number]
    full = path if path.startswith("args") else f"args{path}"
    leaves = [number for number, each in enumerate(paths) if each == full or each.startswith((f"{full}[", f"{full}."))]
    if not leaves:
        known = (*names, *paths)
        raise SporaxValueError(
            f"For 'plan', 'fixed' must name an argument or a path of one, as {paths[0] if paths else 'none'}, but got "
            f"{path!r}.{did_you_mean(full, known)}"
        )
    part, rest = args, full.removeprefix("args")
    while rest:
        step, part = next((jax.tree_util.keystr(key), child) for key, child in _children(part) if _begins(rest, key))
        rest = rest.removeprefix(step)
    return leaves, part


def _begins(path: str, key: tuple[Any, ...]) -> bool:
    """Whether a path goes on with such a key, and not with a longer name."""
    step = jax.tree_util.keystr(key)
    return path.startswith(step) and path[len(step) :][:1] in ("", "[", ".")


def _children(tree: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The parts of a structure by key; none of an array or of nothing."""
    is_leaf = jax.tree_util.treedef_is_leaf(jax.tree.structure(tree))
    return [] if is_leaf else jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)[0]


def by_leaf(requested: Any, tree: Any, option: str, whose: str) -> list[Any]:
    """For each array of a structure its sharding, or None.

    Args:
        requested: one sharding for all of them, or shardings in the structure or its upper part, as `jax.jit` takes them; None
            leaves arrays to the planner, and stands where the structure has None.
        option: the argument of `sporax.plan` that says it.
        whose: what messages call the structure.

    Raises:
        SporaxValueError: it does not have the structure, or holds something else than shardings.
    """
    count, parts = len(jax.tree.leaves(tree)), _children(tree)
    if not count or requested is None or isinstance(requested, PartitionSpec | NamedSharding | Placement):
        return [requested] * count
    if _is_split(requested) and (requested or not any(getattr(leaf, "shape", ()) for leaf in jax.tree.leaves(tree))):
        return [requested] * count
    received = _children(requested)
    if not parts or [key for key, _ in received] != [key for key, _ in parts]:
        raise SporaxValueError(
            f"For 'plan', '{option}' must have a sharding for each of the {count} arrays of {whose}, in its structure: a "
            f"PartitionSpec, a NamedSharding, None or a tuple with a number of slices per dimension, but got {requested!r}."
        )
    return [
        one
        for (key, mine), (_, part) in zip(received, parts, strict=True)
        for one in by_leaf(mine, part, option, f"{whose}{jax.tree_util.keystr(key)}")
    ]


def placement_of(
    requested: Any, shape: tuple[int, ...], name: str, mesh: DeviceMatrix, axes: NamedAxes | None, option: str = "fixed"
) -> Placement:
    """The placement that the user's sharding of an array means.

    Args:
        requested: a `PartitionSpec`, a `NamedSharding`, numbers of slices, or the placement itself.
        shape: of the array.
        name: what messages call the array.
        mesh: the devices, with axes of prime sizes.
        axes: the user's axes, if they have names.
        option: the argument of `sporax.plan` that says it.

    Raises:
        SporaxValueError: it does not fit.
    """
    if isinstance(requested, Placement):
        return requested
    if isinstance(requested, NamedSharding):
        Constraints({} if axes is None else dict(axes.sizes), mesh.ranks).mark(requested, len(shape), name)
        requested = requested.spec
    if isinstance(requested, PartitionSpec):
        if axes is None:
            raise SporaxValueError(
                f"For 'plan', 'devices' must have names for the axes of {requested}, as {{'data': 8, 'model': 8}} or a mesh has."
            )
        placement = axes.placement(requested, len(shape), name, option)
        _check_divides(placement, shape, name, mesh, requested, option)
        return placement
    if len(requested) != len(shape):
        raise For("plan").error(
            f"{named(option)} must fit {name} of shape {shape}, with a number of slices per dimension", requested
        )
    try:
        Layout.from_split(requested, mesh.num_devices, ranks=mesh.ranks).slice_shape(shape)
        return _in_slices(requested, mesh)
    except SporaxValueError as error:
        # Layout's own message says which number is wrong; this one adds the argument's name.
        raise SporaxValueError(
            f"For 'plan', '{option}' must fit {name} of shape {shape}, but got {requested}. {error}"
        ) from None


def _in_slices(split: Sequence[int], mesh: DeviceMatrix) -> Placement:
    """So many slices of each dimension, which divide the devices: axes from the left, as many as make their number."""
    free, dims = list(range(mesh.num_axes)), []
    for parts in split:
        taken: list[int] = []
        for axis in tuple(free):
            if parts % mesh.shape[axis] == 0:
                parts //= mesh.shape[axis]
                taken.append(axis)
                free.remove(axis)
        dims.append(tuple(taken))
    return Placement(tuple(dims))


def _check_divides(
    placement: Placement, shape: tuple[int, ...], name: str, mesh: DeviceMatrix, requested: PartitionSpec, option: str
) -> None:
    for size, parts in zip(shape, placement.parts(mesh), strict=True):
        For("plan").refuse(
            size % parts, f"'{option}' must fit {name} of shape {shape}, but {requested} makes {parts} slices of {size}"
        )


def _is_split(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(axis, int) and not isinstance(axis, bool) for axis in value)


def leaves_of(kinds: tuple[str, ...], tree: Any) -> Iterator[bool]:
    """For every leaf of a structure whether it is inside of an object of a class of these packages.

    Args:
        kinds: names of packages, and of their classes without modules between, as ``("optax", "flax.OptState")``; none of them is
            imported.
    """

    def is_one(value: Any) -> bool:
        names = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__)
        return any(package in kinds or f"{package}.{name}" in kinds for package, name in names)

    for value in jax.tree.leaves(tree, is_leaf=is_one):
        yield from [is_one(value)] * (len(jax.tree.leaves(value)) if is_one(value) else 1)


@dataclass(slots=True)
class FixedResults:
    """The shardings that the user wants for results.

    Attributes:
        shardings: one for all results, or a structure of them; None leaves results to the planner.
        mesh: the devices, with axes of prime sizes.
        axes: the user's axes, if they have names.
        placements: of each result's arrays, once the function is traced; None where nothing is said.
    """

    shardings: Any
    mesh: DeviceMatrix
    axes: NamedAxes | None
    placements: list[Placement | None] = field(default_factory=list)

    def marked(self, results: Any) -> Any:
        """The results of the traced function with marks."""
        if self.shardings is None:
            return jax.tree.map(self._as_typed, results)
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(results)[0]]
        leaves, tree = jax.tree.flatten(results)
        self.placements = [
            None if one is None else self._placement(one, leaf, f"result{jax.tree_util.keystr(path)}")
            for one, leaf, path in zip(
                by_leaf(self.shardings, results, "out_shardings", "the results"), leaves, paths, strict=True
            )
        ]
        return jax.tree.unflatten(tree, map(self._mark, leaves, self.placements))

    def fix_arguments(self, graph: OperatorGraph, placements: Mapping[int, Placement]) -> dict[int, Placement]:
        """The placements of inputs, with those of arguments whose place a result takes.

        Args:
            placements: of inputs that are fixed, by number of the tensor.

        Raises:
            SporaxValueError: argument and result are to have different shardings.
        """
        fixed = {**placements}
        for place, number in graph.aliases if self.placements else ():
            wanted, argument = self.placements[place], graph.inputs[number]
            if wanted is not None and fixed.setdefault(argument.tensor, wanted) != wanted:
                raise SporaxValueError(
                    f"For 'plan', 'out_shardings' must be those of the arguments that results take the place of, but "
                    f"args{argument.name} is {fixed[argument.tensor]}, and its result {wanted}."
                )
        return fixed

    def _placement(self, one: Any, leaf: Any, name: str) -> Placement:
        return placement_of(one, tuple(jax.typeof(leaf).shape), name, self.mesh, self.axes, "out_shardings")

    def _mark(self, leaf: Any, placement: Placement | None) -> Any:
        if placement is None:
            return leaf
        return apply_mark(
            [jnp.asarray(leaf)], LayoutMark("out_shardings", next_number(), (placement.to_layout(self.mesh),))
        )[0]

    def _as_typed(self, leaf: Any) -> Any:
        """A result where its type says, which is that of the program without a plan."""
        kind = jax.typeof(leaf)
        if not is_explicit(kind.sharding):
            return leaf
        constraints = Constraints({} if self.axes is None else dict(self.axes.sizes), self.mesh.ranks)
        return apply_mark([leaf], constraints.mark(kind.sharding, len(kind.shape), "type of a result"))[0]
