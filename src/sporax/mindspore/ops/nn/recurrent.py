"""Recurrent networks whose weights come as arguments: `LSTM`, and `DynamicRNN` and `DynamicGRUV2` of Ascend.

The layers of `sporax.mindspore.nn.recurrent` keep Parameters of their own; these operators are what scripts written for one
device target call directly. `LSTM` takes all weights in one flat tensor, in the order of MindSpore's CPU kernel: the matrices
of the inputs of all layers and directions, then those of the states, then projections, then biases. The other two give the
gates of every step as well, which Ascend keeps for its derivative.

Reference: Hochreiter and Schmidhuber 1997 (LSTM), Cho et al. 2014 (GRU).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sporax.base.errors import For, SporaxValueError
from sporax.mindspore.common import seed as seeds
from sporax.mindspore.common.tensor import wrap
from sporax.mindspore.ops._core import PRIMITIVES, Array, Primitive, check, operator, taking

# Gates whose matrices are stacked in one.
_LSTM_GATES = 4
# As above: reset, update, new.
_GRU_GATES = 3


@operator("LSTM", function="")
def _lstm(
    input: Array,
    h: Array,
    c: Array,
    w: Array,
    key: Array,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    has_bias: bool,
    bidirectional: bool,
    dropout: float,
    proj_size: int = 0,
) -> tuple[Array, Array, Array, Array, Array]:
    """Output (T, N, directions · size), last states, and two tensors without meaning here."""
    directions = 2 if bidirectional else 1
    _check_lstm(input, h, c, input_size, hidden_size, num_layers * directions, proj_size)
    if num_layers > 1 and input_size != (proj_size or hidden_size) * directions:
        raise SporaxValueError(
            "For 'LSTM', with several layers 'input_size' must be the size of a layer's output, but got "
            f"{input_size} and {(proj_size or hidden_size) * directions}."
        )
    cells = _unpacked(w, num_layers * directions, input_size, hidden_size, proj_size, has_bias)
    x, states = input, []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            # MindSpore's order: directions within layers.
            place = layer * directions + direction
            output, *state = _one_direction(x, h[place], c[place], cells[place], reverse=direction == 1)
            outputs.append(output)
            states.append(state)
        x = jnp.concatenate(outputs, -1)
        if dropout > 0 and layer + 1 < num_layers:
            # A key per layer from one draw.
            remaining = jax.random.bernoulli(jax.random.fold_in(key, layer), 1 - dropout, x.shape)
            x = jnp.where(remaining, x / (1 - dropout), jnp.zeros((), x.dtype))
    last_h, last_c = (jnp.stack(parts) for parts in zip(*states, strict=True))
    # MindSpore keeps a workspace and a state for its backward kernel here.
    nothing = jnp.zeros((1, 1), x.dtype)
    return x, last_h, last_c, nothing, nothing


def _check_lstm(
    x: Array, h: Array, c: Array, input_size: int, hidden_size: int, num_cells: int, proj_size: int
) -> None:
    check.floating("LSTM", input=x, h=h, c=c)
    check.rank("LSTM", 3, input=x, h=h, c=c)
    For("LSTM").refuse(x.shape[2] != input_size, f"the last dim of 'input' must be {input_size}", x.shape[2])
    for name, state, size in (("h", h, proj_size or hidden_size), ("c", c, hidden_size)):
        if state.shape != (num_cells, x.shape[1], size):
            expected = (num_cells, x.shape[1], size)
            raise SporaxValueError(f"For 'LSTM', the shape of '{name}' must be {expected}, but got {state.shape}.")


def _unpacked(
    w: Array, num_cells: int, input_size: int, hidden_size: int, proj_size: int, has_bias: bool
) -> list[tuple[Array, Array, Array | None, Array]]:
    """Per layer and direction: matrices of input and state, projection, bias."""
    rows, size = _LSTM_GATES * hidden_size, proj_size or hidden_size
    # All matrices of one kind, then of the next: the order of MindSpore's CPU kernel.
    shapes = [(num_cells, rows, input_size), (num_cells, rows, size), (num_cells, proj_size, hidden_size)]
    biases = [(num_cells, rows)] * has_bias
    expected = sum(map(np.prod, [*shapes, *biases]))
    if has_bias and num_cells == 1 and w.size == expected + rows:  # as for GPUs: a bias of the input, one of the state
        biases, expected = biases * 2, w.size
    For("LSTM").refuse(w.size != expected, f"'w' must have {expected} elements, but got {w.size}: shape {w.shape}")
    flat, parts = w.reshape(-1), []
    for shape in [*shapes, *biases]:
        parts.append(flat[: np.prod(shape)].reshape(shape))
        flat = flat[np.prod(shape) :]
    of_input, of_state, projection, *rest = parts
    # One bias or two: only their sum counts.
    bias = sum(rest, jnp.zeros((num_cells, rows), w.dtype))
    return [
        (of_input[place], of_state[place], projection[place] if proj_size else None, bias[place])
        for place in range(num_cells)
    ]


def _one_direction(
    x: Array, h: Array, c: Array, weights: tuple[Array, Array, Array | None, Array], *, reverse: bool
) -> tuple[Array, Array, Array]:
    projection = None if weights[2] is None else weights[2].astype(x.dtype)
    of_input, of_state, bias = (array.astype(x.dtype) for array in (weights[0], weights[1], weights[3]))

    def advance(state: tuple[Array, Array], row: Array) -> tuple[tuple[Array, Array], Array]:
        # The order of gates of MindSpore's kernel.
        enter, forget, candidate, out = jnp.split(row + state[0] @ of_state.T, _LSTM_GATES, -1)
        memory = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
        hidden = jax.nn.sigmoid(out) * jnp.tanh(memory)
        hidden = hidden if projection is None else hidden @ projection.T
        return (hidden, memory), hidden

    # The inputs' products for all steps at once: only the state's product needs the loop.
    state, outputs = jax.lax.scan(advance, (h, c), x @ of_input.T + bias, reverse=reverse)
    return outputs, *state


class LSTM(Primitive):
    """Long short-term memory over a sequence, all weights in one tensor.

    Args:
        input_size, hidden_size, num_layers: sizes, positive.
        has_bias: whether `w` holds biases: one of a gate, or, for one layer in one direction, one of input and one of state.
        bidirectional: a second row of cells walks backwards.
        dropout: probability of an element between layers to be zeroed.
        proj_size: size of the projected state; 0 for no projection.

    Inputs: ``input`` (T, N, input_size), ``h`` and ``c`` (layers · directions, N, size), ``w`` of any shape, whose elements
    are, of all layers and directions, matrices of the inputs (4·hidden, input), of the states (4·hidden, size),
    projections (proj, hidden), biases; gates in the order input, forget, candidate, output.

    Outputs: output, last h, last c, and two tensors (1, 1) of zeros where MindSpore has working memory of its kernels.
    """

    operator = _lstm
    attribute_names = _lstm.parameters.attributes
    defaults = {"proj_size": 0}

    @taking(_lstm.kernel, "input h c w key")
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        sizes = {name: settings[name] for name in ("input_size", "hidden_size", "num_layers")}
        hidden_size, dropout, proj_size = settings["hidden_size"], settings["dropout"], settings["proj_size"]
        for name, size in sizes.items():
            For("LSTM").refuse(size <= 0, f"'{name}' must be positive", size)
        For("LSTM").typed("dropout", dropout, "a float", float)
        For("LSTM").refuse(not 0 <= dropout <= 1, "'dropout' must be in [0, 1]", dropout)
        # A projection must make the state smaller.
        For("LSTM").refuse(not 0 <= proj_size < hidden_size, f"'proj_size' must be in [0, {hidden_size})", proj_size)

    def __call__(self, input: Any, h: Any, c: Any, w: Any) -> Any:
        """Run the network; see the class."""
        # The key is an operand, so each run of a compiled step drops other elements.
        return super().__call__(input, h, c, w, wrap(seeds.operators.next_key()))


PRIMITIVES["LSTM"] = LSTM


@operator(
    "DynamicRNN(cell_type, direction, cell_depth, use_peephole, keep_prob, cell_clip, num_proj, time_major, activation, "
    "forget_bias, is_training)",
    function="",
)
def dynamic_rnn(
    x: Array,
    w: Array,
    b: Array,
    seq_length: None,
    init_h: Array,
    init_c: Array,
    cell_type: Literal["LSTM"] = "LSTM",
    direction: Literal["UNIDIRECTIONAL"] = "UNIDIRECTIONAL",
    cell_depth: int = 1,
    use_peephole: bool = False,
    keep_prob: float = 1.0,
    cell_clip: float = -1.0,
    num_proj: int = 0,
    time_major: bool = True,
    activation: Literal["tanh"] = "tanh",
    forget_bias: float = 0.0,
    is_training: bool = True,
) -> tuple[Array, ...]:
    """LSTM that also gives its gates, all of them (T, N, hidden): y, h, c, i, j, f, o, tanh(c).

    `x`: (T, N, input); `w`: (input + hidden, 4·hidden), gates in the order input, candidate, forget, output; `b`:
    (4·hidden,); `init_h`, `init_c`: (1, N, hidden). The dtype of h is that of `x`, of the others that of `b`. Floating
    dtypes other than Float16 are accepted too.

    Args:
        cell_clip: memories are kept between -cell_clip and cell_clip, if it is positive.
        forget_bias: added to the forget gate before its sigmoid.
        cell_depth, use_peephole, keep_prob, num_proj, time_major: only as they are by default.
        is_training: changes nothing.
    """
    # Settings that Ascend's kernel has but that change nothing are fixed.
    fixed = {"cell_depth": (cell_depth, 1), "use_peephole": (use_peephole, False), "keep_prob": (keep_prob, 1.0)}
    check.only("DynamicRNN", **fixed, num_proj=(num_proj, 0), time_major=(time_major, True))
    check.floating("DynamicRNN", x=x, w=w, b=b, init_h=init_h, init_c=init_c)
    check.rank("DynamicRNN", 3, x=x, init_h=init_h, init_c=init_c)
    size = init_h.shape[2]
    shapes = {"w": (w, (x.shape[2] + size, _LSTM_GATES * size)), "b": (b, (_LSTM_GATES * size,))}
    _expect("DynamicRNN", **shapes, init_h=(init_h, (1, x.shape[1], size)), init_c=(init_c, (1, x.shape[1], size)))
    # Wide enough for inputs and weights, which may differ.
    dtype = jnp.promote_types(x.dtype, b.dtype)

    def advance(state: tuple[Array, Array], row: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        gates = row + state[0] @ w[x.shape[2] :].astype(dtype)
        # Another order of gates than LSTM's.
        enter, candidate, forget, out = jnp.split(gates, _LSTM_GATES, -1)
        enter, candidate, out = jax.nn.sigmoid(enter), jnp.tanh(candidate), jax.nn.sigmoid(out)
        forget = jax.nn.sigmoid(forget + forget_bias)
        memory = forget * state[1] + enter * candidate
        memory = jnp.clip(memory, -cell_clip, cell_clip) if cell_clip > 0 else memory
        hidden = out * jnp.tanh(memory)
        return (hidden, memory), (hidden, memory, enter, candidate, forget, out, jnp.tanh(memory))

    rows = x.astype(dtype) @ w[: x.shape[2]].astype(dtype) + b.astype(dtype)
    _, (hidden, *others) = jax.lax.scan(advance, (init_h[0].astype(dtype), init_c[0].astype(dtype)), rows)
    # y in the dtype of the bias and h in that of the input, as documented.
    return hidden.astype(b.dtype), hidden.astype(x.dtype), *(gate.astype(b.dtype) for gate in others)


@operator(
    "DynamicGRUV2(direction, cell_depth, keep_prob, cell_clip, num_proj, time_major, activation, gate_order, reset_after, "
    "is_training)",
    function="",
)
def dynamic_gru_v2(
    x: Array,
    weight_input: Array,
    weight_hidden: Array,
    bias_input: Array | None,
    bias_hidden: Array | None,
    seq_length: None,
    init_h: Array,
    direction: Literal["UNIDIRECTIONAL"] = "UNIDIRECTIONAL",
    cell_depth: int = 1,
    keep_prob: float = 1.0,
    cell_clip: float = -1.0,
    num_proj: int = 0,
    time_major: bool = True,
    activation: Literal["tanh"] = "tanh",
    gate_order: Literal["rzh", "zrh"] = "rzh",
    reset_after: bool = True,
    is_training: bool = True,
) -> tuple[Array, ...]:
    """GRU that also gives its gates, all of them (T, N, hidden): y, h, update, reset, new, and what the state adds to new.

    `x`: (T, N, input); `weight_input`: (input, 3·hidden); `weight_hidden`: (hidden, 3·hidden); biases (3·hidden,) or None;
    `init_h`: (N, hidden). Floating dtypes other than Float16 are accepted too.

    Args:
        gate_order: ``"rzh"``: reset, update, new; ``"zrh"``: update, reset, new.
        reset_after: the reset gate multiplies the product of state and matrix, not the state.
        cell_depth, keep_prob, cell_clip, num_proj, time_major: only as they are by default.
        is_training: changes nothing.
    """
    fixed = {"cell_depth": (cell_depth, 1), "keep_prob": (keep_prob, 1.0), "cell_clip": (cell_clip, -1.0)}
    check.only("DynamicGRUV2", **fixed, num_proj=(num_proj, 0), time_major=(time_major, True))
    check.floating("DynamicGRUV2", x=x, weight_input=weight_input, weight_hidden=weight_hidden, init_h=init_h)
    check.rank("DynamicGRUV2", 3, x=x)
    check.rank("DynamicGRUV2", 2, init_h=init_h)
    size = init_h.shape[1]
    shapes = {
        "weight_input": (weight_input, (x.shape[2], _GRU_GATES * size)),
        "weight_hidden": (weight_hidden, (size, _GRU_GATES * size)),
        "init_h": (init_h, (x.shape[1], size)),
    }
    optional_biases = {"bias_input": bias_input, "bias_hidden": bias_hidden}
    biases = {name: (bias, (_GRU_GATES * size,)) for name, bias in optional_biases.items() if bias is not None}
    _expect("DynamicGRUV2", **shapes, **biases)
    # Without biases the state says the dtype.
    result_dtype = next((bias.dtype for bias, _ in biases.values()), init_h.dtype)
    dtype = jnp.promote_types(x.dtype, result_dtype)
    zeros = jnp.zeros(_GRU_GATES * size, dtype)
    of_input, of_hidden = (zeros if bias is None else bias.astype(dtype) for bias in optional_biases.values())
    # The reset gate before or after the product are two formulas of GRU.
    step = _gru_step(weight_hidden.astype(dtype), of_hidden, gate_order, reset_after)
    rows = x.astype(dtype) @ weight_input.astype(dtype) + of_input
    _, (hidden, *gates) = jax.lax.scan(step, init_h.astype(dtype), rows)
    return tuple(state.astype(result_dtype) for state in (hidden, hidden, *gates))


def _gru_step(weight: Array, bias: Array, gate_order: str, reset_after: bool) -> Callable[[Array, Array], Any]:
    def advance(state: Array, row: Array) -> tuple[Array, tuple[Array, ...]]:
        recalled = state @ weight + bias
        input_r, input_z, input_new = jnp.split(row, _GRU_GATES, -1)
        r, z, new = jnp.split(recalled, _GRU_GATES, -1)
        reset, update = jax.nn.sigmoid(input_r + r), jax.nn.sigmoid(input_z + z)
        # "zrh" only exchanges the names of two gates.
        if gate_order == "zrh":
            reset, update = update, reset
        if not reset_after:
            # Columns of "new" alone: the other gates are computed already.
            columns = 2 * state.shape[-1]
            new = (reset * state) @ weight[:, columns:] + bias[columns:]
        candidate = jnp.tanh(input_new + (reset * new if reset_after else new))
        after = (1 - update) * candidate + update * state
        return after, (after, update, reset, candidate, new)

    return advance


def _expect(operator_name: str, **tensors: tuple[Array, tuple[int, ...]]) -> None:
    for name, (array, shape) in tensors.items():
        For(operator_name).refuse(array.shape != shape, f"the shape of '{name}' must be {shape}", array.shape)
