"""Steps that run as a pipeline: planned chunk by chunk, executed by a schedule."""
