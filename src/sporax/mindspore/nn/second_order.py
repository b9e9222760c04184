"""Layers that keep second-order statistics for THOR (`sporax.mindspore.nn.optim.thor`), and the conversion of a network to them.

THOR preconditions the gradient of a layer by the inverses of two matrices (Chen et al. 2021, "THOR, Trace-based
hardware-driven layer-oriented natural gradient descent computation"): A, the second moment of what goes into the layer, and G,
that of the gradient of what comes out. Each layer here is the ordinary one and writes both to Parameters: A while it runs, G in
the backward pass. What they are divided by is MindSpore's choice for GPUs, whose formulas are followed throughout.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import conv_general_dilated_patches

from sporax.mindspore import ops
from sporax.mindspore.common import Parameter, Tensor, dtypes, wrap
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.basic import Dense, Embedding
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.convolution import Conv2d
from sporax.mindspore.nn.embedding import EmbeddingLookup
from sporax.mindspore.ops._core.parameters import taking
from sporax.runtime.state import frames


class _Statistics:
    """What the layers share: Parameters for A and G, and who writes them.

    Attributes:
        thor: whether statistics are kept in this step; `ModelThor` switches it.
        matrix_a: (in_channels, in_channels), or the count of each id, (vocab_size,).
        matrix_g: (out_channels, out_channels).
    """

    matrix_a: Parameter
    matrix_g: Parameter

    def _add_statistics(self) -> None:
        """Make the Parameters; the layer is complete otherwise."""
        raise NotImplementedError

    def _make_matrices(self, matrix_a: Any, matrix_g: Any) -> None:
        self.thor = True
        self.matrix_a = Parameter(Tensor(matrix_a, dtypes.float32), name="matrix_a", requires_grad=False)
        self.matrix_g = Parameter(Tensor(matrix_g, dtypes.float32), name="matrix_g", requires_grad=False)

    def _with_gradient_saved(self, result: Tensor) -> Tensor:
        """`result`, whose gradient `save_gradient` will see."""
        return ops.InsertGradientOf(self.save_gradient)(result)

    def save_gradient(self, dout: Tensor) -> Tensor:
        """Write G = dᵀd / rows of the gradient of the layer's output, and give that gradient back."""
        rows = _rows(dout.array)
        frames.write(self.matrix_g, _second_moment(rows) / rows.shape[0])
        return dout


class _TableStatistics(_Statistics):
    """Those of a table of embeddings, whose A is how many times each id occurs."""

    vocab_size: int
    embedding_size: int

    def _add_statistics(self) -> None:
        self._make_matrices(np.zeros(self.vocab_size), np.zeros((self.embedding_size, self.embedding_size)))

    def _counted(self, ids: Tensor, rows: Tensor) -> Tensor:
        """The rows of `ids`, with statistics kept."""
        if not self.thor:
            return rows
        frames.write(self.matrix_a, _counts(ids, self.vocab_size))
        return self._with_gradient_saved(rows)


class DenseThor(Dense, _Statistics):
    """`Dense` that keeps what THOR needs; A is xᵀx / in_channels and G is dᵀd / rows, for inputs x and gradients d.

    Args and errors: as of `Dense`.

    Example:
        >>> DenseThor(3, 4, weight_init="ones")(Tensor([[1.0, 2, 3]])).asnumpy()
        array([[6., 6., 6., 6.]], dtype=float32)
    """

    @taking(Dense.__init__, "dtype", weight_init="normal", bias_init="zeros")
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._add_statistics()

    def _add_statistics(self) -> None:
        self._make_matrices(np.eye(self.in_channels), np.eye(self.out_channels))

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (…, in_channels); gives (…, out_channels)."""
        activation = self.activation
        weight, bias = argument.cast_like(self, x, self.weight, self.bias)
        if argument.configured(self.matmul, self.bias_add):
            result = self._by_parts(x, weight, bias)
        else:
            result = ops.dense(x, weight, bias)
        if self.thor:
            frames.write(self.matrix_a, _second_moment(_rows(x.array)) / self.in_channels)
            # Before the activation: a bias that is added leaves the gradient as it is.
            result = self._with_gradient_saved(result)
        return result if activation is None else activation(result)


class Conv2dThor(Conv2d, _Statistics):
    """`Conv2d` that keeps what THOR needs.

    A is m mᵀ / p with m, (in_channels · kernel height · kernel width, p), the patches under the kernel at the p positions of a
    "same" padding, averaged over the batch. G is d dᵀ / q with d, (out_channels, q), the gradient at the q positions of the
    output, averaged over the batch. p and q are kept in `a_normalizer` and `g_normalizer`, each (1,).

    Args and errors: as of `Conv2d`; the optimizer can use the statistics of one `group` only.
    """

    @taking(Conv2d.__init__, "data_format dtype", weight_init="normal", bias_init="zeros")
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._add_statistics()

    def _add_statistics(self) -> None:
        size = self.in_channels * self.kernel_size[0] * self.kernel_size[1]
        self.a_normalizer = Parameter(Tensor([1.0], dtypes.float32), name="a_normalizer", requires_grad=False)
        self.g_normalizer = Parameter(Tensor([1.0], dtypes.float32), name="g_normalizer", requires_grad=False)
        self._make_matrices(np.zeros((size, size)), np.zeros((self.out_channels, self.out_channels)))

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (N, in_channels, H, W)."""
        result = super().construct(x)
        if not self.thor:
            return result
        # Averaging first is the same and leaves one image; patches are linear in it.
        image = x.array.astype(jnp.float32).mean(0, keepdims=True)
        patches = conv_general_dilated_patches(
            image, self.kernel_size, self.stride, "SAME", rhs_dilation=self.dilation
        ).reshape(self.matrix_a.shape[0], -1)
        self._write(self.matrix_a, self.a_normalizer, patches)
        return self._with_gradient_saved(result)

    def save_gradient(self, dout: Tensor) -> Tensor:
        """Write G = d dᵀ / q."""
        mean = dout.array.astype(jnp.float32).mean(0)
        self._write(self.matrix_g, self.g_normalizer, mean.reshape(self.out_channels, -1))
        return dout

    @staticmethod
    def _write(matrix: Parameter, normalizer: Parameter, columns: Any) -> None:
        count = columns.shape[1]
        frames.write(matrix, columns @ columns.T / count)
        frames.write(normalizer, jnp.full((1,), count, jnp.float32))


