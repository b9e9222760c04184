"""Parameter servers under the launcher."""
