"""The user's function as a program that can be changed and compiled again.

Problem: a collective must be found in the program that XLA compiled and in the one that the user wrote, and a remedy must be
tried without the user's source. Method: the function is traced, and each equation gets its number as a name scope, which XLA
hands on to what it makes of it. A constraint is one more equation behind a numbered one; shardings of arguments and results are
those of `jax.jit`. On explicit axes the constraint is a `jax.reshard`, behind which JAX finds all types again, or refuses them.
"""

from __future__ import annotations

import inspect
import re
import reprlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from sporax.base.errors import For, SporaxValueError
from sporax.lowering.rewriter import Atom, JaxprRewriter, aval_of, bodies_of, flat, runs_backward, with_bodies
from sporax.runtime.planned.traced_function import raise_if_known
from sporax.runtime.planned.user_mesh import is_explicit
from sporax.runtime.resharding.explicit_types import WITH_BODIES, body_typed_again, place_of, typed_again
from sporax.runtime.resharding.meshes import WHERE, concrete_mesh

_TAG = "sporax.eqn"
_NUMBER = re.compile(rf"{re.escape(_TAG)}(\d+)/?")
_OPTIONS = {
    "xla_disable_hlo_passes": "cpu-all-reduce-combiner,all-reduce-combiner,all-gather-combiner,reduce-scatter-combiner"
}
"""Passes of XLA that make one collective of several, of which only one would have its line, are off."""
_OPTIONS_OF_CPUS: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Nothing runs, so machine code is made quickly."""

Key = tuple[int, int]
"""An array in a program: the number of an equation, and the position of its result, or -1 minus that of its operand."""
_CONSTRAINTS = {"sharding_constraint": "sharding", "reshard": "dst_sharding"}
"""Primitives by which users shard an array, and the parameter that says how."""


def constraint_of(eqn: JaxprEqn) -> NamedSharding | None:
    """The sharding that a constraint or `jax.reshard` requests; None of all other equations."""
    return eqn.params.get(_CONSTRAINTS.get(eqn.primitive.name, ""))


def number_of(op_name: str) -> int | None:
    """The number of the innermost equation that an instruction comes from."""
    found = _NUMBER.findall(op_name)
    return int(found[-1]) if found else None


def without_numbers(op_name: str) -> str:
    """The name scopes as the user knows them."""
    return _NUMBER.sub("", op_name)


@dataclass(frozen=True, slots=True)
class ShardedProgram:
    """A function of flat arrays with its shardings.

    Attributes:
        name: of the function.
        jaxpr: what it computes.
        arguments, results: what messages call them.
        in_shardings, out_shardings: one for each; None leaves it to XLA.
        donated: positions of arguments whose memory results may use.
        options: of the compiler, as the user has set them.
        constraints: that are added.
    """

    name: str
    jaxpr: ClosedJaxpr
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    in_shardings: tuple[Any, ...]
    out_shardings: tuple[Any, ...]
    donated: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    constraints: Mapping[Key, NamedSharding] = field(default_factory=dict)

    def compiled(self) -> jax.stages.Compiled:
        """Compile it; each equation has its number in the names of instructions."""
        numbered = _Numbered(self.jaxpr, self.constraints, count()).run()
        typed = any(map(is_explicit, (getattr(aval, "sharding", None) for aval in self.jaxpr.in_avals)))
        function: Any = partial(typed_again, numbered) if typed else jaxpr_as_fun(numbered)
        function.__name__ = self.name
        pairs = zip(self.jaxpr.in_avals, self.in_shardings, strict=True)
        avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding) for aval, sharding in pairs]
        jitted = jax.jit(
            function,
            in_shardings=self.in_shardings,
            out_shardings=list(self.out_shardings),
            donate_argnums=self.donated,
            keep_unused=True,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of donated arguments that no result can use; the user's own run says it
            quick: dict[str, Any] = _OPTIONS_OF_CPUS if jax.default_backend() == "cpu" else {}
            return jitted.lower(*avals).compile(compiler_options={**_OPTIONS, **quick, **self.options})

    def equations(self) -> dict[int, NumberedEquation]:
        """The equations by number."""
        return dict(enumerate(_walk(self.jaxpr.jaxpr)))

    def mesh(self, requested_mesh: Mesh | AbstractMesh | None) -> Mesh:
        """The requested mesh, or that of the first sharding.

        Raises:
            SporaxValueError: there is none, or the two are not the same.
        """
        params = (value for entry in self.equations().values() for value in entry.eqn.params.values())
        every = [
            value.mesh if isinstance(value, NamedSharding) else value
            for value in (*self.in_shardings, *self.out_shardings, *params)
        ]
        own = next((mesh for mesh in every if isinstance(mesh, Mesh | AbstractMesh) and not mesh.empty), None)
        if own is None and requested_mesh is None:
            raise SporaxValueError(
                f"For '{WHERE}', '{self.name}' must have a mesh, but no argument, result or constraint of it has a sharding. Say "
                "mesh={'data': 8}, and shardings by in_shardings of jax.jit, or by arguments: jax.ShapeDtypeStruct(shape, dtype, "
                "sharding=jax.NamedSharding(mesh, P('data')))."
            )
        if own is not None and requested_mesh is not None and own.shape != requested_mesh.shape:
            raise _of_another_mesh(requested_mesh, f"{dict(own.shape)} in '{self.name}'")
        return concrete_mesh(requested_mesh or own)


@dataclass(frozen=True, slots=True)
class NumberedEquation:
    """An equation of a program.

    Attributes:
        eqn: itself.
        is_manual: whether it is in a `jax.shard_map`, where arrays are slices.
        is_backward: whether it computes gradients.
    """

    eqn: JaxprEqn
    is_manual: bool
    is_backward: bool

    @property
    def operands(self) -> list[Var]:
        """The arrays that it reads."""
        return [atom for atom in self.eqn.invars if isinstance(atom, Var)]


class _Numbered(JaxprRewriter):
    """Gives equations their numbers, and adds constraints before and behind them."""

    def __init__(self, program: ClosedJaxpr, constraints: Mapping[Key, NamedSharding], numbers: Iterator[int]) -> None:
        super().__init__(program)
        self.constraints, self.numbers = constraints, numbers

    def visit(self, eqn: JaxprEqn) -> None:
        number, info = next(self.numbers), eqn.source_info
        info = info.replace(name_stack=info.name_stack.extend(f"{_TAG}{number}"))
        new = with_bodies(eqn, self._changed) if eqn.primitive.name in WITH_BODIES else eqn
        new = new.replace(invars=list(map(self.read, eqn.invars)), source_info=info)
        for place, atom in enumerate(new.invars):
            if (number, -1 - place) in self.constraints:
                new.invars[place] = self._constrained(atom, (number, -1 - place), aval_of(atom))
        results = {place: (number, place) for place in range(len(eqn.outvars)) if (number, place) in self.constraints}
        if results and constraint_of(eqn):
            self.rename(eqn.outvars, [self._constrained(new.invars[0], (number, 0), eqn.outvars[0].aval)])
            return
        self.eqns.append(new)
        for place, key in results.items():
            self.rename([eqn.outvars[place]], [self._constrained(eqn.outvars[place], key, eqn.outvars[place].aval)])

    def _constrained(self, atom: Atom, key: Key, aval: Any) -> Atom:
        to = self.constraints[key]
        constrain: Any = jax.sharding.reshard if is_explicit(to) else jax.lax.with_sharding_constraint
        (eqn,) = jax.make_jaxpr(lambda x: constrain(x, to))(jax.ShapeDtypeStruct(aval.shape, aval.dtype)).eqns
        result = Var(aval)  # of the type that it had, from which `typed_again` sees what has changed
        self.eqns.append(eqn.replace(invars=[atom], outvars=[result]))
        return result

    def _changed(self, body: Any) -> Any:
        if not isinstance(body, ClosedJaxpr):
            return self._changed(ClosedJaxpr(body, ())).jaxpr
        numbered = _Numbered(body, self.constraints, self.numbers).run()
        return body_typed_again(numbered) if any(map(is_explicit, self.constraints.values())) else numbered


def _walk(jaxpr: Jaxpr, is_manual: bool = False, is_backward: bool = False) -> Iterator[NumberedEquation]:
    """The equations in the order in which they are numbered."""
    for eqn in jaxpr.eqns:
        entry = NumberedEquation(eqn, is_manual, is_backward or runs_backward(eqn))
        yield entry
        for body in bodies_of(eqn) if eqn.primitive.name in WITH_BODIES else ():
            yield from _walk(body, is_manual or eqn.primitive.name == "shard_map", entry.is_backward)


def sharded_program(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], mesh: Mesh | None
) -> ShardedProgram:
    """Trace a function, jitted or not, under a mesh.

    Args:
        args, kwargs: its arguments: arrays, or shapes and dtypes with shardings in their place. All others are constants.
        mesh: of the context, where one must be set.

    Raises:
        SporaxTypeError: no function.
        SporaxValueError: JAX cannot trace it.
    """
    For(WHERE).refuse_type(not callable(fn), "'fn' must be a function", fn, show=reprlib.repr)
    leaves, tree = jax.tree_util.tree_flatten_with_path((tuple(args), dict(kwargs)))
    dynamic = [number for number, (_, leaf) in enumerate(leaves) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    structs = [_struct(leaves[number][1], mesh) for number in dynamic]

    def flat_function(*values: Any) -> Any:
        filled = [leaf for _, leaf in leaves]
        for number, value in zip(dynamic, values, strict=True):
            filled[number] = value
        positional, named = jax.tree.unflatten(tree, filled)
        return fn(*positional, **named)

    try:
        jaxpr, made = _traced(flat_function, structs)
    except ValueError as error:
        if mesh is None or "context mesh" not in str(error):
            raise
        raise _of_another_mesh(mesh, str(error)) from error
    names = _names_of(fn, [leaves[number][0] for number in dynamic])
    results = tuple(f"result{jax.tree_util.keystr(path)}" for path, _ in jax.tree_util.tree_flatten_with_path(made)[0])
    shardings = tuple(struct.sharding for struct in structs)
    program = ShardedProgram(getattr(fn, "__name__", "fn"), jaxpr, names, results, shardings, (None,) * len(results))
    return _opened(program)


def _traced(function: Callable[..., Any], structs: Sequence[Any]) -> tuple[ClosedJaxpr, Any]:
    try:
        traced: tuple[ClosedJaxpr, Any] = jax.make_jaxpr(function, return_shape=True)(*structs)
    except NameError as error:
        raise_if_known(error, WHERE)
        raise
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        first = str(error).partition("\n")[0]
        raise SporaxValueError(
            f"For '{WHERE}', 'fn' must be a function that jax.jit can trace, but {type(error).__name__}: {first} "
            "Arguments that decide about Python's control flow must be numbers or texts, and not arrays."
        ) from error
    return traced


def _of_another_mesh(requested_mesh: Mesh | AbstractMesh, own: str) -> SporaxValueError:
    return For(WHERE).error(f"'mesh' must be the mesh of the program's shardings, {own}", dict(requested_mesh.shape))


def _struct(leaf: Any, mesh: Mesh | None) -> jax.ShapeDtypeStruct:
    sharding = getattr(leaf, "sharding", None)
    sharding = sharding if isinstance(sharding, NamedSharding) else None
    if sharding is not None and not isinstance(sharding.mesh, Mesh):
        sharding = NamedSharding(mesh or concrete_mesh(sharding.mesh), sharding.spec)
    dtype = jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=sharding, weak_type=getattr(leaf, "weak_type", False))


def _names_of(fn: Callable[..., Any], paths: Sequence[Any]) -> tuple[str, ...]:
    """What the user calls the arrays among the arguments: ``params['w']``."""
    try:
        parameters = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        parameters = []

    def name(first: Any) -> str:
        if hasattr(first, "key"):
            return str(first.key)
        return parameters[first.idx] if first.idx < len(parameters) else f"args[{first.idx}]"

    return tuple(name(first) + jax.tree_util.keystr(tuple(rest)) for _, first, *rest in paths)


def _opened(program: ShardedProgram) -> ShardedProgram:
    """The program that a jitted function is, with the shardings that `jax.jit` was given. Calls are written out."""
    jaxpr = program.jaxpr.jaxpr
    eqn = jaxpr.eqns[0] if len(jaxpr.eqns) == 1 else None
    if eqn is None or eqn.primitive.name not in ("jit", "pjit") or list(eqn.outvars) != list(jaxpr.outvars):
        return replace(program, jaxpr=flat(_with_lines(program.jaxpr)))
    outer = dict(zip(jaxpr.invars, zip(program.arguments, program.in_shardings, strict=True), strict=True))
    for number, (var, value) in enumerate(zip(jaxpr.constvars, program.jaxpr.consts, strict=True)):
        outer[var] = f"constant {number}", _if_named(getattr(value, "sharding", None))
    requested = eqn.params["in_shardings"]
    named = [("a number", None) if isinstance(atom, Literal) else outer[atom] for atom in eqn.invars]
    inner = replace(
        program,
        jaxpr=eqn.params["jaxpr"],
        arguments=tuple(name for name, _ in named),
        in_shardings=tuple(_if_named(new) or old for new, (_, old) in zip(requested, named, strict=True)),
        out_shardings=tuple(
            _if_named(new) or old for new, old in zip(eqn.params["out_shardings"], program.out_shardings, strict=True)
        ),
        donated=tuple(number for number, donated in enumerate(eqn.params["donated_invars"]) if donated),
        options=dict(eqn.params.get("compiler_options_kvs", ())),
    )
    return _opened(inner)


def _with_lines(body: Any, around: Any = None) -> Any:
    """A program in which the equations of JAX's own functions (`jax.numpy.where`) come from the line that calls these."""
    if isinstance(body, ClosedJaxpr) and body.jaxpr is not body:  # one class since JAX 0.11
        return body.replace(jaxpr=_with_lines(body.jaxpr, around))
    eqns = []
    for eqn in body.eqns:
        if around is not None and not place_of(eqn).file:
            eqn = eqn.replace(source_info=eqn.source_info.replace(traceback=around))
        inside = partial(_with_lines, around=eqn.source_info.traceback if place_of(eqn).file else around)
        eqns.append(with_bodies(eqn, inside) if eqn.primitive.name in WITH_BODIES else eqn)
    return body.replace(eqns=eqns)


def _if_named(sharding: Any) -> NamedSharding | None:
    return sharding if isinstance(sharding, NamedSharding) else None
