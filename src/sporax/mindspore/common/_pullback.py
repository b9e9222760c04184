"""The user's function as a pure function of what is differentiated, and its pullback.

A function of Tensors may read Parameters, write them, and return numbers, strings and containers next to Tensors. JAX
differentiates functions from arrays to arrays. `Pure` is the bridge: it runs the function in a frame of its own, in which
the differentiated Parameters have their tracers; what was written leaves as an auxiliary result, and everything that is
not an array becomes part of the structure of the result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxIndexError, SporaxRuntimeError, SporaxTypeError
from sporax.base.lazy_members import dataclass
from sporax.ir import GradientMark, LossMark, RowsMark
from sporax.lowering import marks as trace_marks
from sporax.mindspore import context
from sporax.mindspore.common import _integer_gradients, escaped_tensors
from sporax.mindspore.common._rank_parts import RankParts, parts_of_call
from sporax.mindspore.common.gradient_hooks import Hooks, is_number
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.sparse_tensor import COOTensor, CSRTensor, with_values
from sporax.mindspore.common.tensor import Tensor, wrap
from sporax.runtime.ranks import ReverseModeNeeded, forward_mode_refused, initial_broadcast, local_ranks
from sporax.runtime.state import frames, ordered_trees


class Call:
    """A call of the user's function, with the inputs and weights that are differentiated.

    Args:
        fn: function of Tensors.
        args, kwargs: what it is called with.
        positions: which arguments to differentiate, counted over `args` and then `kwargs`; only Tensors and the
            values of COOTensors and CSRTensors among them are.
        weights: Parameters to differentiate; those that do not require a gradient are not.
        has_aux: only the first output is differentiated.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        positions: Sequence[int],
        weights: Sequence[Parameter] = (),
        has_aux: bool = False,
    ) -> None:
        self.fn = fn
        self.names = tuple(kwargs)
        self.values = [*args, *kwargs.values()]
        _check_positions(fn, args, kwargs, positions)
        self.positions = tuple(position for position in positions if is_differentiable(self.values[position]))
        self.weights = tuple(weight for weight in weights if weight.requires_grad)
        # A compiled gradient must notice when a Parameter stops to require one.
        for weight in weights:
            frames.depend_on(weight)
        self.has_aux = has_aux

    @property
    def by_integers(self) -> bool:
        """Whether an integer is among what is differentiated."""
        return not all(map(is_inexact, [*self.inputs, *self.parameters]))

    @property
    def inputs(self) -> list[jax.Array]:
        """Arrays of the differentiated inputs."""
        selected = [self.values[position] for position in self.positions]
        # Of a sparse tensor the values are differentiated.
        return [(value if isinstance(value, Tensor) else value.values).array for value in selected]

    @property
    def parameters(self) -> list[jax.Array]:
        """Arrays of the differentiated weights."""
        return [frames.read(weight) for weight in self.weights]

    def pure(self, inputs: Sequence[jax.Array], parameters: Sequence[jax.Array]) -> tuple[list[jax.Array], Any]:
        """Run the function on these arrays.

        Returns:
            The arrays among the differentiated outputs; and what was written, the structure of these outputs, and the
            outputs that are not differentiated (arrays and their structure).
        """
        # Inside of JAX's trace; the results are taken apart there and go on being differentiated.
        with escaped_tensors.valued():
            return self._run(inputs, parameters)

    def _run(self, inputs: Sequence[jax.Array], parameters: Sequence[jax.Array]) -> tuple[list[jax.Array], Any]:
        values = list(self.values)
        frame = dict(zip(self.weights, parameters, strict=True))
        for position, array in zip(self.positions, inputs, strict=True):
            value = values[position]
            if isinstance(value, Parameter) and value not in frame:
                # The function may also read it by another way, such as through its Cell.
                frame[value] = array
            elif not isinstance(value, Tensor):
                values[position] = with_values(value, wrap(array))
            else:
                values[position] = wrap(array)
        # Keyword arguments come last in `values`.
        split = len(values) - len(self.names)
        kwargs = dict(zip(self.names, values[split:], strict=True))
        # Taken apart inside the frame, where a Parameter among the results has its value.
        (first, rest), updates = frames.isolate(lambda: self._results(self.fn(*values[:split], **kwargs)), frame)
        arrays, structure = first
        return arrays, (Updates(updates), structure, rest)

    def _results(self, result: Any) -> tuple[Any, Any]:
        """The outputs that are differentiated and the others, each taken apart."""
        if not self.has_aux:
            return take_apart(result), take_apart(())
        if not isinstance(result, tuple) or len(result) < 2:
            raise For("has_aux").error("the function must return at least two outputs", type(result).__name__)
        return take_apart(result[0]), take_apart(tuple(result[1:]))


