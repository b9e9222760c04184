"""Recurrent layers: RNN, LSTM and GRU, stacked, in both directions, over sequences of unequal length; and their cells.

Weights are as in MindSpore: rows of `weight_ih` (gates · hidden, input) and `weight_hh` (gates · hidden, hidden) hold the
gates of the LSTM in the order input, forget, candidate, output, and those of the GRU in the order reset, update, new.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base.errors import For, SporaxTypeError, SporaxValueError
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common import DType, Parameter, ParameterTuple, Tensor, dtypes
from sporax.mindspore.common.initializer import Uniform, initializer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.basic import Dropout
from sporax.mindspore.nn.cell import Layer
from sporax.mindspore.ops._core import Array, operator, taking

State = tuple[Array, ...]


def _elman(activation: Callable[[Array], Array]) -> Callable[[Array, Array, State], State]:
    return lambda projected, recalled, state: (activation(projected + recalled),)


def _lstm(projected: Array, recalled: Array, state: State) -> State:
    enter, forget, candidate, out = jnp.split(projected + recalled, 4, -1)
    memory = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
    return jax.nn.sigmoid(out) * jnp.tanh(memory), memory


def _gru(projected: Array, recalled: Array, state: State) -> State:
    input_reset, input_update, input_new = jnp.split(projected, 3, -1)
    reset, update, new = jnp.split(recalled, 3, -1)
    # Reset acts after the product, as in MindSpore and cuDNN.
    candidate = jnp.tanh(input_new + jax.nn.sigmoid(input_reset + reset) * new)
    return (candidate + jax.nn.sigmoid(input_update + update) * (state[0] - candidate),)


_STEPS = {"tanh": _elman(jnp.tanh), "relu": _elman(jax.nn.relu), "lstm": _lstm, "gru": _gru}
_GATES = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3}


def _affine(x: Array, weight: Array, bias: Array | None) -> Array:
    result = x @ weight.astype(x.dtype).T
    return result if bias is None else result + bias.astype(x.dtype)


@operator(function="")
def recurrent_step(
    x: Array, state: Array, weight_ih: Array, weight_hh: Array, bias_ih: Array | None, bias_hh: Array | None, mode: str
) -> tuple[Array, ...]:
    """The next state. `x`: (N, input); `state`: a tuple of (N, hidden)."""
    projected, recalled = _affine(x, weight_ih, bias_ih), _affine(state[0], weight_hh, bias_hh)
    return _STEPS[mode](projected, recalled, tuple(state))


@operator(function="")
def recur(
    x: Array,
    state: Array,
    lengths: Array | None,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None,
    bias_hh: Array | None,
    mode: str,
    backwards: bool,
) -> tuple[Array, ...]:
    """All outputs (T, N, hidden) and the last state.

    Args:
        x: (T, N, input).
        state: tuple of (N, hidden), the state before the first step.
        lengths: (N,), how many steps of each sequence count; outputs are zero and states stay from there on.
        backwards: walk from the last step that counts to the first.
    """
    # int32, the dtype of lengths.
    moments = jnp.arange(x.shape[0], dtype=jnp.int32)

    def advance(before: State, row: tuple[Array, Array]) -> tuple[State, Array]:
        projected, moment = row
        after = _STEPS[mode](projected, _affine(before[0], weight_hh, bias_hh), before)
        if lengths is None:
            return after, after[0]
        counts = (moment < lengths)[:, None]
        # Beyond its length a sequence keeps its state.
        states = tuple(jnp.where(counts, new, old) for new, old in zip(after, before, strict=True))
        return states, jnp.where(counts, after[0], jnp.zeros((), x.dtype))

    # Going backwards, the steps beyond a sequence's length come first and change nothing.
    # The inputs' product needs no state, so all steps are computed at once.
    rows = _affine(x, weight_ih, bias_ih), moments
    last, outputs = jax.lax.scan(advance, tuple(state), rows, reverse=backwards)
    return (outputs, *last)


class _Recurrent(Layer):
    """Stack of recurrent layers; see `LSTM`."""

    input_size: int = setting(argument.positive_int)
    hidden_size: int = setting(argument.positive_int)
    num_layers: int = setting(argument.positive_int, default=1)
    has_bias: bool = setting(argument.boolean, default=True)
    batch_first: bool = setting(argument.boolean, default=False)
    dropout: float = setting(argument.exactly_float, default=0.0, low=0.0, high=1.0, ends="[)")
    bidirectional: bool = setting(argument.boolean, default=False)
    dtype: DType = setting(default=dtypes.float32, attribute=False)

    _in_repr = "input_size hidden_size num_layers bidirectional"
    mode = "tanh"

    def _prepare(self, dtype: DType) -> None:
        name = type(self).__name__
        if self.dropout > 0 and self.num_layers == 1:
            warnings.warn(f"For '{name}', 'dropout' acts between layers, and 'num_layers' is 1: it has no effect.")
        self.dropout_op = Dropout(p=self.dropout)
        self._make_parameters(dtype)

    def _make_parameters(self, dtype: DType) -> None:
        rows = _GATES[self.mode] * self.hidden_size
        # MindSpore's range of first weights.
        recipe = Uniform(1 / math.sqrt(self.hidden_size))
        parameters: dict[str, list[Parameter]] = {"weight_ih": [], "weight_hh": [], "bias_ih": [], "bias_hh": []}
        for layer in range(self.num_layers):
            width = self.input_size if layer == 0 else self.hidden_size * self._directions
            # The forward weights come first in checkpoints.
            for suffix in ("", "_reverse")[: self._directions]:
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, self.hidden_size)}
                if self.has_bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                for kind, shape in shapes.items():
                    value = initializer(recipe, shape, dtype)
                    parameters[kind].append(Parameter(value, name=f"{kind}_l{layer}{suffix}"))
        self.w_ih_list = ParameterTuple(parameters["weight_ih"])
        self.w_hh_list = ParameterTuple(parameters["weight_hh"])
        self.b_ih_list = ParameterTuple(parameters["bias_ih"])
        self.b_hh_list = ParameterTuple(parameters["bias_hh"])

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def construct(self, x: Tensor, hx: Any = None, seq_length: Tensor | None = None) -> tuple[Any, Any]:
        """Outputs and last state.

        Args:
            x: (T, N, input_size), or (N, T, input_size) with batch_first.
            hx: first state (num_layers · directions, N, hidden_size), for an LSTM a pair of them; zeros by default.
            seq_length: (N,), lengths of the sequences; outputs after them are zero.

        Raises:
            SporaxTypeError, SporaxValueError: shapes or kinds that do not fit.
        """
        x = ops.transpose(x, (1, 0, 2)) if self.batch_first else x
        states = self._first_states(x, hx)
        if seq_length is not None and seq_length.shape != (x.shape[1],):
            raise SporaxValueError(
                f"For '{type(self).__name__}', 'seq_length' must have one element for each of the {x.shape[1]} sequences, "
                f"but its shape is {seq_length.shape}."
            )
        last: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            halves = []
            for direction in range(self._directions):
                index = layer * self._directions + direction
                first = tuple(state[index] for state in states)
                outputs, *after = recur(x, first, seq_length, *self._weights(index), self.mode, direction == 1)
                halves.append(outputs)
                last.append(tuple(after))
            x = halves[0] if len(halves) == 1 else ops.concat(tuple(halves), 2)
            # Between layers only: the last output stays.
            if self.dropout > 0 and layer < self.num_layers - 1:
                x = self.dropout_op(x)
        final = tuple(ops.stack(parts) for parts in zip(*last, strict=True))
        x = ops.transpose(x, (1, 0, 2)) if self.batch_first else x
        return x, final if self.mode == "lstm" else final[0]

    def _weights(self, index: int) -> tuple[Any, ...]:
        biases = (self.b_ih_list[index], self.b_hh_list[index]) if self.has_bias else (None, None)
        return self.w_ih_list[index], self.w_hh_list[index], *biases

    def _first_states(self, x: Tensor, hx: Any) -> tuple[Tensor, ...]:
        name, count = type(self).__name__, 2 if self.mode == "lstm" else 1
        if x.ndim != 3 or x.shape[-1] != self.input_size:
            raise For(name).error(f"the input must be (T, N, {self.input_size}), but its shape is {x.shape}")
        shape = (self.num_layers * self._directions, x.shape[1], self.hidden_size)
        if hx is None:
            return (ops.zeros(shape, x.dtype),) * count
        states = hx if isinstance(hx, tuple) else (hx,)
        if len(states) != count or not all(isinstance(state, Tensor) for state in states):
            raise SporaxTypeError(
                f"For '{name}', 'hx' must be {'a tuple of two Tensors' if count == 2 else 'a Tensor'}, but got {type(hx)}."
            )
        for state in states:
            For(name).refuse(state.shape != shape, f"'hx' must have shape {shape}", state.shape)
        return states


class LSTM(_Recurrent):
    """Stacked long short-term memory (Hochreiter & Schmidhuber 1997).

    Args:
        input_size: length of an input vector.
        hidden_size: length of the hidden state.
        num_layers: number of layers, each of which reads the outputs of the one before.
        has_bias: whether there are biases.
        batch_first: inputs and outputs are (N, T, …) instead of (T, N, …).
        dropout: probability of an element to be zeroed between two layers, in [0, 1).
        bidirectional: a second set of weights reads the sequence backwards; outputs are joined.
        dtype: element type of the Parameters.

    Raises:
        SporaxTypeError, SporaxValueError: no such settings.

    Example:
        >>> outputs, (h, c) = LSTM(10, 16)(Tensor(np.ones((5, 3, 10), np.float32)))
    """

    mode = "lstm"


class GRU(_Recurrent):
    """Stacked gated recurrent units (Cho et al. 2014); arguments as `LSTM`."""

    mode = "gru"


class RNN(_Recurrent):
    """Stacked Elman networks; arguments as `LSTM`, and `nonlinearity`, ``"tanh"`` or ``"relu"``, after `num_layers`."""

    @taking(_Recurrent.__init__, before="has_bias")
    def __init__(self, *, nonlinearity: str = "tanh", **settings: Any) -> None:
        # Before the base class, which makes weights by the mode.
        object.__setattr__(self, "mode", argument.word("RNN", "nonlinearity", nonlinearity, ("tanh", "relu")))
        super().__init__(**settings)


class RNNCellBase(Layer):
    """Weights of one step of one layer; base of cells that users write, too (`mindspore.nn.layer.rnn_cells`)."""

    input_size: int = setting(argument.positive_int)
    hidden_size: int = setting(argument.positive_int)
    has_bias: bool = setting(argument.boolean)
    num_chunks: int = setting(
        None, "gates, whose weights stand below each other; the others are those of `LSTMCell`.", attribute=False
    )
    dtype: DType = setting(default=dtypes.float32, attribute=False)

    def _prepare(self, num_chunks: int, dtype: DType) -> None:
        rows = num_chunks * self.hidden_size
        recipe = Uniform(1 / math.sqrt(self.hidden_size))
        self.weight_ih = Parameter(initializer(recipe, (rows, self.input_size), dtype), name="weight_ih")
        self.weight_hh = Parameter(initializer(recipe, (rows, self.hidden_size), dtype), name="weight_hh")
        self.bias_ih = Parameter(initializer(recipe, (rows,), dtype), name="bias_ih") if self.has_bias else None
        self.bias_hh = Parameter(initializer(recipe, (rows,), dtype), name="bias_hh") if self.has_bias else None


class _RecurrentCell(RNNCellBase):
    """One step of one layer; see `LSTMCell`."""

    _in_repr = "input_size hidden_size"
    mode = "tanh"

    def __init__(self, input_size: int, hidden_size: int, has_bias: bool = True, dtype: DType = dtypes.float32) -> None:
        super().__init__(input_size, hidden_size, has_bias, _GATES[self.mode], dtype)

    def construct(self, x: Tensor, hx: Any) -> Any:
        """The next state. `x`: (N, input_size); `hx`: (N, hidden_size), for an LSTM a pair of them."""
        states = hx if isinstance(hx, tuple) else (hx,)
        name, count = type(self).__name__, 2 if self.mode == "lstm" else 1
        if len(states) != count or not all(isinstance(item, Tensor) for item in (x, *states)):
            raise SporaxTypeError(
                f"For '{name}', 'x' must be a Tensor and 'hx' {'a tuple of two' if count == 2 else 'another'}, "
                f"but got {type(x).__name__} and {type(hx).__name__}."
            )
        if x.shape[-1] != self.input_size or any(state.shape[-1] != self.hidden_size for state in states):
            raise SporaxValueError(
                f"For '{name}', the last dims of 'x' and 'hx' must be {self.input_size} and {self.hidden_size}, "
                f"but the shapes are {x.shape} and {[state.shape for state in states]}."
            )
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        after = recurrent_step(x, states, *weights, self.mode)
        return after if count == 2 else after[0]


class LSTMCell(_RecurrentCell):
    """One step of a long short-term memory: (x, (h, c)) to (h, c); arguments as `LSTM`."""

    mode = "lstm"


class GRUCell(_RecurrentCell):
    """One step of gated recurrent units: (x, h) to h; arguments as `LSTMCell`."""

    mode = "gru"


class RNNCell(_RecurrentCell):
    """One step of an Elman network: (x, h) to h; as `LSTMCell`, and `nonlinearity`, ``"tanh"`` or ``"relu"``."""

    @taking(_RecurrentCell.__init__, before="dtype")
    def __init__(self, *, nonlinearity: str = "tanh", **settings: Any) -> None:
        super().__init__(**settings)
        self.mode = argument.word("RNNCell", "nonlinearity", nonlinearity, ("tanh", "relu"))
