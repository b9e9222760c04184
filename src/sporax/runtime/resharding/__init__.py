"""Which collectives XLA puts into a user's own program, and what removes them (`sporax.explain_resharding`)."""
