"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.amp._precision import auto_mixed_precision as auto_mixed_precision
from sporax.mindspore.amp._precision import custom_mixed_precision as custom_mixed_precision
from sporax.mindspore.amp._precision import get_black_list as get_black_list
from sporax.mindspore.amp._precision import get_white_list as get_white_list
from sporax.mindspore.amp._scalers import DynamicLossScaleManager as DynamicLossScaleManager
from sporax.mindspore.amp._scalers import DynamicLossScaler as DynamicLossScaler
from sporax.mindspore.amp._scalers import FixedLossScaleManager as FixedLossScaleManager
from sporax.mindspore.amp._scalers import LossScaleManager as LossScaleManager
from sporax.mindspore.amp._scalers import LossScaler as LossScaler
from sporax.mindspore.amp._scalers import StaticLossScaler as StaticLossScaler
from sporax.mindspore.amp._scalers import all_finite as all_finite
from sporax.mindspore.amp._training import build_train_network as build_train_network
from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor


