"""Normalisation layers of `sporax.mindspore.mint.nn`.

Layers of `sporax.mindspore.mint.nn` with a table of weights: Linear and Embedding.
"""

from __future__ import annotations

from typing import Any

from sporax.base.errors import For, SporaxNotImplementedError
from sporax.mindspore import ops
from sporax.mindspore._declared import setting
from sporax.mindspore.common import DType, Parameter, Tensor, dtypes
from sporax.mindspore.common.initializer import Normal, initializer
from sporax.mindspore.mint.nn import functional as F
from sporax.mindspore.nn import _arguments as argument
from sporax.mindspore.nn.basic import without_row
from sporax.mindspore.nn.cell import Cell, Layer
from sporax.mindspore.nn.normalization import check_rank, normalized_by_batch
from sporax.runtime.ranks import groups


class LayerNorm(Cell):
    """Normalises over the last dimensions (Ba et al. 2016).

    Args:
        normalized_shape: the dimensions: ints, or one int for the last one.
        eps: added to the variance.
        elementwise_affine: scale by `weight`.
        bias: with `elementwise_affine`: add `bias` too.
        dtype: element type of the Parameters; float32 by default.

    Raises:
        SporaxTypeError, SporaxValueError: no such shape.
    """

    _in_repr = "normalized_shape eps elementwise_affine"

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        For("LayerNorm").typed("normalized_shape", shape, "an int, tuple or list", tuple | list)
        For("LayerNorm").refuse(not shape, "'normalized_shape' must not be empty")
        self.normalized_shape = tuple(argument.positive_int("LayerNorm", "normalized_shape", size) for size in shape)
        self.eps = argument.number("LayerNorm", "eps", eps)
        self.elementwise_affine = argument.boolean("LayerNorm", "elementwise_affine", elementwise_affine)
        scaled, moved = elementwise_affine, elementwise_affine and argument.boolean("LayerNorm", "bias", bias)
        self.weight = _filled("ones", self.normalized_shape, dtype, "weight") if scaled else None
        self.bias = _filled("zeros", self.normalized_shape, dtype, "bias") if moved else None

    def construct(self, input: Tensor) -> Tensor:
        """`input` of any shape that ends with normalized_shape."""
        weight, bias = argument.cast_like(self, input, self.weight, self.bias)
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


class GroupNorm(Layer):
    """Normalises each group of channels of each sample over channels and space (Wu & He 2018).

    Raises:
        SporaxTypeError, SporaxValueError: no such numbers, or the groups do not divide the channels.
    """

    num_groups: int = setting(argument.positive_int, "number of groups.")
    num_channels: int = setting(argument.positive_int, "number of channels, a multiple of it.")
    eps: float = setting(argument.number, "added to the variance.", default=1e-5)
    affine: bool = setting(argument.boolean, "whether `weight` and `bias` are trained.", default=True)
    dtype: DType | None = setting(
        None, "element type of the Parameters; float32 by default.", default=None, attribute=False
    )

    _in_repr = "num_groups num_channels eps affine"

    def _prepare(self, dtype: DType | None) -> None:
        if self.num_channels % self.num_groups:
            raise For("GroupNorm").error(
                f"'num_channels' must be a multiple of 'num_groups', but got {self.num_channels} and {self.num_groups}"
            )
        self.weight = _filled("ones", (self.num_channels,), dtype, "weight", self.affine)
        self.bias = _filled("zeros", (self.num_channels,), dtype, "bias", self.affine)

    def construct(self, input: Tensor) -> Tensor:
        """`input`: (n, num_channels, …)."""
        weight, bias = argument.cast_like(self, input, self.weight, self.bias)
        return F.group_norm(input, self.num_groups, weight, bias, self.eps)


