"""What is written into a trace and read from it: operator marks, tags, variables, transfers to the host."""