@dataclass(frozen=True)
class Structure:
    """What a result looks like around its arrays: containers, and leaves that are not arrays."""

    tree: Any
    leaves: tuple[Any, ...]

    def fill(self, arrays: Sequence[jax.Array]) -> Any:
        """The result with these arrays in it, as Tensors."""
        remaining = iter(arrays)
        # Only arrays were taken out, so the tree has their places.
        leaves = [wrap(next(remaining)) if leaf is _ARRAY else leaf for leaf in self.leaves]
        return jax.tree.unflatten(self.tree, leaves)


_ARRAY = object()


def take_apart(result: Any) -> tuple[list[jax.Array], Structure]:
    """The arrays of a result, and the rest of it."""
    # Tensors are pytree nodes themselves, but here a Tensor is one leaf.
    leaves, tree = ordered_trees.flatten(result, is_leaf=lambda leaf: isinstance(leaf, Tensor))
    arrays = [
        leaf.array if isinstance(leaf, Tensor) else leaf for leaf in leaves if isinstance(leaf, Tensor | jax.Array)
    ]
    marked = tuple(_ARRAY if isinstance(leaf, Tensor | jax.Array) else leaf for leaf in leaves)
    return arrays, Structure(tree, marked)


class Updates(dict[Any, Any]):
    """Written variables and their values; a pytree whose structure keeps the order of writing."""


# Both pass a JAX transformation untouched: as structure, not as data.
jax.tree_util.register_pytree_node(Structure, lambda structure: ((), structure), lambda structure, _: structure)
jax.tree_util.register_pytree_node(
    Updates,
    lambda updates: (tuple(updates.values()), tuple(updates)),
    lambda keys, values: Updates(zip(keys, values, strict=True)),
)


