"""A server: the state machine of its slots and the process around it."""
