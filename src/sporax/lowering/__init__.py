"""From jaxpr to operator graph, and from plan back to JAX.

The story, file by file: `marks` is the primitive that carries what users say through tracing; `ingest` makes the graph;
`again` and `uneven` rewrite it (weights gathered twice, tables in uneven parts); `execute` is one rank's program by a plan,
`local` runs one equation on slices (`permuting`, `part_lookup` help), and `redistribute` moves tensors.
"""
