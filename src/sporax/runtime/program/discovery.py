"""The first trace of a program: which variables a function reads and writes, and what else it depends on.

That trace reads variables where they are. Its jaxpr can often take their place as arguments afterwards
(`lowering.marks.mark_primitive`), so that a step which is rewritten as a jaxpr anyway is traced once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Var

from sporax.lowering.marks.mark_primitive import with_arguments
from sporax.lowering.rewriter import Called, JaxprRewriter
from sporax.runtime import world
from sporax.runtime.ranks import joint_arrays
from sporax.runtime.state import frames


@dataclass(slots=True)
class Discovery:
    """What a trace has found.

    Attributes:
        frame: variables that are read and written, guards, tags.
        traced: from arrays to new values of written variables and arrays of the result; None between ranks.
        result: what the function returned, its arrays as tracers.
        of_rank: likewise, as one rank's part of the program of all ranks; where this process acts for several.
    """

    frame: frames.DiscoveryFrame
    traced: ClosedJaxpr | None = None
    result: Any = None
    of_rank: ClosedJaxpr | None = None

    @property
    def written(self) -> tuple[Any, ...]:
        """The variables that are updated."""
        return tuple(self.frame.written)

    @property
    def read(self) -> tuple[Any, ...]:
        """The variables that are only read."""
        return tuple(variable for variable in self.frame.found if variable not in self.frame.written)

    def program(self, called: Called | None = None) -> ClosedJaxpr | None:
        """The flat program of written variables, read ones and arrays, to new values of written ones and arrays.

        None where the trace cannot be had in this form: ranks exchange data, or variables are in host memory or are read inside
        of loops.

        Args:
            called: the calls that are written out; by default plain ones.
        """
        variables = (*self.written, *self.read)
        if self.traced is None or any(getattr(variable, "on_host", False) for variable in variables):
            return None
        numbers = [self.frame.found[variable] for variable in variables]
        unmade = [getattr(variable, "unmade", None) for variable in variables]
        shapes = [variable.raw if spec is None else spec for variable, spec in zip(variables, unmade, strict=True)]
        program = with_arguments(self.traced, numbers, shapes, called)
        return None if program is None else _with_copies(program, len(self.frame.written), len(variables))


def discover(
    function: Callable[[list[Any]], Any], arrays: Sequence[Any], by_rank: bool, planned: bool = False
) -> Discovery:
    """Trace a function abstractly.

    Args:
        arrays: these, or their shapes and dtypes.
        by_rank: whether ranks may run different programs.
        planned: whether a plan shards the program.
    """
    # Shapes suffice: nothing is computed, and arrays on a mesh would leave their shardings in the trace.
    inputs = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    # A function that changes while it is traced (`state.Retrace`) is traced again from the start.
    requests: dict[Any, Any] = {}
    while True:
        discovery = Discovery(frames.DiscoveryFrame(planned))
        discovery.frame.requests = requests

        def trace(arrays: list[Any], discovery: Discovery = discovery) -> list[Any]:
            frame = discovery.frame
            with frame:
                discovery.result = function(arrays)
            leaves = [leaf for leaf in jax.tree.leaves(discovery.result) if isinstance(leaf, jax.Array)]
            # Updated variables first: the compiled step donates them by position.
            return [*(frame.values[variable] for variable in frame.written), *leaves]

        try:
            if world.has_peers() and by_rank:
                # Collectives need the mesh axis of `shard_map` around them, and a program with it is not flat.
                program, values = (
                    joint_arrays.by_rank(trace, joint_arrays.all_devices()),
                    (inputs, jax.ShapeDtypeStruct((), jnp.int32)),
                )
                if world.num_ranks_here() > 1:
                    discovery.of_rank = jax.make_jaxpr(program)(*values)
                else:
                    jax.eval_shape(program, *values)
            else:
                discovery.traced = jax.make_jaxpr(trace)(inputs)
        except frames.Retrace:
            continue
        return discovery


def _with_copies(program: ClosedJaxpr, num_written: int, num_variables: int) -> ClosedJaxpr:
    """The program; results that are values of variables are copies, since the next step gives the buffers of these away."""
    jaxpr = program.jaxpr
    writer = JaxprRewriter(program)
    writer.walk()
    updated, outputs = list(jaxpr.outvars[:num_written]), list(jaxpr.outvars[num_written:])
    owned = {*jaxpr.invars[:num_variables], *(var for var in updated if isinstance(var, Var))}
    for number, var in enumerate(outputs):
        # Constants and new arrays are safe; only a buffer that a variable also holds would be overwritten.
        if isinstance(var, Var) and var in owned:
            (outputs[number],) = writer.emit(lambda array: jnp.array(array, copy=True), var)
    return writer.finish([*updated, *outputs])
