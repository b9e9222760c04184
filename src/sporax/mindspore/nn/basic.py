"""Basic layers: Dense, Embedding, Dropout, Flatten, Identity.

Layers that zero whole rows, channels or volumes at random while training; tables whose row for padding is zero, made in slices
like others.
"""

from __future__ import annotations

from typing import Any

from sporax.base.errors import For, check_type, named
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes
from sporax.mindspore.common._draws import Draw
from sporax.mindspore.common.initializer import Initializer, Shape, initializer
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.activation import get_activation
from sporax.mindspore.nn.cell import Cell, Layer


class Dense(Layer):
    """``activation(x @ weight.T + bias)``.

    Args:
        weight_init: initializer of `weight`, (out_channels, in_channels); None: He uniform with slope √5.
        bias_init: initializer of `bias`, (out_channels,); None: uniform on ±1/√in_channels.

    Attributes:
        matmul, bias_add: primitives that can have a strategy: ``layer.matmul.shard(((2, 1), (4, 1)))``. They see the input as
            a matrix, and the weight is (out_channels, in_channels).

    Raises:
        SporaxTypeError: channels are not ints, `has_bias` not a bool, …
        SporaxValueError: channels below 1, or initial values of another shape.

    Example:
        >>> Dense(3, 4)(Tensor(np.ones((2, 3), np.float32))).shape
        (2, 4)
    """

    in_channels: int = setting(argument.positive_int, "size of the input's last dimension.")
    out_channels: int = setting(argument.positive_int, "size of the output's last dimension.")
    weight_init: Any = setting(default=None, attribute=False)
    bias_init: Any = setting(default=None, attribute=False)
    has_bias: bool = setting(argument.boolean, "whether there is a bias.", default=True)
    activation: Any = setting(None, 'Cell, function or name (``"relu"``) applied to the result.', default=None)
    dtype: DType = setting(None, "element type of the Parameters.", default=dtypes.float32, attribute=False)

    _in_repr = "input_channels=in_channels output_channels=out_channels has_bias"

    def _prepare(self, weight_init: object, bias_init: object, dtype: DType) -> None:
        outputs = self.out_channels
        self.weight, self.bias = argument.weight_and_bias(
            "Dense", (outputs, self.in_channels), outputs, dtype, self.has_bias, weight_init, bias_init
        )
        # Made also if they are not used: a strategy can be set on them later.
        self.matmul, self.bias_add = ops.MatMul(transpose_b=True), ops.BiasAdd()
        self.activation_flag = self.activation is not None
        if isinstance(self.activation, str):
            self.activation = get_activation(self.activation)
        if self.activation is not None and not callable(self.activation):
            got = type(self.activation).__name__
            raise For("Dense").type_error("'activation' must be a name, a Cell or a function", got)

    def construct(self, x: Tensor) -> Tensor:
        """`x`: (…, in_channels); gives (…, out_channels)."""
        weight, bias = argument.cast_like(self, x, self.weight, self.bias if self.has_bias else None)
        parts = argument.configured(self.matmul, self.bias_add)
        # The primitives see matrices, as MindSpore's rules for strategies expect.
        result = self._by_parts(x, weight, bias) if parts else ops.dense(x, weight, bias)
        return self.activation(result) if self.activation_flag else result

    def _by_parts(self, x: Tensor, weight: Any, bias: Any) -> Tensor:
        rows = x if x.ndim == 2 else ops.reshape(x, (-1, x.shape[-1]))
        result = self.matmul(rows, weight)
        if bias is not None:
            # In automatic mixed precision the product is in half precision, as it is in an operator with the bias.
            result = self.bias_add(result, bias if bias.dtype == result.dtype else bias.astype(result.dtype))
        return result if x.ndim == 2 else ops.reshape(result, (*x.shape[:-1], self.out_channels))


class Embedding(Layer):
    """Rows of a table, picked by integer ids.

    Attributes:
        gather, one_hot, array_mul: primitives that can have a strategy; they see the ids in one row.

    Raises:
        SporaxTypeError, SporaxValueError: sizes that are no positive ints, or `padding_idx` outside the table.
    """

    vocab_size: int = setting(argument.positive_int, "rows of the table.")
    embedding_size: int = setting(argument.positive_int, "length of a row.")
    use_one_hot: bool = setting(argument.boolean, "multiply by one-hot vectors instead of looking up.", default=False)
    embedding_table: Any = setting(None, "initializer of the table.", default="normal", attribute=False)
    dtype: DType = setting(None, "element type of the table.", default=dtypes.float32, attribute=False)
    padding_idx: int | None = setting(
        check_type, "this row starts as zeros.", default=None, expected="an int", types=int | None, takes_bool=False
    )

    _in_repr = "vocab_size embedding_size padding_idx"

    def _prepare(self, embedding_table: Any, dtype: DType) -> None:
        table = initializer(embedding_table, (self.vocab_size, self.embedding_size), dtype)
        if self.padding_idx is not None:
            if not 0 <= self.padding_idx < self.vocab_size:
                raise For("Embedding").error(f"'padding_idx' must be in [0, {self.vocab_size})", self.padding_idx)
            table = without_row(table, self.padding_idx)
        self.embedding_table = Parameter(table, name="embedding_table")
        self.gather, self.one_hot, self.array_mul = ops.Gather(), ops.OneHot(), ops.MatMul()
        self.expand, self.reshape = ops.ExpandDims(), ops.Reshape()

    def construct(self, ids: Tensor) -> Tensor:
        """`ids`: integers of any shape; gives that shape with embedding_size added."""
        if argument.configured(self.gather, self.one_hot, self.array_mul):
            return self._by_parts(ids)
        if self.use_one_hot:
            hot = ops.one_hot(ids, self.vocab_size).astype(self.embedding_table.dtype)
            return ops.matmul(hot, self.embedding_table)
        return ops.gather(self.embedding_table, ids, 0)

    def _by_parts(self, ids: Tensor) -> Tensor:
        row = ops.reshape(ids, (-1,))
        if self.use_one_hot:
            # `ops.OneHot` wants its values as Tensors.
            hot = self.one_hot(row, self.vocab_size, Tensor(1.0, dtypes.float32), Tensor(0.0, dtypes.float32))
            rows = self.array_mul(hot.astype(self.embedding_table.dtype), self.embedding_table)
        else:
            rows = self.gather(self.embedding_table, row, 0)
        return self.reshape(rows, (*ids.shape, self.embedding_size))


