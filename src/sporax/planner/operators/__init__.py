"""Operators as MindSpore users name them: their dimensions, strategies, constraints, groups and names."""
