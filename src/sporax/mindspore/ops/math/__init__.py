"""Mathematical operators: element by element, reductions, statistics, special functions, spectra."""

from sporax.mindspore.ops.math import (
    elementwise,
    reduction,
    rounding_and_bits,
    special_functions,
    spectral,
    statistics,
    statistics_classes,
)