class Dropout(Cell):
    """Zeroes elements at random while training, and scales the others so that the mean stays.

    Args:
        keep_prob: probability of an element to be kept, in (0, 1]; counts only when `p` is None.
        p: probability of an element to be zeroed, in [0, 1).
        dtype: accepted for compatibility; the result has the dtype of the input.

    Raises:
        SporaxValueError, SporaxTypeError: no such probability.
    """

    def __init__(self, keep_prob: float = 0.5, p: float | None = None, dtype: DType = dtypes.float32) -> None:
        super().__init__()
        self.p, self.keep_prob = p, keep_prob
        if p is None:
            self._rate = 1 - argument.within("Dropout", "keep_prob", keep_prob, 0.0, 1.0, "(]")
        else:
            self._rate = argument.within("Dropout", "p", p, 0.0, 1.0, "[)")
        self.dropout = ops.Dropout(1 - self._rate)

    def construct(self, x: Tensor) -> Tensor:
        """`x` of any shape."""
        # Later a script can switch the layer off, and not assign another rate, as in MindSpore.
        if not self.training or self.p == 0 or self.keep_prob == 1:
            return x
        return self.dropout(x)[0] if argument.configured(self.dropout) else ops.dropout(x, self._rate, True)

    def extend_repr(self) -> str:
        """The probability by the name by which it was given."""
        return f"keep_prob={self.keep_prob}" if self.p is None else f"p={self.p}"


class Flatten(Cell):
    """Dimensions `start_dim` to `end_dim` made into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        for name, value in (("start_dim", start_dim), ("end_dim", end_dim)):
            For("Flatten").typed(name, value, "an int", int, takes_bool=False)
        self.start_dim = start_dim
        self.end_dim = end_dim

    def construct(self, x: Tensor) -> Tensor:
        """`x` with at least as many dimensions as the settings name."""
        for name, value in (("start_dim", self.start_dim), ("end_dim", self.end_dim)):
            if not -x.ndim <= value < x.ndim:
                raise For("Flatten").error(
                    f"{named(name)} must be in [{-x.ndim}, {x.ndim}) for an input of shape {x.shape}", value
                )
        return ops.flatten(x, start_dim=self.start_dim, end_dim=self.end_dim)


class Identity(Cell):
    """Gives its input back."""

    def construct(self, x: Any) -> Any:
        """Anything."""
        return x


class Dropout1d(Layer):
    """Zeroes channels of (N, C, L) or (C, L) at random while training, and scales the others so that the mean stays.

    Raises:
        SporaxTypeError, SporaxValueError: no such probability.
    """

    p: float = setting(
        argument.exactly_float, "share of zeroed channels.", default=0.5, attribute=False, low=0.0, high=1.0
    )

    _in_repr = "p"

    def _prepare(self, p: float) -> None:
        self.prob = p

    def construct(self, x: Tensor) -> Tensor:
        """`x` with channels."""
        return ops.dropout1d(x, self.prob, self.training)


class Dropout2d(Dropout1d):
    """Zeroes channels of (N, C, H, W) at random while training; `p` as in `Dropout1d`.

    A script that makes `keep_prob` 1 switches the layer off; another rate is not taken later, as in MindSpore.
    """

    # A static method, so that the subclass exchanges the function alone.
    _drop = staticmethod(ops.dropout2d)

    def _prepare(self, p: float) -> None:
        self.keep_prob, self._rate = 1.0 - p, p

    def construct(self, x: Tensor) -> Tensor:
        """`x` with channels."""
        return self._drop(x, self._rate, self.training and self.keep_prob != 1)


class Dropout3d(Dropout2d):
    """Zeroes channels of (N, C, D, H, W) at random while training; as `Dropout2d`."""

    _drop = staticmethod(ops.dropout3d)


def without_row(table: Tensor, row: int) -> Tensor:
    """`table`, new from `initializer`, with zeros in one row; a lazy one stays lazy."""
    bound = table._initializer
    if bound is not None and bound.may_wait:
        # With the same place in the random stream.
        bound.recipe = _WithoutRow(bound.recipe, row)
        return table
    # The row can be set only when the values are there.
    values = Tensor(table.init_data() if table.has_init else table)
    values[row] = 0
    return values


class _WithoutRow(Initializer):
    """What another recipe gives, with zeros in one row."""

    def __init__(self, recipe: Initializer, row: int) -> None:
        self.recipe = recipe
        self.row = row
        self.random = recipe.random

    @property
    def may_be_sharded(self) -> bool:
        """As the other recipe."""
        return self.recipe.may_be_sharded

    def settings(self) -> tuple[Any, ...]:
        """Those of the other recipe as well."""
        return type(self.recipe), self.recipe.settings(), self.row

    def values(self, draw: Draw, shape: Shape, dtype: Any) -> Any:
        """The other recipe's but for the row."""
        return draw.without_row(self.recipe.values(draw, shape, dtype), self.row)