class Pullback:
    """The outputs of a call, and the map from their cotangents to those of inputs and weights.

    Attributes:
        outputs: what the function returned; without the others, if only the first is differentiated.
        rest: the outputs that are not differentiated.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        _request_plan(call)
        self._parts: RankParts | None = None
        if call.weights:
            local_ranks.need()
            self._parts = parts_of_call(getattr(call.fn, "__name__", type(call.fn).__name__), call.values)
        with_parts: AbstractContextManager[Any] = nullcontext()
        if self._parts is not None:
            call.values = self._parts.values
            with_parts = self._parts.running(call.weights)
        first_reads = _begin_with_first_values(call)
        self._inputs, self._parameters = call.inputs, call.parameters
        self._slopes: dict[int, jax.Array] = {}
        with first_reads, with_parts:
            if call.by_integers:
                updates, structure, rest = self._run_with_slopes()
            else:
                # JAX's own message speaks of its operators.
                with _explained():
                    self._leaves, self._pull, (updates, structure, rest) = jax.vjp(
                        call.pure, self._inputs, self._parameters, has_aux=True
                    )
        # Writes happened in the function's frame; now they become those of the caller.
        frames.commit(updates)
        together = list if self._parts is None else self._parts.together
        self.outputs = structure.fill(together(self._leaves))
        self.rest = rest[1].fill(together(rest[0]))

    def _run_with_slopes(self) -> Any:
        """As without integers, but these, and integer outputs, are differentiated through their slopes."""
        arrays = [*self._inputs, *self._parameters]
        function, positions, smooth = _with_slopes(self.call, arrays, len(self._inputs))
        with _explained(), _integer_gradients.preserved():
            (self._leaves, self._slopes), pull, aux = jax.vjp(
                function, self._inputs, self._parameters, smooth, has_aux=True
            )
        # An outer derivative goes through these outputs, too.
        for place, slope in self._slopes.items():
            _integer_gradients.note(self._leaves[place], slope)

        def pull_integers(starts: tuple[Any, Any]) -> Any:
            by_input, by_parameter, by_slope = pull(starts)
            gradients = [*by_input, *by_parameter]
            for place, gradient in zip(positions, by_slope, strict=True):
                gradients[place] = _integer_gradients.as_integers(gradient, arrays[place].dtype)
                # Kept for a derivative of the derivative.
                _integer_gradients.note(gradients[place], gradient)
            return gradients[: len(by_input)], gradients[len(by_input) :]

        self._pull = pull_integers
        return aux

    def __call__(self, cotangents: Any = None) -> tuple[list[Tensor], dict[Parameter, Tensor]]:
        """Gradients of the inputs, and of the weights, for these cotangents of the outputs; ones when there are none."""
        if self._parts is not None:
            cotangents = self._parts.sensitivity(cotangents)
        starts = _matched(self._leaves, cotangents)
        # Only a plan needs to know where the backward pass begins.
        starts = loss_marked(self._leaves, starts) if frames.planning() else starts
        with _explained():
            by_input, by_parameter = self._pull(
                starts if not self.call.by_integers else (starts, self._of_slopes(cotangents))
            )
        arrays = [dense(g, a) for g, a in zip(by_input, self._inputs, strict=True)]
        if local_ranks.is_inside() and frames.compiling():
            arrays = trace_marks.apply_mark(arrays, RowsMark())
        inputs = list(map(wrap, arrays if self._parts is None else map(self._parts.rows, arrays)))
        for place, position in enumerate(self.call.positions):
            value = self.call.values[position]
            hooks = getattr(value, "static_part", None)
            if isinstance(hooks, Hooks) and hooks.array is value.array:
                inputs[place] = hooks.run(inputs[place])
        gradients = [dense(g, a) for g, a in zip(by_parameter, self._parameters, strict=True)]
        if self._parts is not None:
            gradients = self._parts.own(gradients)
        if frames.planning() or local_ranks.is_inside():
            gradients = trace_marks.apply_mark(gradients, _gradient_mark(self.call.weights))
        by_weight = dict(zip(self.call.weights, map(wrap, gradients), strict=True))
        return inputs, _completed(by_weight)

    def _of_slopes(self, cotangents: Any) -> dict[int, jax.Array]:
        """Cotangents of the slopes of integer outputs."""
        arrays = None if cotangents is None else take_apart(cotangents)[0]
        return {
            place: jnp.ones_like(slope) if arrays is None else jnp.asarray(arrays[place], slope.dtype)
            for place, slope in self._slopes.items()
        }


def _with_slopes(
    call: Call, arrays: list[jax.Array], num_inputs: int
) -> tuple[Callable[..., Any], list[int], list[jax.Array]]:
    """`Call.pure` as a function of inputs, weights and slopes, the places of integers among the arrays, and their slopes."""
    positions = [place for place, array in enumerate(arrays) if not is_inexact(array)]

    def function(
        inputs: Sequence[jax.Array], parameters: Sequence[jax.Array], slopes: Sequence[jax.Array]
    ) -> tuple[tuple[list[jax.Array], dict[int, jax.Array]], Any]:
        combined = [*inputs, *parameters]
        for place, slope in zip(positions, slopes, strict=True):
            # Not a tracer, so that code can read its value; a copy where one array is two inputs.
            is_second = any(arrays[place] is other for other in arrays[:place])
            combined[place] = jnp.array(arrays[place]) if is_second else arrays[place]
            _integer_gradients.note(combined[place], slope)
        outputs, aux = call.pure(combined[:num_inputs], combined[num_inputs:])
        slopes_of_outputs = {place: _integer_gradients.find(output) for place, output in enumerate(outputs)}
        # Outputs without a slope do not depend on an integer.
        return (outputs, {place: slope for place, slope in slopes_of_outputs.items() if slope is not None}), aux

    return function, positions, [_integer_gradients.smooth(arrays[place]) for place in positions]


def loss_marked(outputs: Sequence[jax.Array], cotangents: Sequence[Any]) -> list[Any]:
    """The same cotangents; the plan knows that these are where the backward pass starts."""
    marked = list(cotangents)
    positions = [number for number, output in enumerate(outputs) if is_inexact(output)]
    # Cotangents are marked together with their outputs, so that the plan knows which belong together.
    pairs = [*(outputs[position] for position in positions), *(marked[position] for position in positions)]
    for place, array in zip(positions, trace_marks.apply_mark(pairs, LossMark())[len(positions) :], strict=True):
        marked[place] = array
    return marked


def _completed(by_weight: dict[Parameter, Tensor]) -> dict[Parameter, Tensor]:
    """The gradients after their weights' hooks; in pipelines they are added to the Parameters that were made for their sums."""
    adds_up = frames.compiling() and context.snapshot().pipeline_stages > 1
    for weight in by_weight:
        hooks = weight.static_part
        if hooks is not None:
            by_weight[weight] = hooks.run(by_weight[weight])
        if adds_up and weight.gradient_sum is not None:
            total = weight.gradient_sum.array
            frames.write(weight.gradient_sum, total + by_weight[weight].array.astype(total.dtype))
    return by_weight


