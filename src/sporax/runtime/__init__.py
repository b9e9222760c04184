"""How programs run: session, state, compiled programs, ranks, storage. Works on `jax.Array`s; knows no Tensor and no Cell."""
