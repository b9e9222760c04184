"""The API server: what is read from it, cached, and created on it."""
