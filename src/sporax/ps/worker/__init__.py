"""What a worker keeps of the servers: connection, row cache, leases of steps."""
