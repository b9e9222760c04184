"""`sporax checkpoint`: convert, inspect and compare checkpoints of distributed jobs."""

from sporax.train.checkpoint.command import add_arguments, run

__all__ = ["add_arguments", "run"]