class _BatchNorm(Cell):
    """Normalises each channel: by the batch while training, by the running statistics otherwise (Ioffe & Szegedy 2015).

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: share of the batch in the running statistics; None: they are the mean over all batches.
        affine: scale and shift by `weight` and `bias`.
        track_running_stats: keep running statistics; False: always normalise by the batch.
        dtype: element type of the Parameters; float32 by default.

    Raises:
        SporaxTypeError, SporaxValueError: no such numbers, or input of another rank or channel count.
    """

    _in_repr = "num_features eps momentum affine track_running_stats"
    ranks: tuple[int, ...] = ()
    # None where `affine` or `track_running_stats` is False.
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        self.num_features = argument.positive_int(name, "num_features", num_features)
        self.eps = argument.number(name, "eps", eps)
        self.momentum = None if momentum is None else argument.within(name, "momentum", momentum, 0.0, 1.0)
        self.affine = argument.boolean(name, "affine", affine)
        self.track_running_stats = argument.boolean(name, "track_running_stats", track_running_stats)
        shape, tracked = (num_features,), track_running_stats
        self.weight = _filled("ones", shape, dtype, "weight") if affine else None
        self.bias = _filled("zeros", shape, dtype, "bias") if affine else None
        self.running_mean = _filled("zeros", shape, dtype, "running_mean", False) if tracked else None
        self.running_var = _filled("ones", shape, dtype, "running_var", False) if tracked else None
        count = Parameter(Tensor(0, dtypes.int64), name="num_batches_tracked", requires_grad=False)
        self.num_batches_tracked = count if tracked else None

    def construct(self, input: Tensor) -> Tensor:
        """`input` with the channels in dim 1."""
        check_rank(type(self).__name__, input, self.ranks)
        if not self.training and self.track_running_stats:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        weight = ops.ones(self.num_features) if self.weight is None else self.weight
        bias = ops.zeros(self.num_features) if self.bias is None else self.bias
        result, mean, variance = self._normalize(input, weight, bias)
        if self.track_running_stats:
            self._track(mean, variance)
        return result

    def _normalize(self, input: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The result, and mean and unbiased variance of each channel."""
        return normalized_by_batch(input, weight, bias, 1, self.eps)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        ops.assign_add(self.num_batches_tracked, Tensor(1, dtypes.int64))
        share: Any = self.momentum
        if share is None:
            share = 1 / self.num_batches_tracked.astype(dtypes.float32)
        for running, now in ((self.running_mean, mean), (self.running_var, variance)):
            moved = (1 - share) * running + share * now.astype(running.dtype)
            ops.assign(running, ops.stop_gradient(moved.astype(running.dtype)))

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.track_running_stats:
            for parameter, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
                parameter.set_data(ops.full_like(parameter, value))

    def reset_parameters(self) -> None:
        """Start again: statistics forgotten, `weight` ones and `bias` zeros."""
        self.reset_running_stats()
        if self.affine:
            self.weight.set_data(ops.ones_like(self.weight))
            self.bias.set_data(ops.zeros_like(self.bias))


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (n, num_features) or (n, num_features, length)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (n, num_features, h, w)."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (n, num_features, d, h, w)."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of (n, num_features, …) by the statistics of all ranks' batches together.

    While training, every rank of the group must call it; their batches may differ in size.

    Args: as the other batch normalisations, and
        process_group: name of the group of ranks; all by default.

    Raises:
        SporaxRuntimeError: there is no such group when it is called.
    """

    ranks = (2, 3, 4, 5)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: str | None = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)
        self.process_group = For("SyncBatchNorm").typed("process_group", process_group, "a name", str | None)

    def _normalize(self, input: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return normalized_by_batch(input, weight, bias, 1, self.eps, groups.find(self.process_group))


def _filled(init: str, shape: tuple[int, ...], dtype: DType | None, name: str, trained: bool = True) -> Parameter:
    return Parameter(initializer(init, shape, dtype or dtypes.float32), name=name, requires_grad=trained)


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
        For("Embedding").typed("padding_idx", padding_idx, "an int", int, takes_bool=False)
        if not -self.num_embeddings <= padding_idx < self.num_embeddings:
            raise For("Embedding").error(
                f"'padding_idx' must be in [{-self.num_embeddings}, {self.num_embeddings})", padding_idx
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
