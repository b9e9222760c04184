"""From jaxpr to operator graph, and from plan back to JAX.

`marks` is what is written into a trace: the primitive that carries the user's annotations, tags, variables. `passes` change the
jaxpr. `ingest` makes the graph and rewrites it (weights gathered twice, strategies from files). `execute` is the program of one
rank under a plan, `pipeline` makes the programs of stages. Operators whose tables are split by hand find `part_lookup` here.
"""

from typing import TYPE_CHECKING

from sporax.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from sporax.lowering.execute.part_lookup import part_lookup
    from sporax.lowering.ingest.ingest import Ingested

if not TYPE_CHECKING:  # checkers should see a missing name themselves
    __getattr__ = lazy_names(__name__)
