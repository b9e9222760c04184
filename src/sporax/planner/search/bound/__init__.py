"""Lower bounds on memory, for proofs under a limit."""
