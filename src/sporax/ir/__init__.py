"""Values that every layer speaks: errors, layouts, strategies, graphs, plans. No JAX here."""
