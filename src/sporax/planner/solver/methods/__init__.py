"""Methods that solve, bound or improve: message passing, elimination, integer programs, neighbourhood search."""
