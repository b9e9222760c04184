"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.nn.probability.bnn_layers._layers import ConvReparam as ConvReparam
from sporax.mindspore.nn.probability.bnn_layers._layers import DenseLocalReparam as DenseLocalReparam
from sporax.mindspore.nn.probability.bnn_layers._layers import DenseReparam as DenseReparam
from sporax.mindspore.nn.probability.bnn_layers._layers import NormalPosterior as NormalPosterior
from sporax.mindspore.nn.probability.bnn_layers._layers import NormalPrior as NormalPrior
from sporax.mindspore.nn.probability.bnn_layers._layers import WithBNNLossCell as WithBNNLossCell
from sporax.mindspore.nn.probability.bnn_layers._layers import normal_post_fn as normal_post_fn


