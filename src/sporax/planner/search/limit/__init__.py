"""Searches that keep a limit on memory."""
