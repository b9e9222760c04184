"""THOR: momentum with gradients that the inverses of two matrices per layer precondition.

Method: natural gradient descent with Kronecker factors (Martens & Grosse 2015, K-FAC), whose inverses are taken of diagonal
blocks only, and only now and then (Chen et al. 2021, THOR). The layers of `sporax.mindspore.nn.second_order` keep the factors A
and G; here is what an optimizer does with them, in the formulas of MindSpore's version for GPUs, in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sporax.base import update_rules
from sporax.base.errors import For, SporaxTypeError
from sporax.mindspore.common import Parameter, ParameterTuple, Tensor, dtypes, wrap
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.grad_reducer import ReducerOfMode, reduces
from sporax.mindspore.nn.normalization import LayerNorm
from sporax.mindspore.nn.optim._optimizer import DeclaredOptimizer, Optimizer, _rate_at
from sporax.mindspore.nn.second_order import Conv2dThor, ConvertNetUtils, DenseThor, EmbeddingLookupThor, EmbeddingThor
from sporax.mindspore.ops._core.parameters import taking
from sporax.runtime.state import frames

_BLOCK_SIZE = 128
"""Rows of the diagonal blocks that are inverted: MindSpore's choice, by the width of its kernels."""
_CLIP_NORM = 1.0
"""Norm that `enable_clip_grad` shortens each gradient to."""
_FUSION_TYPES = {"matrix_a": 6, "matrix_g": 8}
"""Fusion ids of the reductions between ranks, MindSpore's."""

Inverses = tuple[jax.Array, jax.Array]
_every: Callable[[Parameter], bool] = lambda x: True  # noqa: E731 - as MindSpore shows it


@dataclass(frozen=True, slots=True)
class _Place:
    """What a Parameter is in its layer.

    Attributes:
        layer: the layer with statistics, for its weight; None for others.
        number: its number among those layers.
        normalized: whether it belongs to a `LayerNorm`.
    """

    layer: Any = None
    number: int = -1
    normalized: bool = False


