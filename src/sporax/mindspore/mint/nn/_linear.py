"""Layers of `sporax.mindspore.mint.nn` with a table of weights: Linear and Embedding."""

from __future__ import annotations

from typing import Any

from sporax.base.errors import SporaxNotImplementedError, SporaxValueError, check_type
from sporax.mindspore.common import dtype as dtypes
from sporax.mindspore.common.dtype import DType
from sporax.mindspore.common.initializer import Normal, initializer
from sporax.mindspore.common.parameter import Parameter
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.mint.nn import functional as F
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.basic import without_row
from sporax.mindspore.nn.cell import Cell


class Linear(Cell):
    """``input @ weight.T + bias``.

    Args:
        in_features: size of the input's last dimension.
        out_features: size of the output's last dimension.
        bias: whether there is one.
        weight_init: initializer of `weight`, (out_features, in_features); None: uniform on ±1/√in_features.
        bias_init: initializer of `bias`, (out_features,); None: the same.
        dtype: element type of the Parameters; float32 by default.

    Raises:
        SporaxTypeError: sizes are not ints, `bias` not a bool.
        SporaxValueError: sizes below 1, or initial values of another shape.

    Example:
        >>> mint.nn.Linear(3, 4)(Tensor(np.ones((2, 3), np.float32))).shape
        (2, 4)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, weight_init: Any = None, bias_init: Any = None,
        dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.in_features = argument.positive_int("Linear", "in_features", in_features)
        self.out_features = argument.positive_int("Linear", "out_features", out_features)
        has_bias, shape = argument.boolean("Linear", "bias", bias), (out_features, in_features)
        self.weight, self.bias = argument.weight_and_bias(
            "Linear", shape, out_features, dtype or dtypes.float32, has_bias, weight_init, bias_init
        )

    def construct(self, input: Tensor) -> Tensor:
        """`input`: (…, in_features); gives (…, out_features)."""
        return F.linear(input, *argument.cast_like(self, input, self.weight, self.bias))

    def extend_repr(self) -> str:
        """Sizes and bias."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Cell):
    """Rows of a table, picked by integer ids.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: length of a row.
        padding_idx: this row starts as zeros and gets no gradient; negative ones count from the end.
        max_norm: rows that are looked up are scaled down to this norm; the table itself stays as it is.
        norm_type: which p-norm.
        scale_grad_by_freq: divide the gradient of a row by how often it is looked up.
        sparse: must be False: gradients are dense.
        _weight: first values, (num_embeddings, embedding_dim); standard normal by default.
        _freeze: do not train the table.
        dtype: element type of the table; float32 by default.

    Raises:
        SporaxTypeError, SporaxValueError: settings of another kind, or `padding_idx` outside the table.
        SporaxNotImplementedError: `sparse` is requested.
    """

    _in_repr = "num_embeddings embedding_dim padding_idx"

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
        _weight: Tensor | None = None, _freeze: bool = False, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings = argument.positive_int("Embedding", "num_embeddings", num_embeddings)
        self.embedding_dim = argument.positive_int("Embedding", "embedding_dim", embedding_dim)
        if argument.boolean("Embedding", "sparse", sparse):
            raise SporaxNotImplementedError("For 'Embedding', 'sparse' must be False: gradients are dense here.")
        self.padding_idx = self._row(padding_idx)
        self.max_norm = None if max_norm is None else argument.number("Embedding", "max_norm", max_norm)
        self.norm_type = argument.number("Embedding", "norm_type", norm_type)
        self.scale_grad_by_freq = argument.boolean("Embedding", "scale_grad_by_freq", scale_grad_by_freq)
        table = self._first_values(_weight, dtype or dtypes.float32)
        self.weight = Parameter(
            table, name="weight", requires_grad=not argument.boolean("Embedding", "_freeze", _freeze)
        )

    def _row(self, padding_idx: int | None) -> int | None:
        if padding_idx is None:
            return None
        check_type("Embedding", "padding_idx", padding_idx, "an int", int, takes_bool=False)
        if not -self.num_embeddings <= padding_idx < self.num_embeddings:
            raise SporaxValueError.must(
                "Embedding", "padding_idx", f"be in [{-self.num_embeddings}, {self.num_embeddings})", padding_idx
            )
        return padding_idx % self.num_embeddings

    def _first_values(self, weight: Tensor | None, dtype: DType) -> Tensor:
        shape = (self.num_embeddings, self.embedding_dim)
        if weight is not None:
            argument.initial_shape("Embedding", "_weight", weight, shape)
            return weight
        table: Tensor = initializer(Normal(1.0, 0.0), shape, dtype)
        return table if self.padding_idx is None else without_row(table, self.padding_idx)

    def construct(self, input: Tensor) -> Tensor:
        """`input`: integers of any shape; gives that shape with embedding_dim added."""
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)
