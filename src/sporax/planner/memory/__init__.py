"""Peak memory of a plan: XLA's instructions, kernel fusion, live ranges and buffer assignment, modelled."""
