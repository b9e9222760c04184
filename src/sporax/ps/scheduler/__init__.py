"""The scheduler of a job with servers: members, samples, checkpoints; a state machine and the process around it."""
