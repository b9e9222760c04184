"""A sharded function inside of a derivative of eager code: compiled programs of its own, forward and backward.

Problem: in PYNATIVE_MODE only what `shard` wraps is sharded. Called by itself it is one compiled step. Inside of `value_and_grad`
JAX differentiates what it meets operator by operator, and a compiled step that a plan shards is no operator.

Method: it becomes one (`jax.custom_vjp`). Forward it is a program of the arrays that it gets and of the Parameters that it reads;
what it writes leaves as results, since the derivative still needs the values before. Backward it is a second program, which
computes the part again from the same values and pulls the cotangents back to those arrays and Parameters that are
differentiated. Both are planned, with the user's strategies. The backward program is such a part itself, so derivatives of any
order are sharded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from sporax.base.errors import SporaxNotImplementedError, SporaxRuntimeError
from sporax.mindspore import context
from sporax.mindspore.common import _integer_gradients
from sporax.mindspore.common._pullback import Structure, Updates, is_inexact, loss_marked, no_cotangent, take_apart
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.runtime import program as compiled
from sporax.runtime.ranks import check_reverse
from sporax.runtime.state import frames, ordered_trees


def is_inside_eager_code() -> bool:
    """Whether what runs now is differentiated and not compiled, in a mode that shards compiled steps only."""
    return context.shards_compiled_steps() and frames.current_frame() is not None and not frames.compiling()


def run_part(program: compiled.Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the function of `program` as a part of eager code that is differentiated.

    Args:
        program: what runs where nothing is differentiated.
        args, kwargs: the call.

    Raises:
        SporaxRuntimeError: the function uses Tensors that are differentiated and are not its inputs.
        SporaxNotImplementedError: integers are differentiated, or inputs of which each process has its own rows.
    """
    if program.part is None:
        program.part = _Part(program.function, program.name)
    part: _Part = program.part
    return part(args, kwargs)


