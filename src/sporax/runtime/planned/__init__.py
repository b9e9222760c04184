"""Steps that a plan shards: `step`, and `sporax.plan` for functions of JAX."""
