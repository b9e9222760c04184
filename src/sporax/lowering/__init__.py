"""From jaxpr to operator graph, and from plan back to JAX.

`marks` is the primitive that carries the user's annotations through tracing. `ingest` makes the graph. `regather` and
`manual_split` rewrite it (weights gathered twice, tables with uneven parts). `execute` is the program of one rank under
a plan: `local_equations` runs one equation on slices (`permute` and `manual_split.kernel` help), `redistribute` and
`fused_transfers` move tensors. `reused_collectives` makes calls of equal communication operators.
"""