class _Part:
    """A function with programs of its own for its values and, by what is differentiated, its gradients."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.name = name
        self.program = compiled.Program(self._apart, name, context.plan_settings)
        self._pulls: dict[Any, _Part] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run it; reads and writes of variables are those of the present frame."""
        check_reverse()
        leaves, tree = ordered_trees.flatten((args, kwargs))
        positions = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
        arrays = [leaves[place] for place in positions]
        if any(_integer_gradients.find(array) is not None for array in arrays):
            raise SporaxNotImplementedError(
                f"For '{self.name}', 'shard' inside of a derivative by integers is not offered in PYNATIVE_MODE. Compile the "
                "step with jit, or call set_context(mode=GRAPH_MODE)."
            )
        variables = self._variables(args, kwargs)

        def call(arrays: Sequence[jax.Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            filled = list(leaves)
            for place, array in zip(positions, arrays, strict=True):
                filled[place] = array
            return jax.tree.unflatten(tree, filled)

        once = _DifferentiableCall(self, variables, call)
        outputs = once(list(map(frames.read, variables)), arrays)
        structure, written = once.found
        frames.commit(dict(zip(written, outputs[len(outputs) - len(written) :], strict=True)))
        return structure.fill(outputs[: len(outputs) - len(written)])

    def programs(self) -> list[compiled.Program]:
        """What has been compiled: the program of the values, and one for each choice of what is differentiated."""
        return [self.program, *(pull.program for pull in self._pulls.values())]

    def _apart(self, *args: Any, **kwargs: Any) -> tuple[list[jax.Array], Structure, Updates]:
        """Run the function: the arrays of its result, the rest of that, and what was written."""
        result, updates = frames.isolate(lambda: self.function(*args, **kwargs))
        arrays, structure = take_apart(result)
        return arrays, structure, Updates(updates)

    def _variables(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The variables that a call reads."""
        variables, differentiated = self.program.variables(args, kwargs)
        if differentiated:
            raise SporaxRuntimeError(
                f"For '{self.name}', a function that 'shard' wraps must get all Tensors that are differentiated as inputs or "
                "read them from Parameters, but it uses others from outside. Pass them as inputs."
            )
        return variables

    def pull(self, variables: Sequence[Any], of_variables: tuple[bool, ...], of_arrays: tuple[bool, ...]) -> _Part:
        """The part that maps inputs and cotangents to the gradients of these variables and arrays."""
        chosen = [variable for variable, wanted in zip(variables, of_variables, strict=True) if wanted]
        key = (tuple(map(id, chosen)), of_arrays)
        if key not in self._pulls:
            self._pulls[key] = _Part(self._pulled(chosen, of_arrays), f"gradient of {self.name}")
        return self._pulls[key]

    def _pulled(self, chosen: Sequence[Any], of_arrays: tuple[bool, ...]) -> Callable[..., Any]:
        def pulled(args: Any, kwargs: Any, cotangents: Sequence[Tensor]) -> list[Tensor]:
            leaves, tree = ordered_trees.flatten((args, kwargs))
            positions = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
            positions = [place for place, wanted in zip(positions, of_arrays, strict=True) if wanted]

            def values(of_chosen: Sequence[jax.Array], arrays: Sequence[jax.Array]) -> list[jax.Array]:
                filled = list(leaves)
                for place, array in zip(positions, arrays, strict=True):
                    filled[place] = array
                args, kwargs = jax.tree.unflatten(tree, filled)
                by_position = dict(zip(chosen, of_chosen, strict=True))
                (outputs, _, updates), _ = frames.isolate(lambda: self._apart(*args, **kwargs), by_position)
                return [*outputs, *updates.values()]

            outputs, back = jax.vjp(values, list(map(frames.read, chosen)), [leaves[place] for place in positions])
            remaining = iter(cotangents)
            starts = [next(remaining).array if is_inexact(output) else no_cotangent(output) for output in outputs]
            by_variable, by_array = back(loss_marked(outputs, starts))
            return [wrap(gradient) for gradient in (*by_variable, *by_array)]

        return pulled


class _DifferentiableCall:
    """One call of a part, as a function of arrays that JAX differentiates.

    Attributes:
        found: the structure of the results around their arrays, and the variables that were written.
    """

    def __init__(self, part: _Part, variables: tuple[Any, ...], call: Callable[..., Any]) -> None:
        self.part, self.variables, self.call = part, variables, call
        self.found: tuple[Structure, tuple[Any, ...]]
        self._wanted: tuple[tuple[bool, ...], tuple[bool, ...]]
        self._smooth: list[bool]
        self._run = jax.custom_vjp(self._forward)
        self._run.defvjp(self._keeping, self._backward, symbolic_zeros=True)

    def __call__(self, values: list[jax.Array], arrays: list[jax.Array]) -> list[jax.Array]:
        """The arrays of the results, and behind them the values of what was written."""
        return self._run(values, arrays)

    def _forward(self, values: Sequence[jax.Array], arrays: Sequence[jax.Array]) -> list[jax.Array]:
        args, kwargs = self.call(arrays)
        if any(isinstance(array, jax.core.Tracer) for array in (*values, *arrays)):
            # Inside of recompute, a branch or a `vmap`, where there are no values to start a program with.
            assigned = dict(zip(self.variables, values, strict=True))
            outputs, structure, updates = self.part.program.part_of_trace(assigned, args, kwargs)
        else:
            with _holding(self.variables, values):
                outputs, structure, updates = self.part.program(*args, **kwargs)
        self.found = structure, tuple(updates)
        return [*outputs, *updates.values()]

    def _keeping(self, values: Sequence[Any], arrays: Sequence[Any]) -> tuple[list[jax.Array], Any]:
        self._wanted = tuple(entry.perturbed for entry in values), tuple(entry.perturbed for entry in arrays)
        values, arrays = [entry.value for entry in values], [entry.value for entry in arrays]
        if any(isinstance(array, jax.core.Tracer) for array in (*values, *arrays)):
            # These are differentiated themselves, so the call is one of its kind again.
            once = _DifferentiableCall(self.part, self.variables, self.call)
            outputs = once(values, arrays)
            self.found = once.found
        else:
            outputs = self._forward(values, arrays)
        self._smooth = list(map(is_inexact, outputs))
        return outputs, (values, arrays)

    def _backward(self, residuals: Any, cotangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        values, arrays = residuals
        starts = [
            wrap(jnp.zeros(start.shape, start.dtype) if isinstance(start, SymbolicZero) else start)
            for start, is_smooth in zip(cotangents, self._smooth, strict=True)
            if is_smooth
        ]
        pull = self.part.pull(self.variables, *self._wanted)
        assigned = dict(zip(self.variables, values, strict=True))
        gradients, _ = frames.isolate(lambda: pull((*self.call(arrays), starts), {}), assigned)
        chosen = [array for array, wanted in zip(arrays, self._wanted[1], strict=True) if wanted]
        for gradient, array in zip(gradients[len(gradients) - len(chosen) :], chosen, strict=True):
            # Each process would go on with the gradient of its own rows, and its weights would differ from the others'.
            if gradient.shape != array.shape:
                raise SporaxNotImplementedError(
                    f"For '{self.part.name}', 'shard' inside of a derivative by inputs of which each process has its own rows is "
                    "not offered in PYNATIVE_MODE. Give all rows to each with dataset_strategy='full_batch', or compile the "
                    "step with jit."
                )
        remaining = iter(gradients)
        of_variables, of_arrays = ([next(remaining).array if each else None for each in part] for part in self._wanted)
        return of_variables, of_arrays


@contextmanager
def _holding(variables: Sequence[Any], values: Sequence[jax.Array]) -> Iterator[None]:
    """Variables with these values, and with their own again afterwards; a program may move those that it finds."""
    others = [(variable, value) for variable, value in zip(variables, values, strict=True) if variable.raw is not value]
    before = [(variable, variable.raw) for variable, _ in others]
    try:
        for variable, value in others:
            frames.put(variable, value)
        yield
    finally:
        for variable, value in before:
            frames.put(variable, value)
