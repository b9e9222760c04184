"""Functions with numpy's names on Tensors: `mindspore.numpy`.

Integers become int32 and floats float32 where nothing says otherwise. See `_functions` for how functions are defined.
"""

import numpy as _np

from sporax.mindspore._names.missing import answer_missing_names
from sporax.mindspore.common.dtype import (
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from sporax.mindspore.numpy import _creation, _functions

int_, float_ = int32, float32
pi, e, euler_gamma = _np.pi, _np.e, _np.euler_gamma
inf = Inf = Infinity = infty = PINF = _np.inf
NINF, nan, NaN, NAN = -_np.inf, _np.nan, _np.nan, _np.nan
newaxis = None

_OFFERED = {**_functions.FUNCTIONS, **_creation.FUNCTIONS}
globals().update(_OFFERED)

__all__ = [
    *("bool_", "float16", "float32", "float64", "float_", "int8", "int16", "int32", "int64", "int_"),
    *("uint8", "uint16", "uint32", "uint64"),
    *("e", "euler_gamma", "inf", "Inf", "Infinity", "infty", "nan", "NaN", "NAN", "newaxis", "NINF", "pi", "PINF"),
    *_OFFERED,
]

answer_missing_names(__name__)
