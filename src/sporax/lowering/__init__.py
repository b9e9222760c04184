"""From jaxpr to operator graph, and from plan back to JAX. Nothing has landed here yet."""
