"""Control flow, assignment, functions made of functions, and debugging."""

from sporax.ops.control import assign, composition, debug, flow
