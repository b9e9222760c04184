"""Control flow, assignment, functions made of functions, and debugging."""

from sporax.mindspore.ops.control import (
    composition,
    custom,
    debug,
    declared,
    float_status,
    flow,
    python_values,
)
