"""Which methods run, in which processes, and the solution that they give together."""
