"""Sharding propagation: from the strategies that a user gave to a plan of the whole step."""