class EmbeddingThor(Embedding, _TableStatistics):
    """`Embedding` that keeps what THOR needs; A is how many times each id occurs, G is dᵀd / ids for gradients d of the rows.

    Args and errors: as of `Embedding`.
    """

    @taking(Embedding.__init__)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._add_statistics()

    def construct(self, ids: Tensor) -> Tensor:
        """`ids`: integers of any shape; gives that shape with embedding_size added."""
        return self._counted(ids, super().construct(ids))


class EmbeddingLookupThor(EmbeddingLookup, _TableStatistics):
    """`EmbeddingLookup` that keeps what THOR needs, with a table in float16.

    A is how many times each id occurs, G is dᵀd / batch for gradients d of the rows; also for a `target` of ``"CPU"``, for which
    MindSpore keeps none.

    Args and errors: as of `EmbeddingLookup`, without `vocab_cache_size` and `dtype`.
    """

    @taking(EmbeddingLookup.__init__, "vocab_cache_size dtype")
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, dtype=dtypes.float16)
        self._add_statistics()

    def construct(self, indices: Tensor) -> Tensor:
        """`indices`: integers of any shape; gives that shape with embedding_size added."""
        return self._counted(indices, super().construct(indices))

    def save_gradient(self, dout: Tensor) -> Tensor:
        """Write G = dᵀd / batch."""
        frames.write(self.matrix_g, _second_moment(_rows(dout.array)) / dout.shape[0])
        return dout


def _rows(array: Any) -> Any:
    """The array as a matrix in float32: all dimensions but the last become rows."""
    return array.reshape(-1, array.shape[-1]).astype(jnp.float32)


def _second_moment(rows: Any) -> Any:
    return rows.T @ rows


def _counts(ids: Tensor, size: int) -> Any:
    """How many times each of `size` ids occurs, (size,) float32."""
    row = wrap(ids.array.reshape(-1))
    return ops.one_hot(row, size).array.astype(jnp.float32).sum(0)


_SECOND_ORDER_CLASSES: dict[type[Cell], type[_Statistics]] = {
    Dense: DenseThor,
    Conv2d: Conv2dThor,
    Embedding: EmbeddingThor,
    EmbeddingLookup: EmbeddingLookupThor,
}


class ConvertNetUtils:
    """Turns layers of a network into those that keep what THOR needs.

    Example:
        >>> ConvertNetUtils().convert_to_thor_net(net)
    """

    def convert_to_thor_net(self, net: Cell) -> None:
        """Give the `Dense`, `Conv2d`, `Embedding` and `EmbeddingLookup` Cells below `net` their second-order classes, in place.

        `nn.thor` calls it. Layers keep their Parameters, names, strategies and precision; MindSpore makes new ones in float16
        on other devices than GPUs. Layers that do not train stay as they are, and so do convolutions with several groups or
        channels at the end and tables on parameter servers, which MindSpore cannot convert.

        Args:
            net: the network. Paths with ``wide`` in them, and those of convolutions that region proposal networks share
                (``rpn_with_loss.rpn_convs_list.``), are passed over, as in MindSpore.
        """
        _convert_below(net, "")
        net.update_cell_prefix()
        net.update_cell_type("second-order")


def _convert_below(net: Cell, prefix: str) -> None:
    for name, child in net.name_cells().items():
        path = f"{prefix}{name}."
        # Exactly these classes: one derived from them may compute something else.
        second_order = _SECOND_ORDER_CLASSES.get(type(child))
        if second_order is None:
            _convert_below(child, path)
        elif _is_convertible(child, path.lower()):
            _convert(child, second_order)


def _is_convertible(layer: Any, path: str) -> bool:
    if isinstance(layer, Embedding | EmbeddingLookup):
        table = layer.embedding_table
        return bool(table.requires_grad and not table.is_param_ps)
    if not layer.weight.requires_grad or "rpn_with_loss.rpn_convs_list." in path or "wide" in path:
        return False
    return not isinstance(layer, Conv2d) or (layer.group == 1 and layer.data_format == "NCHW")


def _convert(layer: Any, second_order: type[_Statistics]) -> None:
    own, first = next(iter(layer.parameters_and_names()))
    before = set(layer.parameters_dict(recurse=False))
    # The same object, so that whoever holds the layer sees the change; what was compiled for it before does not fit any more.
    object.__setattr__(layer, "__class__", second_order)
    object.__setattr__(layer, "_program", None)
    layer._add_statistics()
    for name, parameter in layer.parameters_and_names(expand=False):
        if parameter.name not in before:
            # As it would have been called from the start.
            parameter.name = f"{first.name.removesuffix(own)}{name}"
