"""Parallel settings."""
