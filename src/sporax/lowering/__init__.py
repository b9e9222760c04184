"""From jaxpr to operator graph, and from plan back to JAX.

`marks` is what is written into a trace: the primitive that carries the user's annotations, tags, variables. `passes` change the
jaxpr. `ingest` makes the graph and rewrites it (weights gathered twice, strategies from files). `execute` is the program of one
rank under a plan, `pipeline` makes the programs of stages.
"""
