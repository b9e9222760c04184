"""`sporax.explain_resharding`: the collectives that XLA puts into a user's own program, and what removes them.

Method: the program is compiled for the devices at hand, CPUs that are simulated included, and its text is read. For each
collective, those of most bytes first, changes around the operator that needs it are compiled one after another. What is shown has
been counted: fewer bytes in all, no longer predicted, with as much arithmetic and memory on each device as before, or nearly.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh

from sporax.base.errors import SporaxValueError
from sporax.base.progress import activity, reported
from sporax.ir.hardware import HardwareProfile, load_profile
from sporax.planner import fitting_hardware
from sporax.report.resharding import ReshardingReport
from sporax.runtime.planned.user_mesh import context_mesh
from sporax.runtime.resharding.collectives import CollectiveCosts
from sporax.runtime.resharding.meshes import WHERE, concrete_mesh, named_programs, under_mesh
from sporax.runtime.resharding.remedies import Search, remedy_of
from sporax.runtime.resharding.sharded_program import ShardedProgram, sharded_program

_EXPLICIT = "axes are explicit: JAX's types allow {} of these {} changes."


def explain_resharding(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    mesh: Mesh | AbstractMesh | Mapping[str, int] | None = None,
    hardware: str = "",
    tries: int = 96,
) -> ReshardingReport:
    """List the collectives that XLA puts into a program of yours, with lines, bytes, times, and changes that remove them.

    Nothing is run. Bytes and times are of one run of the program on one device.

    Args:
        fn: a function, or what `jax.jit` made of it, with shardings of arguments and results (``in_shardings``,
            ``out_shardings``) and constraints.
        args: its arguments, or `jax.ShapeDtypeStruct` in place of their arrays; their shardings count, as in a call. What is no
            array (numbers, texts, configurations) is a constant, whether it is a static argument or not.
        kwargs: its arguments by keyword, by name.
        mesh: the devices, simulated ones included: a mesh, which is set around the function (`jax.set_mesh`), or devices along
            each axis, ``{"data": 8}``. By default the mesh of the context, or that of the shardings.
        hardware: for the times: a profile (`sporax.ir.hardware.known_profiles`) or a JSON file; by default what JAX runs on.
        tries: changes that are compiled at most; 0 lists the collectives alone.

    Raises:
        SporaxTypeError: `fn` is no function, or `mesh` no mesh.
        SporaxValueError: JAX cannot trace `fn`; there is no mesh, or one of more devices than are here; an unknown profile.

    Example:
        >>> from jax.sharding import NamedSharding, PartitionSpec as P
        >>> mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        >>> x = jax.ShapeDtypeStruct((64, 32), "float32", sharding=NamedSharding(mesh, P("x")))
        >>> sporax.explain_resharding(lambda x: x - x.mean(0), x, hardware="h100").collectives[0].operator
        'all-reduce'
    """
    if type(tries) is not int or tries < 0:
        raise SporaxValueError.must(WHERE, "tries", "be a number of programs, 0 or more", reprlib.repr(tries))
    asked = None if mesh is None else concrete_mesh(mesh)
    profile = load_profile(hardware or fitting_hardware(jax.default_backend()))
    with reported(), activity("explaining collectives"), named_programs(), under_mesh(asked):
        program = sharded_program(fn, args, {} if kwargs is None else kwargs, asked)
        return _explained(program, program.mesh(asked or context_mesh()), profile, tries)


def _explained(program: ShardedProgram, mesh: Mesh, profile: HardwareProfile, tries: int) -> ReshardingReport:
    costs = CollectiveCosts({str(name): size for name, size in mesh.shape.items()}, profile)
    search = Search(program, mesh, costs, tries)
    trials = search.remedies()
    collectives = tuple(
        replace(found.collective, remedy=trial and remedy_of(*trial))
        for found, trial in zip(search.base.found, trials, strict=True)
    )
    together = search.together(trials)
    allowed = sum(trial is not None for trial in search.trials.values())
    is_typed = AxisType.Explicit in mesh.axis_types and search.tried
    notes = [_EXPLICIT.format(allowed or "none", search.tried)] if is_typed else []
    notes += (
        [f"{tries} changes were the limit, 'tries'; a higher one looks further."] if search.tried == tries > 0 else []
    )
    return ReshardingReport(
        program.name, dict(costs.mesh), profile.name, collectives, search.tried, together, tuple(notes)
    )