class ThorGpu(DeclaredOptimizer):
    r"""THOR's update; `thor` makes one.

    With A and G of a layer, λ = damping, s = loss_scale and b = batch_size, a weight's gradient g becomes
    (b²/s² · G + √λ I)⁻¹ g (A + √λ I)⁻¹, with inverses of diagonal blocks of 128. In convolutions λ is divided by the number of
    positions p behind A (q behind G) and both inverses by √p. An embedding table's gradient becomes
    g (b²/s² · G + √λ I)⁻¹ with row i divided by Aᵢ / b + √λ. That of a `LayerNorm` becomes g / (g²/b + √λ); others stay. Then
    v = momentum · v + g; p = p - learning_rate · v. In data-parallel modes the inverses are averaged over the ranks.

    Args:
        net: a network that `ConvertNetUtils` has converted; for it and the other arguments see `thor`.

    Attributes:
        thor: whether the inverses are renewed in this step; otherwise those of an earlier one are used.
        matrix_a, matrix_g: the inverses, (blocks, size, size), or (vocab_size,) and (embedding_size, embedding_size).
    """

    slots = ("moments",)

    def __init__(
        self,
        net: Cell,
        learning_rate: Any,
        damping: Any,
        momentum: float,
        weight_decay: float = 0.0,
        loss_scale: float = 1.0,
        batch_size: int = 32,
        use_nesterov: bool = False,
        decay_filter: Callable[[Parameter], bool] = _every,
        split_indices: list[int] | None = None,
        enable_clip_grad: bool = False,
        frequency: int = 100,
    ) -> None:
        _check(learning_rate, damping, momentum, frequency)
        Optimizer.__init__(self, learning_rate, net.trainable_params(), weight_decay, loss_scale)
        self.use_nesterov = argument.boolean("thor", "use_nesterov", use_nesterov)
        self.enable_clip_grad = argument.boolean("thor", "enable_clip_grad", enable_clip_grad)
        self.batch_size = argument.positive_int("thor", "batch_size", batch_size)
        self.frequency = frequency
        self.thor = True
        self.add_number("momentum", momentum)
        self.cov_step = Parameter(Tensor([0], dtypes.int32), name="cov_step", requires_grad=False)
        self.damping = damping
        self.add_slot("moments")
        self._decay = float(weight_decay)
        # Not a child: its Parameters would count as this optimizer's.
        object.__setattr__(self, "net", net)
        self._positions = _positions(net, self.parameters)
        layers = [place.layer for place in self._positions if place.layer is not None]
        self.matrix_a = ParameterTuple(_inverse("a", index, layer) for index, layer in enumerate(layers))
        self.matrix_g = ParameterTuple(_inverse("g", index, layer) for index, layer in enumerate(layers))
        self._decayed = tuple(bool(decay_filter(parameter)) for parameter in self.parameters)
        self._reducers = self._made_reducers(layers, split_indices)

    def get_frequency(self) -> int:
        """How often the matrices are renewed in sink mode: every so many steps."""
        return self.frequency

    def construct(self, gradients: Sequence[Tensor]) -> tuple[bool, ...]:
        """See the class.

        Args:
            gradients: tuple of Tensors, one per Parameter in the order of `parameters`.
        """
        grads = [gradient.astype(jnp.float32) / self.loss_scale for gradient in self._checked(gradients)]
        number, step = self.global_step.array[0], self.cov_step.array[0]
        # After the last value it stays, as learning rates do.
        root = jnp.sqrt(self.damping.array[jnp.clip(step, 0, self.damping.shape[0] - 1)].astype(jnp.float32))
        inverses = self._renewed(root) if self.thor else self._stored_inverses()
        rate = _rate_at(self.rates[0], number)
        for index, (parameter, place) in enumerate(zip(self.parameters, self._positions, strict=True)):
            moment = self.moments[index]
            value, velocity = parameter.array, moment.array
            gradient = self._preconditioned(grads[index], place, root, inverses)
            if self._decay and self._decayed[index]:
                gradient = gradient + self._decay * value
            if self.enable_clip_grad:
                norm = jnp.sqrt(jnp.sum(jnp.square(gradient)))
                gradient = gradient * (_CLIP_NORM / jnp.maximum(norm, _CLIP_NORM))
            new_value, new_velocity = update_rules.momentum(
                jnp, gradient, value, velocity, rate=rate, momentum=self.momentum.array, nesterov=self.use_nesterov
            )
            frames.write(parameter, new_value.astype(value.dtype))
            frames.write(moment, new_velocity.astype(velocity.dtype))
        frames.write(self.cov_step, self.cov_step.array + 1)
        frames.write(self.global_step, self.global_step.array + 1)
        return (True,) * len(self.parameters)

    def _preconditioned(
        self, gradient: jax.Array, place: _Place, root: jax.Array, inverses: list[Inverses]
    ) -> jax.Array:
        """The gradient as the update uses it."""
        if place.normalized:
            return gradient / (jnp.square(gradient) / self.batch_size + root)
        if place.layer is None:
            return gradient
        matrix_a, matrix_g = inverses[place.number]
        # Of a table each row has a number instead of a matrix.
        if matrix_a.ndim == 1:
            return (matrix_a[:, None] * gradient) @ matrix_g
        matrix = gradient.reshape(gradient.shape[0], -1)
        return _by_blocks(matrix_g, matrix, matrix_a).reshape(gradient.shape)

    def _renewed(self, root: jax.Array) -> list[Inverses]:
        """Inverses of what the layers have kept in this step; they are kept for later steps."""
        layers = [place.layer for place in self._positions if place.layer is not None]
        pairs = [self._inverted(layer, root) for layer in layers]
        # In the global view the matrices are those of the whole batch already.
        if layers and reduces():
            columns = []
            for side, reducers in enumerate(self._reducers):
                tensors = [wrap(pair[side]) for pair in pairs]
                columns.append(
                    [t.array for first, last, reduce in reducers for t in reduce(tuple(tensors[first:last]))]
                )
            pairs = list(zip(*columns, strict=True))
        for pair, matrix_a, matrix_g in zip(pairs, self.matrix_a, self.matrix_g, strict=True):
            frames.write(matrix_a, pair[0])
            frames.write(matrix_g, pair[1])
        return pairs

    def _stored_inverses(self) -> list[Inverses]:
        return [(a.array, g.array) for a, g in zip(self.matrix_a, self.matrix_g, strict=True)]

    def _inverted(self, layer: Any, root: jax.Array) -> Inverses:
        """Both inverses of a layer; `root` is √damping."""
        scale = (self.batch_size / self.loss_scale) ** 2
        matrix_a, matrix_g = layer.matrix_a.array, layer.matrix_g.array * scale
        if matrix_a.ndim == 1:
            return 1.0 / (matrix_a / self.batch_size + root), _block_inverses(_damped(matrix_g, root), len(matrix_g))[0]
        if not isinstance(layer, Conv2dThor):
            return _block_inverses(_damped(matrix_a, root)), _block_inverses(_damped(matrix_g, root))
        root_a, root_g = jnp.sqrt(layer.a_normalizer.array[0]), jnp.sqrt(layer.g_normalizer.array[0])
        inverses = _block_inverses(_damped(matrix_a, root / root_a)), _block_inverses(_damped(matrix_g, root / root_g))
        return inverses[0] / root_a, inverses[1] / root_a

    def _made_reducers(self, layers: list[Any], split_indices: list[int] | None) -> list[list[tuple[int, int, Any]]]:
        """For A and for G: first layer, layer after the last, and the reducer of each group."""
        ends = _group_ends(len(layers), split_indices)
        sides = []
        for side, fusion_type in _FUSION_TYPES.items():
            matrices = [getattr(layer, side) for layer in layers]
            spans = zip([0, *ends], ends, strict=False)
            sides.append([(first, last, ReducerOfMode(matrices[first:last], fusion_type)) for first, last in spans])
        return sides


