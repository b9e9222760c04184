"""Compiled programs: first trace, signature, variants, and what is checked when they run."""
