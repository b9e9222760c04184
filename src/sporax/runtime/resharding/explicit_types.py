"""Programs on explicit axes whose arrays are sharded otherwise than when they were traced: all types follow.

Problem: the types of a traced program say all shardings, so one that is changed would contradict the others. Method: equations
are run again under JAX, which finds the types of their results or refuses them, as if the user had written the change.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from jax.sharding import NamedSharding

from sporax.lowering.rewriter import aval_of, run_equation, runs_backward
from sporax.report.resharding import SourceLine
from sporax.runtime.process.compiled_text import is_of_user

WITH_BODIES = frozenset(
    "scan while cond jit pjit closed_call core_call shard_map remat remat2 checkpoint custom_jvp_call custom_vjp_call "
    "custom_vjp_call_jaxpr".split()
)
"""Primitives whose bodies are equations of the same program."""
_OF_TYPES = frozenset(name for name in WITH_BODIES if not name.startswith("custom"))
"""Those whose bodies are traced for operands of one type."""


def typed_again(program: ClosedJaxpr, *values: Any) -> Any:
    """Run a program some of whose arrays have other types than are written.

    What a backward pass says of the type of an array of the forward pass (``out_sharding``) follows that array, by line and
    shape.

    Raises:
        ValueError: a loop or a call would read another type than its body has.
    """
    jaxpr, moved = program.jaxpr, dict[Any, Any]()
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*program.consts, *values], strict=True))
    for eqn in jaxpr.eqns:
        operands = [atom.val if isinstance(atom, Literal) else known[atom] for atom in eqn.invars]
        place, types = place_of(eqn), zip(map(aval_of, eqn.invars), map(jax.typeof, operands), strict=True)
        changed = {(place, old.shape, old.sharding): new.sharding for old, new in types if _type(old) != _type(new)}
        if changed and eqn.primitive.name in _OF_TYPES:
            raise ValueError(f"The body of {eqn.primitive.name} reads other types than {list(changed.values())}.")
        if runs_backward(eqn):
            named = {name: value for name, value in eqn.params.items() if isinstance(value, NamedSharding)}
            new = {name: moved.get((place, aval_of(eqn.outvars[0]).shape, old), old) for name, old in named.items()}
            eqn = eqn.replace(params={**eqn.params, **new})
        else:
            moved |= changed
        known.update(zip(eqn.outvars, run_equation(eqn, operands), strict=True))
    return [atom.val if isinstance(atom, Literal) else known[atom] for atom in jaxpr.outvars]


def body_typed_again(body: ClosedJaxpr) -> ClosedJaxpr:
    """The body of a loop or a call, in which arrays have other types than are written.

    Raises:
        ValueError: what it hands out would be of another type.
    """
    avals = body.in_avals
    like = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=_type(a), weak_type=a.weak_type) for a in avals]
    made = jax.make_jaxpr(partial(typed_again, body))(*like)
    if [*map(_type, made.out_avals)] != [*map(_type, body.out_avals)]:
        raise ValueError("The body of a loop hands out other types than it reads.")
    return made


def _type(aval: Any) -> Any:
    return getattr(aval, "sharding", None)  # tokens have none


def place_of(eqn: JaxprEqn) -> SourceLine:
    """The line of the user's program that an equation comes from."""
    trace = eqn.source_info.traceback
    frames: Any = () if trace is None else ((frame.file_name, frame.line_num) for frame in trace.frames)
    return next((SourceLine(*frame) for frame in frames if is_of_user(frame[0])), SourceLine())