def _gradient_mark(weights: Sequence[Parameter]) -> GradientMark:
    """Says to the plan that these Parameters' gradients are finished."""
    return GradientMark(tuple(weight.name for weight in weights), tuple(weight.comm_fusion for weight in weights))


def pushforward(call: Call, directions: Sequence[jax.Array]) -> tuple[Any, Any, Any]:
    """Outputs of a call, their derivative in the direction of its inputs, and the outputs not differentiated."""
    inputs = call.inputs
    tangents = [_tangent(array, direction) for array, direction in zip(inputs, directions, strict=True)]

    def function(*arrays: jax.Array) -> tuple[list[jax.Array], Any]:
        return call.pure(arrays, [])

    try:
        if call.by_integers:
            outputs, slopes, (updates, structure, rest) = _pushed_by_integers(call, inputs, tangents, directions)
        else:
            # Some operators, such as collectives, have a reverse mode only.
            with forward_mode_refused():
                outputs, slopes, (updates, structure, rest) = jax.jvp(function, inputs, tangents, has_aux=True)
    except ReverseModeNeeded:
        outputs, slopes, (updates, structure, rest) = _pushed_in_reverse(function, inputs, tangents)
    frames.commit(updates)
    complete = [dense(slope, output) for slope, output in zip(slopes, outputs, strict=True)]
    return structure.fill(outputs), structure.fill(complete), rest[1].fill(rest[0])


def _pushed_by_integers(
    call: Call, inputs: list[jax.Array], tangents: list[Any], directions: Sequence[jax.Array]
) -> tuple[list[jax.Array], list[Any], Any]:
    """As `_pushed_in_reverse`, integers through their slopes, whose casts have a reverse mode only."""
    function, positions, smooth = _with_slopes(call, inputs, len(inputs))

    def of_slopes(*arrays: jax.Array) -> tuple[list[jax.Array], Any]:
        (outputs, slopes), aux = function(arrays[: len(inputs)], [], arrays[len(inputs) :])
        return [*outputs, *slopes.values()], (aux, [*slopes])

    steps = [jnp.asarray(directions[place], jnp.float64) for place in positions]
    with _explained(), _integer_gradients.preserved():
        values, pushed, (aux, sloped) = _pushed_in_reverse(of_slopes, [*inputs, *smooth], [*tangents, *steps])
    outputs = values[: len(values) - len(sloped)]
    for place, slope in zip(sloped, pushed[len(outputs) :], strict=True):
        pushed[place] = _integer_gradients.as_integers(slope, outputs[place].dtype)
    return outputs, pushed[: len(outputs)], aux


def _pushed_in_reverse(
    function: Callable[..., Any], inputs: Sequence[jax.Array], tangents: Sequence[Any]
) -> tuple[list[jax.Array], list[Any], Any]:
    """As `jax.jvp` with ``has_aux``, by the reverse mode of the reverse mode: that is linear, and its transpose is requested."""
    # Integers have no tangents.
    smooth = [number for number, array in enumerate(inputs) if is_inexact(array)]

    def of_smooth(*arrays: jax.Array) -> Any:
        full = list(inputs)
        for number, array in zip(smooth, arrays, strict=True):
            full[number] = array
        return function(*full)

    outputs, pull, aux = jax.vjp(of_smooth, *(inputs[number] for number in smooth), has_aux=True)
    # The pullback is linear, so the point at which it is transposed does not matter.
    starts = [jnp.zeros_like(output) for output in outputs if is_inexact(output)]

    def backward(starts: Sequence[jax.Array]) -> Any:
        # JAX wants float0 for integers.
        remaining = iter(starts)
        return pull([next(remaining) if is_inexact(output) else no_cotangent(output) for output in outputs])

    (result,) = jax.vjp(backward, starts)[1](tuple(tangents[number] for number in smooth))
    remaining = iter(result)
    return outputs, [next(remaining) if is_inexact(output) else no_cotangent(output) for output in outputs], aux


