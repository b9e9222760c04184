"""Training tools."""
