"""Values that every package above speaks: layouts, strategies, graphs, marks, plans, settings (`config`). No JAX here."""
