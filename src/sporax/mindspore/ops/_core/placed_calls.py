"""Calls that one worker of the job computes for all: `Cell.place` and `Primitive.place`.

Problem: MindSpore's graph partition. Every worker runs the same script; an operator or Cell that is placed on worker `r` is
computed there only, and the others receive its results.

Method: the program of worker `r` contains the call, those of the others zeros of the same shape, and a broadcast from `r`
follows. The derivative is placed on the same worker: it computes the cotangents of the inputs and of the Parameters, and
broadcasts them. What is not placed is computed by all workers equally, so all must start from the same values: the Parameters
are worker 0's when a step is compiled, and so are the data of every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxRuntimeError, SporaxTypeError
from sporax.base.lazy_members import dataclass
from sporax.runtime.ranks import Arrays, Axis, Collective, Saved, collectives, from_root, groups, refused
from sporax.runtime.session import SESSION, assigned
from sporax.runtime.state import frames, ordered_trees


@dataclass(frozen=True)
class Placed(Collective[tuple[jax.Array, ...]]):
    """A function of arrays that one member computes for all.

    Attributes:
        root: its world rank.
        function: pure; gives a tuple of arrays.
    """

    root: int
    function: Callable[..., tuple[jax.Array, ...]]

    is_linear = False

    def forward(self, axis: Axis, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        """The results of the member's call, everywhere."""
        return self._from_root(axis, self.function, *arrays)

    def backward(self, axis: Axis, saved: Saved, cotangents: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """The member's cotangents, everywhere. XLA finds that it has computed the call already."""
        return self._from_root(axis, self._pull_back, saved.arrays, tuple(cotangents))

    def _pull_back(self, arrays: tuple[jax.Array, ...], cotangents: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        results, pull_back = jax.vjp(self.function, *arrays)
        # JAX wants the special zero dtype `float0` for the cotangents of integers.
        incoming = tuple(
            cotangent.astype(result.dtype) if jnp.issubdtype(result.dtype, jnp.inexact) else _no_tangent(result)
            for result, cotangent in zip(results, cotangents, strict=True)
        )
        return tuple(
            cotangent if jnp.issubdtype(array.dtype, jnp.inexact) else jnp.zeros(array.shape, jnp.float32)
            for array, cotangent in zip(arrays, pull_back(incoming), strict=True)
        )

    def _from_root(
        self, axis: Axis, function: Callable[..., Iterable[jax.Array]], *arguments: Arrays
    ) -> tuple[jax.Array, ...]:
        position = self.group.ranks.index(self.root)
        if axis.position == position:
            results = function(*arguments)
        else:
            # `eval_shape` traces the function without adding its operators to this rank's program.
            results = [jnp.zeros(result.shape, result.dtype) for result in jax.eval_shape(function, *arguments)]
        return tuple(from_root(axis, result, position) for result in results)


def _no_tangent(result: jax.Array) -> jax.Array:
    return jnp.zeros(result.shape, jax.dtypes.float0)


def check_place(name: str, role: str, rank_id: int, parallel_mode: str) -> None:
    """Check the arguments of ``place(role, rank_id)`` of an operator or Cell of this name.

    Raises:
        SporaxTypeError: `rank_id` is not an int.
        SporaxValueError: `role` is not ``"MS_WORKER"`` or `rank_id` is negative.
        SporaxRuntimeError: a parallel mode is set.
    """
    For(name).refuse(role != "MS_WORKER", "'role' must be 'MS_WORKER'", role, show=repr)
    if not isinstance(rank_id, int) or isinstance(rank_id, bool):
        raise SporaxTypeError(f"For '{name}', 'rank_id' must be an int, but got {type(rank_id).__name__}.")
    For(name).refuse(rank_id < 0, "'rank_id' must be >= 0", rank_id)
    if parallel_mode != "stand_alone":
        raise SporaxRuntimeError(
            f"For '{name}', place must be used in the parallel mode 'stand_alone', but the mode is '{parallel_mode}'."
        )


def run_placed(
    name: str, owner: int, call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """``call(*args, **kwargs)``, computed by worker `owner` for all workers.

    Args:
        name: of the operator or Cell, for messages.
        owner: world rank.
        call: may read and write Parameters.
        args, kwargs: pytrees.

    Raises:
        SporaxRuntimeError: the job has no such worker, the call is outside of a compiled step, or another worker's call
            contains it.
    """
    group = groups.find(None)
    outer = SESSION.tracing.owner
    # A placed Cell may contain placed operators, but a worker cannot wait inside the call of another one.
    if outer is not None and outer != owner:
        raise SporaxRuntimeError(
            f"For '{name}', the placement must be that of the Cell around it, worker {outer}, but it is worker {owner}."
        )
    For(name).refuse_state(owner >= group.size, f"'rank_id' must be < {group.size}, the workers", owner)
    # Inside of a placed call everything runs on the owner already.
    if outer is not None or group.size == 1:
        return call(*args, **kwargs)
    if not frames.compiling():
        raise For(name).state_error(
            f"the mode must be GRAPH_MODE for an operator that is placed on worker {owner}, but it is PYNATIVE_MODE"
        )
    frames.note_tag(collectives.PLACED)
    leaves, tree = ordered_trees.flatten((args, kwargs))
    # Static values stay outside: a collective takes and returns arrays only.
    positions = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    static: dict[str, Any] = {}

    def inside(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        for place, array in zip(positions, arrays, strict=True):
            leaves[place] = array
        inner_args, inner_kwargs = jax.tree.unflatten(tree, leaves)
        with _computed_by(owner):
            result, updates = frames.isolate(lambda: call(*inner_args, **inner_kwargs))
        outputs, static["tree"] = ordered_trees.flatten(result)
        static["written"] = tuple(updates)
        return (*map(jnp.asarray, outputs), *updates.values())

    arrays = [leaves[place] for place in positions]
    # Parameters that the call reads become arguments, so that their gradients come out as cotangents.
    function, parameters = jax.closure_convert(inside, *arrays)
    results = collectives.run(Placed(group, owner, function), *arrays, *parameters)
    count = len(results) - len(static["written"])
    # What the call wrote becomes the new value on all workers.
    frames.commit(dict(zip(static["written"], results[count:], strict=True)))
    return jax.tree.unflatten(static["tree"], results[:count])


@contextmanager
def _computed_by(owner: int) -> Iterator[None]:
    with assigned(SESSION.tracing, owner=owner), refused(f"a call that is placed on worker {owner}"):
        yield
