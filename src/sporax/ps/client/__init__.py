"""The side of a worker: pushes, pulls, and what is repeated until it is acknowledged."""
