"""Passes for values in the memory of the host and in files: offloaded variables, work on the host, updates of rows."""
