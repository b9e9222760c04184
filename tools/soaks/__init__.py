"""Scenarios of `tools/soak.py`: what is disturbed or repeated, and what has to hold."""