def no_cotangent(array: jax.Array) -> Any:
    """The derivative of integers."""
    return np.zeros(array.shape, jax.dtypes.float0)


def _request_plan(call: Call) -> None:
    """Where a process only makes plans (`sporax plan`), gradients of weights make a step one that is planned."""
    # A gradient of inputs alone is no training step.
    if not call.weights:
        return
    frames.note_training()
    settings = context.plan_settings_of_training()
    if settings is not None:
        frames.request_plan(settings)


def _begin_with_first_values(call: Call) -> AbstractContextManager[Any]:
    """Gradients of weights are training: ranks may have to begin with the same ones. Gives the context to differentiate in."""
    if not call.weights or not context.starts_from_first_rank():
        return nullcontext()
    initial_broadcast.request(call.weights)
    return initial_broadcast.reading()


def zeros_like(parameter: Parameter) -> Tensor:
    """The gradient of a Parameter nothing depends on."""
    return wrap(jnp.zeros(parameter.shape, parameter.dtype.np_dtype))


def _check_positions(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], positions: Sequence[int]
) -> None:
    count = len(args) + len(kwargs)
    wrong = next((position for position in positions if position >= count), None)
    if wrong is None:
        return
    # Too few arguments for the function itself is the first thing to say.
    try:
        inspect.signature(getattr(fn, "construct", fn)).bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise SporaxTypeError(f"For 'grad', the function '{name}' cannot be called like this: {error}.") from None
    raise SporaxIndexError(f"For 'grad', 'grad_position' is {wrong}, but the call has {count} arguments.")


def is_differentiable(value: Any) -> bool:
    """Whether an argument has a gradient: Tensors, and sparse matrices (the gradient of their values, as in PYNATIVE_MODE)."""
    return isinstance(value, Tensor | COOTensor | CSRTensor) and not is_number(value)


def is_inexact(array: Any) -> bool:
    """Whether JAX differentiates by it."""
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def _matched(outputs: Sequence[jax.Array], cotangents: Any) -> list[Any]:
    """Cotangents in the dtypes JAX wants: those of integers are of no dtype."""
    if isinstance(cotangents, int | float):
        cotangents = wrap(jnp.asarray(cotangents))
    leaves = [None] * len(outputs) if cotangents is None else take_apart(cotangents)[0]
    if len(leaves) != len(outputs):
        raise For("grad").type_error(f"the sensitivities must match the {len(outputs)} outputs", len(leaves))

    def one(output: jax.Array, value: Any) -> Any:
        # One element is one number, in whatever shape: losses of () are called with sensitivities of (1,), and the reverse.
        if value is not None and value.size == output.size == 1:
            value = value.reshape(output.shape)
        if value is not None and value.shape != output.shape:
            raise For("grad").error(f"the sensitivity must have the output's shape {output.shape}", value.shape)
        if not is_inexact(output):
            # JAX wants cotangents without a dtype for integers.
            return np.zeros(output.shape, jax.dtypes.float0)
        return jnp.ones_like(output) if value is None else jnp.asarray(value, output.dtype)

    return [one(output, value) for output, value in zip(outputs, leaves, strict=True)]


def _tangent(array: jax.Array, direction: jax.Array) -> Any:
    return direction.astype(array.dtype) if is_inexact(array) else np.zeros(array.shape, jax.dtypes.float0)


def dense(gradient: Any, like: jax.Array) -> jax.Array:
    """Integers have no tangent space in JAX; they get zeros of their dtype."""
    return jnp.zeros(like.shape, like.dtype) if gradient.dtype == jax.dtypes.float0 else gradient


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        # Other errors are not about loops.
        if not str(error).startswith("Reverse-mode differentiation does not work for lax.while_loop"):
            raise
        raise SporaxRuntimeError(
            "For 'while_loop', the gradient of a loop inside a compiled step needs a number of rounds that is known, "
            "but its condition depends on values. Use ops.fori_loop or ops.scan, or run in PYNATIVE_MODE without @jit."
        ) from None
