"""Loops and branches inlined into one graph for searches, costs and questions."""
