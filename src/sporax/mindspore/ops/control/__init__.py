"""Control flow, assignment, functions made of functions, and debugging."""

from sporax.mindspore.ops.control import composition, custom, debug, flow, python_values