@taking(ThorGpu.__init__, "self")
def thor(**settings: Any) -> ThorGpu:
    """The second-order optimizer THOR for `net`, whose layers are converted in place; see `ThorGpu`.

    Args:
        net: the network: its Parameters that require gradients are trained.
        learning_rate: 1-D Tensor with one rate per step.
        damping: 1-D Tensor with one damping per step; its square root is added to the diagonals of both matrices.
        momentum: share of the velocity that stays, a float >= 0.
        weight_decay: added to the preconditioned gradient, times the Parameter.
        loss_scale: gradients are divided by it.
        batch_size: samples per step, by which the matrices are scaled.
        use_nesterov: look ahead along the velocity.
        decay_filter: which Parameters are decayed.
        split_indices: last layer of each group whose matrices are sent together between ranks; None: one group.
        enable_clip_grad: shorten each gradient to the norm 1 before the update.
        frequency: how often `ModelThor` renews the matrices in sink mode: every so many steps, >= 2.

    Raises:
        SporaxTypeError, SporaxValueError: a setting of a wrong kind or size; the message names it.

    Example:
        >>> rates = Tensor([4e-4, 1e-4, 1e-5], mindspore.float32)
        >>> optimizer = nn.thor(net, rates, rates, momentum=0.9, frequency=4)
        >>> model = train.ConvertModelUtils.convert_to_thor_model(None, net, loss, optimizer)
    """
    ConvertNetUtils().convert_to_thor_net(settings["net"])
    return ThorGpu(**settings)


def _check(learning_rate: Any, damping: Any, momentum: Any, frequency: Any) -> None:
    for name, value in (("learning_rate", learning_rate), ("damping", damping)):
        For("thor").typed(name, value, "a Tensor", Tensor)
    For("thor").refuse(damping.ndim != 1, "'damping' must have 1 dimension", f"shape {damping.shape}")
    For("thor").typed("momentum", momentum, "a float", float)
    For("thor").refuse(momentum < 0, "the argument 'momentum' must be at least 0.0", momentum)
    For("thor").typed("frequency", frequency, "an int", int, takes_bool=False)
    For("thor").refuse(frequency < 2, "the argument 'frequency' must be at least 2", frequency)


