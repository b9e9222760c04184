"""Frozen settings of a step: parallel modes, placement of state, searches, fusion, reuse. Values only."""
