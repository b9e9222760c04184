"""The command line on tiny scripts."""

from command_line import environ, run, start, write

__all__ = ["environ", "run", "start", "write"]