def _group_ends(count: int, split_indices: list[int] | None) -> list[int]:
    """For each group of layers the number of the layer after its last."""
    if split_indices is None:
        return [count]
    if not isinstance(split_indices, list) or any(type(index) is not int for index in split_indices):
        raise SporaxTypeError(f"For 'thor', 'split_indices' must be a list of ints, but got {split_indices!r}.")
    if sorted({*split_indices}) != split_indices or any(not 0 <= index < count for index in split_indices):
        raise For("thor").error(f"'split_indices' must be increasing numbers of layers below {count}", split_indices)
    ends = [index + 1 for index in split_indices]
    return ends if ends and ends[-1] == count else [*ends, count]


def _positions(net: Cell, parameters: Sequence[Parameter]) -> tuple[_Place, ...]:
    """The place of each Parameter in its layer."""
    weights: dict[Parameter, Any] = {}
    normalized: set[Parameter] = set()
    for _, cell in net.cells_and_names():
        if isinstance(cell, DenseThor | Conv2dThor) and getattr(cell, "group", 1) == 1:
            weights[cell.weight] = cell
        elif isinstance(cell, EmbeddingThor | EmbeddingLookupThor):
            weights[cell.embedding_table] = cell
        elif isinstance(cell, LayerNorm):
            normalized.update(cell.get_parameters(expand=False))
    positions, number = [], 0
    for parameter in parameters:
        if parameter in weights:
            positions.append(_Place(weights[parameter], number))
            number += 1
        else:
            positions.append(_Place(normalized=parameter in normalized))
    return tuple(positions)


def _inverse(side: str, number: int, layer: Any) -> Parameter:
    """The Parameter that keeps an inverse, zeros until the first one."""
    shape = getattr(layer, f"matrix_{side}").shape
    # Embeddings have one number per row, and their G is inverted whole.
    if not isinstance(layer, EmbeddingThor | EmbeddingLookupThor):
        shape = (-(-shape[0] // _BLOCK_SIZE), *(min(shape[0], _BLOCK_SIZE),) * 2)
    return Parameter(Tensor(jnp.zeros(shape, jnp.float32)), name=f"matrix_{side}_inv_{number}", requires_grad=False)


def _damped(matrix: jax.Array, root: jax.Array) -> jax.Array:
    return matrix + root * jnp.eye(len(matrix), dtype=matrix.dtype)


def _block_inverses(matrix: jax.Array, block_size: int = _BLOCK_SIZE) -> jax.Array:
    """Inverses of the diagonal blocks of a symmetric positive definite matrix, (blocks, size, size).

    The last block may reach beyond the matrix, where it is the identity.
    """
    from jax.scipy.linalg import cho_factor, cho_solve  # loaded by who uses this optimizer

    size = min(matrix.shape[0], block_size)
    count = -(-matrix.shape[0] // size)
    missing = count * size - matrix.shape[0]
    blocks = []
    for start in range(0, matrix.shape[0], size):
        block = matrix[start : start + size, start : start + size]
        if start + size > matrix.shape[0]:
            block = jnp.pad(block, (0, missing)) + jnp.diag(jnp.arange(size) >= size - missing).astype(block.dtype)
        blocks.append(block)
    stacked = jnp.stack(blocks)
    return cho_solve(cho_factor(stacked), jnp.broadcast_to(jnp.eye(size, dtype=stacked.dtype), stacked.shape))


def _by_blocks(left: jax.Array, matrix: jax.Array, right: jax.Array) -> jax.Array:
    """left · matrix · right, where `left` and `right` are the blocks of block-diagonal matrices."""
    rows, columns = matrix.shape
    above, below = left.shape[0] * left.shape[1], right.shape[0] * right.shape[1]
    padded = jnp.pad(matrix, ((0, above - rows), (0, below - columns)))
    cells = padded.reshape(left.shape[0], left.shape[1], right.shape[0], right.shape[1])
    result = jnp.einsum("gij,gjak,akl->gial", left, cells, right)
    return result.reshape(above, below)[:rows, :columns]
