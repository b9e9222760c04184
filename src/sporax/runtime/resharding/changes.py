"""Changes of a program that may remove a collective: shardings of the arrays around the operator that needs it.

Problem: which sharding XLA would do without the collective is known only when it has compiled the program. Method: the arrays
that the operator reads and makes, and those that reshapes, transposes and conversions next to it do, are placed otherwise, one
at a time: the axes along which the collective runs shard another dimension, or none. What else shards the array is left to
XLA (`PartitionSpec.UNCONSTRAINED`), or is none. Each change is what a user can write: a constraint, another sharding in place of
the user's own constraint, of an argument (with the result that takes its place), or of a result. On explicit axes it is a
`jax.reshard`, another one or none in place of the user's, or an argument; the other axes of the array stay.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jax.extend.core import Var
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sporax.lowering.jax_versions import entries_of
from sporax.lowering.rewriter import Atom, aval_of
from sporax.report.resharding import SourceLine
from sporax.runtime.planned.user_mesh import is_explicit
from sporax.runtime.resharding.explicit_types import place_of
from sporax.runtime.resharding.sharded_program import Key, ShardedProgram, constraint_of

_MOVEMENT = frozenset(
    "reshape transpose convert_element_type broadcast_in_dim squeeze expand_dims copy reduce_precision".split()
    + ["sharding_constraint", "reshard"]
)
"""Primitives through which a sharding passes from the operand to the result, or almost."""
_FREE = PartitionSpec.UNCONSTRAINED


@dataclass(frozen=True, slots=True)
class Change:
    """Shardings that differ from the program's.

    Attributes:
        text: what to write.
        value: which array it is about.
        place: the line where it is made.
        constraints: added, or in the place of the user's.
        arguments, results: shardings by position.
        replaces: whether the user's own constraint is no longer there.
    """

    text: str
    value: str = ""
    place: SourceLine = field(default_factory=SourceLine)
    constraints: Mapping[Key, NamedSharding] = field(default_factory=dict)
    arguments: Mapping[int, NamedSharding] = field(default_factory=dict)
    results: Mapping[int, NamedSharding] = field(default_factory=dict)
    replaces: bool = False

    @property
    def key(self) -> str:
        """Equal for equal changes."""
        return repr([sorted((place, str(to.spec)) for place, to in each.items()) for each in self._parts])

    @property
    def _parts(self) -> tuple[Mapping[Any, NamedSharding], ...]:
        return self.constraints, self.arguments, self.results

    def and_then(self, other: Change) -> Change:
        """Both; of two shardings of one array that of the other."""
        constraints, arguments, results = ({**a, **b} for a, b in zip(self._parts, other._parts, strict=True))
        return Change("", "", SourceLine(), constraints, arguments, results)

    def applied(self, program: ShardedProgram) -> ShardedProgram:
        """The program with it."""
        return replace(
            program,
            constraints={**program.constraints, **self.constraints},
            in_shardings=_replaced(program.in_shardings, self.arguments),
            out_shardings=_replaced(program.out_shardings, self.results),
        )


def _replaced(values: Sequence[Any], changes: Mapping[int, Any]) -> tuple[Any, ...]:
    return tuple(changes.get(place, value) for place, value in enumerate(values))


class Changes:
    """Finds changes of a program.

    A constraint of a user's also constrains the gradient of its array, so a change has both. Which arrays of a backward pass are
    the gradient is known by line and shape alone.

    Args:
        program: what is changed.
        in_shardings, out_shardings: of its arguments and results, as compiled.
    """

    def __init__(
        self, program: ShardedProgram, mesh: Mesh, in_shardings: Sequence[Any], out_shardings: Sequence[Any]
    ) -> None:
        self.program, self.mesh = program, mesh
        self.shardings = in_shardings, out_shardings
        self.equations = program.equations()
        self.makers: dict[Var, Key] = {}
        self.readers: dict[Var, list[int]] = {}
        self.lines: dict[SourceLine, list[int]] = {}
        for number, entry in self.equations.items():
            self.lines.setdefault(place_of(entry.eqn), []).append(number)
            for place, var in enumerate(entry.eqn.outvars):
                self.makers.setdefault(var, (number, place))
            for var in entry.operands:
                self.readers.setdefault(var, []).append(number)
        jaxpr = program.jaxpr.jaxpr
        self.arguments = {var: place for place, var in enumerate(jaxpr.invars)}
        self.results = {var: place for place, var in enumerate(jaxpr.outvars) if isinstance(var, Var)}

    def of(self, number: int, axes: Sequence[str]) -> Iterator[Change]:
        """Changes around an equation whose collectives run along `axes`, the likeliest first, a few of each array by turns."""
        by_value = [self._of_value(reader, var, axes) for var, reader in self._around(number).items()]
        for several in itertools.zip_longest(*by_value):
            yield from (change for change in several if change is not None)

    def _around(self, number: int) -> dict[Var, int]:
        """The arrays next to an equation, and those that movements next to it read or make, each with an equation that reads or
        makes it. Of one in a backward pass, also those of its line in the forward pass.
        """
        entry, found = self.equations[number], dict[Var, int]()
        same_line = self.lines[place_of(entry.eqn)] if entry.is_backward else []
        for other in (number, *(other for other in same_line if not self.equations[other].is_backward)):
            for var in sorted(self.equations[other].operands, key=lambda var: -getattr(var.aval, "size", 0)):
                found.setdefault(var, other)
                self._follow_back(var, found)
            for var in self.equations[other].eqn.outvars:
                found.setdefault(var, other)
                for reader in self.readers.get(var, ()):
                    if self._name(reader) in _MOVEMENT:
                        found.update(dict.fromkeys(self.equations[reader].eqn.outvars, reader))
        ranked = [var for var in found if getattr(var.aval, "ndim", 0) and not self.equations[found[var]].is_manual]
        return {var: found[var] for var in sorted(ranked, key=lambda var: not self._is_constraint(var))}

    def _follow_back(self, var: Var, found: dict[Var, int]) -> None:
        """Add what movements have made an array of."""
        while var in self.makers and self._name(self.makers[var][0]) in _MOVEMENT:
            number = self.makers[var][0]
            operands = self.equations[number].operands
            if not operands or operands[0] in found:
                return
            var = operands[0]
            found[var] = number

    def _name(self, number: int) -> str:
        return str(self.equations[number].eqn.primitive.name)

    def _is_constraint(self, var: Var) -> bool:
        """Whether the user has constrained it: such an array is the first to be read."""
        return var in self.makers and constraint_of(self.equations[self.makers[var][0]].eqn) is not None

    def _of_value(self, number: int, var: Var, axes: Sequence[str]) -> Iterator[Change]:
        if var in self.arguments:
            yield from self._of_argument(self.arguments[var], axes)
        if var in self.results:
            yield from self._of_result(self.results[var], axes)
        place = self._constrained(number, var)
        if place is None:
            return
        eqn = self.equations[place[0]].eqn
        what = f"the result of {eqn.primitive.name}" if place[1] >= 0 else f"what {eqn.primitive.name} reads"
        what = f"{self.program.arguments[self.arguments[var]]}" if var in self.arguments else what
        what = "in place of your constraint" if self._is_constraint(var) else f"of {what}"
        old = constraint_of(eqn) if self._is_constraint(var) else self._type_of(var)
        call = "with_sharding_constraint" if self._type_of(var) is None else "jax.reshard"
        for spec in self._specs(var, axes):
            if old is not None and spec == _spec(old, len(spec)):
                continue
            # The gradient of an array that is constrained is, too; that of a `jax.reshard` has the type of the array before it.
            sharding = NamedSharding(self.mesh, spec)
            gradients = dict.fromkeys(self._gradients(place, var), self._type_of(var) or sharding)
            is_none = self._is_constraint(var) and self._type_of(eqn.invars[0]) == sharding
            yield Change(
                f"no {call}" if is_none else f"{call}(…, {spec_text(spec)})",
                f"{what}, {aval_of(var).update(sharding=None).str_short()}",
                place_of(eqn),
                {**gradients, place: sharding},
                replaces=self._is_constraint(var),
            )

    def _is_partial(self, var: Var) -> bool:
        """Whether its type says that it, or its gradient, is partial sums: in another place it would be another array."""
        spec = getattr(getattr(aval_of(var), "sharding", None), "spec", None)
        return spec is not None and bool(spec.unreduced or spec.reduced)

    def _type_of(self, atom: Atom) -> NamedSharding | None:
        """The sharding that the type of an array says, on explicit axes."""
        aval = aval_of(atom)
        return NamedSharding(self.mesh, _spec(aval.sharding, aval.ndim)) if is_explicit(aval.sharding) else None

    def _constrained(self, number: int, var: Var) -> Key | None:
        """Where a constraint of an array is: where it is made, or where an equation reads it that has it from outside; None where
        users cannot write one, as in a backward pass, but for gradients that are results, and of partial sums by type.
        """
        key = self.makers.get(var)
        if key is None:
            atoms = self.equations[number].eqn.invars
            key = next(((number, -1 - place) for place, atom in enumerate(atoms) if atom is var), None)
        if key is None or self.equations[key[0]].is_manual or self._is_partial(var):
            return None
        return key if not self.equations[key[0]].is_backward or self._is_result(var) else None

    def _is_result(self, var: Var) -> bool:
        """Whether an array is a result of the program, or is moved to be one."""
        after = (self.equations[reader].eqn for reader in self.readers.get(var, ()) if self._name(reader) in _MOVEMENT)
        return var in self.results or any(self._is_result(result) for eqn in after for result in eqn.outvars)

    def _gradients(self, key: Key, var: Var) -> Iterator[Key]:
        """The arrays of a backward pass that are the gradient of one of the forward pass, as its line and its shape say."""
        if self.equations[key[0]].is_backward:
            return
        for number in self.lines[place_of(self.equations[key[0]].eqn)]:
            entry = self.equations[number]
            if not entry.is_backward:
                continue
            if constraint_of(entry.eqn) is not None:
                yield from [(number, 0)] if self._is_constraint(var) and not self._type_of(var) else []
                continue
            if self._type_of(var) and self._is_constraint(var):
                continue  # its own `jax.reshard` stays
            for place, atom in enumerate(entry.eqn.outvars if key[1] < 0 else entry.eqn.invars):
                if self._is_gradient(atom) and aval_of(atom).shape == aval_of(var).shape:
                    yield number, place if key[1] < 0 else -1 - place

    def _is_gradient(self, atom: Any) -> bool:
        """Whether an array is made in a backward pass, or comes into a loop of one."""
        if not isinstance(atom, Var):
            return False
        return atom not in self.makers or self.equations[self.makers[atom][0]].is_backward

    def _of_argument(self, place: int, axes: Sequence[str]) -> Iterator[Change]:
        name, aval = self.program.arguments[place], self.program.jaxpr.in_avals[place]
        old = _spec(self.shardings[0][place], aval.ndim)
        partner = self._partner(place, old)
        for spec in _moved(old, axes):
            if self._fits(aval.shape, spec):
                new = NamedSharding(self.mesh, spec)
                also = {} if partner is None else {partner: new}
                text = f"{spec_text(spec)} in place of {spec_text(old)} as the sharding of the argument"
                result = "" if partner is None else f" and of {self.program.results[partner]}"
                yield Change(text, f"{name}{result}, {aval.str_short()}", arguments={place: new}, results=also)

    def _partner(self, place: int, old: PartitionSpec) -> int | None:
        """The result that takes an argument's place at the next step: of equal type, sharding and path."""
        aval = self.program.jaxpr.in_avals[place]
        # Inside of the argument: "['w']" of params['w'].
        path = "".join(self.program.arguments[place].partition("[")[1:])
        for number, (name, other) in enumerate(zip(self.program.results, self.program.jaxpr.out_avals, strict=True)):
            is_equal = (other.shape, other.dtype) == (aval.shape, aval.dtype) and name.endswith(path)
            if (
                is_equal
                and _spec(self.shardings[1][number], aval.ndim) == old
                and (path or place in self.program.donated)
            ):
                return number
        return None

    def _of_result(self, place: int, axes: Sequence[str]) -> Iterator[Change]:
        if self.program.out_shardings[place] is not None:
            return  # the user has promised it to others
        aval = self.program.jaxpr.out_avals[place]
        old = _spec(self.shardings[1][place], aval.ndim)
        for spec in _moved(old, axes):
            if self._fits(aval.shape, spec):
                text = f"{spec_text(spec)} as the sharding of"
                name = f"{self.program.results[place]}, {aval.str_short()}"
                yield Change(text, name, results={place: NamedSharding(self.mesh, spec)})

    def _specs(self, var: Var, axes: Sequence[str]) -> Iterator[PartitionSpec]:
        """Shardings of an array: those of arrays of its shape, those on the way between two of them, and all by these axes."""
        shape, typed = aval_of(var).shape, self._type_of(var)
        by_axes = self._by_axes(shape, axes) if typed is None else _moved(_spec(typed, len(shape)), axes)
        known = {_spec(sharding, len(shape)) for other, sharding in self._known() if other == shape}
        listed = sorted(known, key=str)
        between = (_mixed(one, other) for one, other in itertools.permutations(listed, 2))
        ways = itertools.chain(listed, *between, by_axes)
        yield from dict.fromkeys(spec for spec in ways if self._fits(shape, spec))

    def _known(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Shapes and shardings that the program says."""
        yield from zip((aval.shape for aval in self.program.jaxpr.in_avals), self.shardings[0], strict=True)
        yield from zip((aval.shape for aval in self.program.jaxpr.out_avals), self.shardings[1], strict=True)
        for entry in self.equations.values():
            if (sharding := constraint_of(entry.eqn)) is not None:
                yield aval_of(entry.eqn.outvars[0]).shape, sharding
                before = self._type_of(entry.eqn.invars[0])
                yield from [(aval_of(entry.eqn.outvars[0]).shape, before)] if before else []

    def _by_axes(self, shape: Sequence[int], axes: Sequence[str]) -> Iterator[PartitionSpec]:
        """Shardings of an array by these axes: together first, then apart; of other dimensions free, then none."""
        has_others = any(size > 1 for name, size in self.mesh.shape.items() if name not in axes)
        ways = sorted(itertools.product((*range(len(shape)), None), repeat=len(axes)), key=lambda way: len(set(way)))
        for rest in (_FREE, None) if has_others else (None,):
            for way in ways:
                dims = [
                    tuple(axis for axis, dim in zip(axes, way, strict=True) if dim == place)
                    for place in range(len(shape))
                ]
                spec = PartitionSpec(*(_entry(names, rest) for names in dims))
                if rest is None or any(dims):
                    yield spec

    def _fits(self, shape: Sequence[int], spec: PartitionSpec) -> bool:
        sizes = self.mesh.shape
        if not {name for entry in spec for name in _names(entry)} <= {*sizes}:
            return False  # of another mesh
        return all(
            size % math.prod(sizes[name] for name in _names(entry)) == 0
            for size, entry in zip(shape, spec, strict=True)
        )


def spec_text(spec: PartitionSpec) -> str:
    """A sharding as users write it."""
    entries = ("P.UNCONSTRAINED" if entry is _FREE else repr(entry) for entry in spec)
    return f"P({', '.join(entries)})"


def _moved(old: PartitionSpec, axes: Sequence[str]) -> Iterator[PartitionSpec]:
    """The sharding with these axes at another dimension."""
    without = [tuple(name for name in _names(entry) if name not in axes) for entry in old]
    for place in range(len(without)):
        dims = [(*names, *axes) if number == place else names for number, names in enumerate(without)]
        spec = PartitionSpec(*(_entry(names, None) for names in dims))
        if spec != old:
            yield spec


def _mixed(one: PartitionSpec, other: PartitionSpec) -> Iterator[PartitionSpec]:
    """Shardings of which some axes are as in one and the others as in the other, appended."""
    axes = [name for entry in other for name in _names(entry)]
    for count in range(1, len(axes)):
        for moved in itertools.combinations(axes, count):
            stay = [tuple(name for name in _names(entry) if name not in moved) for entry in one]
            come = [tuple(name for name in _names(entry) if name in moved) for entry in other]
            yield PartitionSpec(*(_entry((*here, *new), None) for here, new in zip(stay, come, strict=True)))


def _spec(sharding: Any, num_dims: int) -> PartitionSpec:
    """The specification of a sharding, an entry for each dimension; of none where it is no such one."""
    entries = entries_of(sharding.spec) if isinstance(sharding, NamedSharding) else ()
    return PartitionSpec(*(_entry(_names(entry), None) for entry in entries), *[None] * (num_dims - len(entries)))


def _entry(names: tuple[str, ...], rest: Any) -> Any:
    return names[0] if len(names) == 1 else names or rest


def _names(entry: Any) -> tuple[str, ...]:
    if entry is None or entry is _FREE:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)
