"""Control flow, assignment, functions made of functions, and debugging."""

from sporax.ops.control import assign, composition, debug, float_status, flow, python_values
