"""Communication of a plan: resharding of tensors, the collectives it needs, and which of them are fused."""
