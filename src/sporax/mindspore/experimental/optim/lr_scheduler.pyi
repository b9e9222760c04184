"""Made by tools/make_type_stubs.py; do not edit."""
# Operators and Tensors say more precisely than their bases what they take.
# mypy: disable-error-code="override"

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Literal

from sporax.mindspore.common.dtype import DType as _DType
from sporax.mindspore.common.tensor import Tensor as Tensor
from sporax.mindspore.experimental.optim._combined import ReduceLROnPlateau as ReduceLROnPlateau
from sporax.mindspore.experimental.optim._combined import SequentialLR as SequentialLR
from sporax.mindspore.experimental.optim._cycles import CosineAnnealingLR as CosineAnnealingLR
from sporax.mindspore.experimental.optim._cycles import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from sporax.mindspore.experimental.optim._cycles import CyclicLR as CyclicLR
from sporax.mindspore.experimental.optim._factors import ConstantLR as ConstantLR
from sporax.mindspore.experimental.optim._factors import ExponentialLR as ExponentialLR
from sporax.mindspore.experimental.optim._factors import LambdaLR as LambdaLR
from sporax.mindspore.experimental.optim._factors import LinearLR as LinearLR
from sporax.mindspore.experimental.optim._factors import MultiStepLR as MultiStepLR
from sporax.mindspore.experimental.optim._factors import MultiplicativeLR as MultiplicativeLR
from sporax.mindspore.experimental.optim._factors import PolynomialLR as PolynomialLR
from sporax.mindspore.experimental.optim._factors import StepLR as StepLR
from sporax.mindspore.experimental.optim._scheduler import LRScheduler as LRScheduler


