"""Runs of equal blocks become one body in a loop, and their variables one stack."""
